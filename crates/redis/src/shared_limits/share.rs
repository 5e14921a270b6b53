//! One gateway's share of one endpoint's slots: the slots that it leases, uses and gives back.
//!
//! A share is a state machine without a clock, a connection or a lock. Its owner reports the running and waiting
//! requests with [`observe`](Share::observe), sends the question that [`ask`](Share::ask) returns to the endpoint's
//! [`Ledger`](super::Ledger), and passes the answers on. [`cap`](Share::cap) returns the number of slots that may be
//! used at an instant.
//!
//! A question or its answer may get lost. The share therefore stops using slots from the moment in which it offers them
//! back, and counts new slots only once the ledger has granted them. So a lost message costs slots for a while, but it
//! never gives one slot to two gateways.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The times by which a gateway leases slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The time for which slots are leased. A gateway renews its leases each third of it.
    pub lease: Duration,
    /// The time for which a slot may serve this gateway's waiters after another gateway has asked for it.
    pub turn: Duration,
}

impl LeaseTimes {
    /// Returns the times for leases of this length. A turn is a thirtieth of the lease, but at least 50 ms and at most
    /// 1 s.
    #[must_use]
    pub fn of(lease: Duration) -> Self {
        let turn = (lease / 30).clamp(Duration::from_millis(50), Duration::from_secs(1));
        Self { lease, turn }
    }

    /// Returns the time after which a gateway renews its leases.
    fn renewal(&self) -> Duration {
        self.lease / 3
    }

    /// Returns the time before the end of a lease in which its slots are no longer used. It covers the difference
    /// between the clocks of two machines, and the time to send a request that has just taken a slot.
    fn margin(&self) -> Duration {
        self.lease / 8
    }
}

/// The number of an endpoint's slots that a gateway could use, and the reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// The number of requests that run on the endpoint.
    pub running: u32,
    /// The number of requests that wait for a slot, and could use a slot of this endpoint.
    pub waiting: u32,
    /// The number of slots that the gateway may use by its own rules, such as a measured limit.
    pub most: u32,
    /// The number of spare slots for requests that have yet to arrive. They are held only while other gateways have
    /// enough.
    pub ahead: u32,
}

impl Need {
    /// Returns the number of slots that the gateway could use now: at most `most`, but at least the running ones.
    fn slots(&self) -> u32 {
        let wanted = self.running.saturating_add(self.waiting);
        wanted.min(self.most).max(self.running)
    }
}

/// A question of a gateway to the ledger of an endpoint. The ledger tolerates repeated and late questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The number of the question. The ledger ignores a question that is older than the latest one that it has seen.
    pub seq: u64,
    /// The maximum number of slots that the gateway keeps. It has already stopped using the others.
    pub keep: u32,
    /// The number of slots that the gateway could use. It joins a waiting list for the slots that it does not get.
    pub want: u32,
    /// The number of slots that the gateway takes in addition, if they are free and all other gateways have enough.
    pub ahead: u32,
    /// The number of slots of the endpoint in this gateway's configuration. The lowest number of all gateways holds.
    pub slots: u32,
}

/// The answer of a ledger to a question, or a later notice to a gateway that has asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The number of slots that the gateway has leased.
    pub slots: u32,
    /// The number that orders the messages of a ledger to one gateway. A later message has a higher version.
    pub version: u64,
    /// The number of slots that other gateways wait for.
    pub others: u32,
    /// The number of slots that each gateway may keep while others wait. It is an equal part, rounded down.
    pub fair: u32,
}

/// The share of one gateway in the slots of one endpoint.
#[derive(Debug, Clone)]
pub struct Share {
    times: LeaseTimes,
    need: Need,
    /// The highest number of slots that the gateway needed since the last renewal.
    peak: u32,
    /// The leased slots as pairs of the time of the grant and the number of slots. The oldest grant is first.
    slots: VecDeque<(Instant, u32)>,
    /// The end of the lease, less the margin. `None` before the first lease, and after a lease has expired.
    until: Option<Instant>,
    version: u64,
    others: u32,
    fair: u32,
    /// The number of wanted slots that the ledger knows of, from the latest question that it answered.
    known_want: u32,
    /// The number of leased slots at which the ledger last had no spare slot to give. The share asks for spare slots
    /// again only once this number has changed.
    none_ahead_at: Option<u32>,
    seq: u64,
    sent: Option<Sent>,
    /// The limit on usable slots while a question that offers slots back is unanswered.
    offered: Option<u32>,
    /// The latest notice that arrived while an answer was due. It is applied after the answer.
    notice: Option<Grant>,
    renew_at: Instant,
    /// The time before which no question is sent, because an earlier one failed.
    retry_at: Instant,
}

/// A question that still waits for its answer.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    at: Instant,
    keep: u32,
    want: u32,
    is_ahead: bool,
}

/// The time after which a failed question is sent again.
const RETRY: Duration = Duration::from_millis(100);

impl Share {
    /// Returns a share without slots.
    #[must_use]
    pub fn new(times: LeaseTimes, now: Instant) -> Self {
        Self {
            times,
            need: Need::default(),
            peak: 0,
            slots: VecDeque::new(),
            until: None,
            version: 0,
            others: 0,
            fair: 0,
            known_want: 0,
            none_ahead_at: None,
            seq: 0,
            sent: None,
            offered: None,
            notice: None,
            renew_at: now,
            retry_at: now,
        }
    }

    /// Returns the number of leased slots, including slots that may not be used any more.
    #[must_use]
    pub fn leased(&self) -> u32 {
        self.slots.iter().map(|&(_, slots)| slots).sum()
    }

    /// Returns the instant until which [`cap`](Self::cap) holds without news. Returns `None` before the first lease.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns `true` if the share holds and wants no slots, and all its questions are answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
            && self.known_want == 0
            && self.sent.is_none()
            && self.need.slots() == 0
    }

    /// Returns the number of slots that may be used at `now`, including the slots in use.
    #[must_use]
    pub fn cap(&self, now: Instant) -> u32 {
        if self.until.is_none_or(|until| now >= until) {
            return 0;
        }
        let leased = self.leased();
        let usable = leased - self.due_to_others(now).min(leased);
        self.offered.map_or(usable, |offered| usable.min(offered))
    }

    /// Returns the number of slots beyond an equal part that have had their turn here and that other gateways wait for.
    fn due_to_others(&self, now: Instant) -> u32 {
        let turn = self.times.turn;
        let excess = self.leased().saturating_sub(self.fair);
        let old = self
            .slots
            .iter()
            .take_while(|&&(since, _)| now >= since + turn);
        let old: u32 = old.map(|&(_, slots)| slots).sum();
        old.min(self.others).min(excess)
    }

    /// Records the running and waiting requests. Forgets all slots once the lease has expired.
    pub fn observe(&mut self, need: Need, now: Instant) {
        self.need = need;
        self.peak = self.peak.max(need.slots());
        if self.until.is_some_and(|until| now >= until) {
            // The ledger may have given the slots to other gateways by now.
            self.until = None;
            self.slots.clear();
            self.known_want = 0;
            self.others = 0;
        }
    }

    /// Returns the number of slots to keep, if a question were sent now.
    fn to_keep(&self, now: Instant) -> u32 {
        let leased = self.leased();
        // While the others have enough, slots are returned at a renewal only, and as far as the peak allows.
        let needed = match self.others {
            0 if now < self.renew_at => leased,
            0 => self.peak,
            _ => self.need.slots().min(self.cap(now)),
        };
        needed.max(self.need.running).min(leased)
    }

    /// Returns the number of spare slots to ask for, so that the next requests find one. It is 0 while other gateways
    /// wait.
    fn ahead(&self) -> u32 {
        let most = self.need.most.saturating_sub(self.need.slots());
        match self.others == 0 && self.peak > 0 {
            true => self.need.ahead.min(most),
            false => 0,
        }
    }

    /// Returns `true` if a question should be sent.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        if self.sent.is_some() || now < self.retry_at {
            return false;
        }
        let (leased, need) = (self.leased(), self.need.slots());
        let is_known = leased > 0 || self.known_want > 0;
        if is_known && now >= self.renew_at {
            return true;
        }
        if self.others > 0 && self.to_keep(now) < leased {
            return true;
        }
        if self.known_want > leased {
            // The share is on the waiting list already, so it asks again only once its wish has doubled.
            let (told, more) = (self.known_want - leased, need.saturating_sub(leased));
            return more >= told.saturating_mul(2);
        }
        // All slots are in use, so the share fetches spare ones before the next request arrives.
        let is_used_up = need == leased && self.none_ahead_at != Some(leased);
        need > leased || is_used_up && self.ahead() > 0
    }

    /// Returns the number of slots that may be used from now on, because the question will offer the others back. Call
    /// this when a question [is due](Self::is_due), before [`ask`](Self::ask).
    pub fn offer(&mut self, now: Instant) -> u32 {
        let keep = self.to_keep(now);
        let offered = self.offered.map_or(keep, |offered| offered.min(keep));
        self.offered = Some(offered);
        self.cap(now)
    }

    /// Returns the question to send. `running` is the number of requests that run on the endpoint after the caller has
    /// applied the cap that [`offer`](Self::offer) returned. `slots` is the configured number of slots of the endpoint.
    pub fn ask(&mut self, running: u32, slots: u32, now: Instant) -> Ask {
        self.need.running = running;
        self.seq += 1;
        // A request may have taken a slot just before the cap was lowered, so running requests raise the offer.
        let keep = self.offered.unwrap_or(0).max(running);
        self.offered = Some(keep);
        // A share that has lost its lease names its full need, so that it gets its slots back if they are still there.
        let keep = match self.until {
            Some(_) => keep,
            None => self.need.slots(),
        };
        let want = self.need.slots();
        let ahead = self.ahead();
        self.sent = Some(Sent {
            seq: self.seq,
            at: now,
            keep,
            want,
            is_ahead: ahead > 0,
        });
        Ask {
            seq: self.seq,
            keep,
            want,
            ahead,
            slots,
        }
    }

    /// Applies the answer to question `seq`. An answer to any other question than the current one is ignored.
    pub fn on_answer(&mut self, seq: u64, grant: Grant, now: Instant) {
        let Some(sent) = self.sent.filter(|sent| sent.seq == seq) else {
            return; // the question was given up
        };
        self.sent = None;
        self.offered = None;
        self.known_want = sent.want;
        // The lease counts from the sending of the question, because the ledger started its clock later.
        self.until = Some(sent.at + self.times.lease - self.times.margin());
        self.renew_at = sent.at + self.times.renewal();
        self.peak = self.need.slots();
        // The returned slots belong to others now, even if the ledger has granted as many new ones.
        self.shrink_to(sent.keep);
        self.apply(grant, now);
        let is_none_ahead = sent.is_ahead && grant.slots <= sent.want;
        self.none_ahead_at = is_none_ahead.then_some(grant.slots);
        if let Some(notice) = self.notice.take() {
            self.on_notice(notice, now);
        }
    }

    /// Applies a notice, which grants more slots or reports that other gateways wait.
    pub fn on_notice(&mut self, notice: Grant, now: Instant) {
        if self.sent.is_some() || self.offered.is_some() {
            // The granted slots may be among the slots that are offered back. The answer will tell, so the notice waits
            // for it.
            let is_later = |last: Grant| last.version < notice.version;
            if self.notice.is_none_or(is_later) {
                self.notice = Some(notice);
            }
        } else if notice.version > self.version && self.until.is_some_and(|until| now < until) {
            self.apply(notice, now);
        }
    }

    /// Records that question `seq` has failed. The ledger may have seen it or not, so the offer stays in force.
    pub fn on_failed(&mut self, seq: u64, now: Instant) {
        if self.sent.is_some_and(|sent| sent.seq == seq) {
            self.sent = None;
            self.retry_at = now + RETRY;
        }
    }

    fn apply(&mut self, grant: Grant, now: Instant) {
        self.version = grant.version;
        self.others = grant.others;
        self.fair = grant.fair;
        self.shrink_to(grant.slots);
        let leased = self.leased();
        if grant.slots > leased {
            self.slots.push_back((now, grant.slots - leased));
        }
    }

    /// Forgets slots until `slots` are left, beginning with those that were leased for the longest time.
    fn shrink_to(&mut self, slots: u32) {
        let mut excess = self.leased().saturating_sub(slots);
        while let Some((_, oldest)) = self.slots.front_mut().filter(|_| excess > 0) {
            let less = excess.min(*oldest);
            *oldest -= less;
            excess -= less;
            if *oldest == 0 {
                self.slots.pop_front();
            }
        }
    }

    /// Returns the question that gives back all slots except those of running requests.
    pub fn give_back(&mut self, running: u32, slots: u32, now: Instant) -> Ask {
        self.need = Need {
            running,
            ..Need::default()
        };
        self.peak = 0;
        self.offered = Some(0);
        self.ask(running, slots, now)
    }

    /// Records a new connection to the ledger. A question is due at once, because notices may have been lost before.
    pub fn on_connected(&mut self, now: Instant) {
        self.renew_at = now;
        self.retry_at = now;
    }

    /// Returns `true` while this gateway or another one waits for slots, so that the owner should check the share
    /// often.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.need.slots() > self.leased() || self.others > 0 && self.leased() > 0
    }

    /// Returns `true` while the gateway is on the waiting list of this endpoint.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.known_want > self.leased()
    }

    /// Returns the next instant at which a question may become due by time alone. Returns `None` if time alone changes
    /// nothing.
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.sent.is_some() {
            return None;
        }
        let is_known = !self.slots.is_empty() || self.known_want > 0;
        let renewal = is_known.then_some(self.renew_at);
        let turn = self.slots.iter().map(|&(since, _)| since + self.times.turn);
        let has_turns = self.others > 0 && self.leased() > self.fair;
        let turn = turn.filter(|&end| end > now && has_turns).min();
        let retry = (self.need.slots() > self.leased()).then_some(self.retry_at);
        let next = renewal.into_iter().chain(turn).min().or(retry);
        next.map(|next| next.max(self.retry_at))
    }
}

/// Returns the number of slots that each of `gateways` may use while the ledger is unreachable. It is an equal part of
/// the slots, and at least one, so that requests go on. With an unknown number of gateways, it is one slot.
#[must_use]
pub fn fallback(slots: u32, gateways: Option<u32>) -> u32 {
    let part = gateways.map_or(1, |gateways| slots / gateways.max(1));
    part.max(1).min(slots)
}

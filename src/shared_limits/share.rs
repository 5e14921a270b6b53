//! One gateway's share of one endpoint's slots: how many it leases, uses and gives back.
//!
//! A state machine without a clock, a connection or a lock. Its owner tells it what runs and waits
//! ([`observe`](Share::observe)), sends what [`ask`](Share::ask) returns to the [`Ledger`](super::Ledger) of the endpoint,
//! and hands in the answers. [`cap`](Share::cap) is the number of slots that may be used at an instant.
//!
//! A question may be lost, and so may its answer. From the moment in which slots are offered back, they are not used any
//! more; what was asked for counts only once it was granted. So a lost message costs slots for a while, and never gives
//! one slot to two gateways.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The times by which a gateway leases slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The time for which slots are leased. A gateway renews its leases each third of it.
    pub lease: Duration,
    /// The time for which a slot may serve one gateway's waiters after another one has asked for it.
    pub turn: Duration,
}

impl LeaseTimes {
    /// Returns the times for leases of this length, with turns of a thirtieth of it, from 50 ms to 1 s.
    #[must_use]
    pub fn of(lease: Duration) -> Self {
        let turn = (lease / 30).clamp(Duration::from_millis(50), Duration::from_secs(1));
        Self { lease, turn }
    }

    /// The time after which leases are renewed.
    fn renewal(&self) -> Duration {
        self.lease / 3
    }

    /// The time before the end of a lease in which its slots are not used any more: the clocks of two machines differ, and a
    /// request that has a slot is still to be sent.
    fn margin(&self) -> Duration {
        self.lease / 8
    }
}

/// What a gateway could do with the slots of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// The number of requests that run on the endpoint.
    pub running: u32,
    /// The number of requests that wait for a slot which may be one of the endpoint's.
    pub waiting: u32,
    /// The number of slots that the gateway may use for reasons of its own, as by a measured limit.
    pub most: u32,
    /// The number of slots to have at hand for requests that are still to come, while no other gateway wants them.
    pub ahead: u32,
}

impl Need {
    /// The slots that it could use now.
    fn slots(&self) -> u32 {
        let wanted = self.running.saturating_add(self.waiting);
        wanted.min(self.most).max(self.running)
    }
}

/// A question of a gateway to the ledger of an endpoint. It may be repeated, and may come late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The number of the question. The ledger does nothing for one that is older than the latest that it has seen.
    pub seq: u64,
    /// The number of slots that the gateway keeps, at most. It has stopped to use the others.
    pub keep: u32,
    /// The number of slots that it could use. It is on a waiting list for those that it does not get.
    pub want: u32,
    /// The number of slots that it takes beyond, if they are free and no gateway waits.
    pub ahead: u32,
    /// The number of slots that the endpoint has, as this gateway is configured. The lowest number of all gateways holds.
    pub slots: u32,
}

/// The answer of a ledger, or its notice to a gateway that had asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The number of slots that the gateway has leased.
    pub slots: u32,
    /// Orders what a ledger says to one gateway. Later ones are higher.
    pub version: u64,
    /// The number of slots that other gateways wait for.
    pub others: u32,
    /// The number of slots that each gateway may keep though others wait: an equal part, rounded down.
    pub fair: u32,
}

/// One gateway's share of one endpoint's slots.
#[derive(Debug, Clone)]
pub struct Share {
    times: LeaseTimes,
    need: Need,
    /// The most slots that were needed since the last renewal.
    peak: u32,
    /// The leased slots, by when they were: the longest leased first.
    slots: VecDeque<(Instant, u32)>,
    /// The end of the lease, less the margin. `None` before the first one.
    until: Option<Instant>,
    version: u64,
    others: u32,
    fair: u32,
    /// The slots that the ledger knows to be wanted.
    known_want: u32,
    /// The leased slots at which none could be had ahead; it is not asked for any again until that changes.
    none_ahead_at: Option<u32>,
    seq: u64,
    sent: Option<Sent>,
    /// The most slots that may be used because of questions whose answers have not come.
    offered: Option<u32>,
    /// The latest notice that came while an answer was awaited.
    notice: Option<Grant>,
    renew_at: Instant,
    /// No question is sent before this.
    retry_at: Instant,
}

/// A question whose answer is awaited.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    at: Instant,
    keep: u32,
    want: u32,
    is_ahead: bool,
}

/// The time after which a question that failed is asked again.
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

    /// Returns the number of slots that are leased, whether they may be used or not.
    #[must_use]
    pub fn leased(&self) -> u32 {
        self.slots.iter().map(|&(_, slots)| slots).sum()
    }

    /// Returns the instant until which [`cap`](Self::cap) holds without news; `None` before the first lease.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns `true` if it has no slots, wants none, and awaits no answer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
            && self.known_want == 0
            && self.sent.is_none()
            && self.need.slots() == 0
    }

    /// Returns the number of slots that may be used at `now`, those in use included.
    #[must_use]
    pub fn cap(&self, now: Instant) -> u32 {
        if self.until.is_none_or(|until| now >= until) {
            return 0;
        }
        let leased = self.leased();
        let usable = leased - self.due_to_others(now).min(leased);
        self.offered.map_or(usable, |offered| usable.min(offered))
    }

    /// The slots beyond an equal part that other gateways wait for, and that have had their turn here.
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

    /// Takes note of what runs and waits.
    pub fn observe(&mut self, need: Need, now: Instant) {
        self.need = need;
        self.peak = self.peak.max(need.slots());
        if self.until.is_some_and(|until| now >= until) {
            // The ledger may have given the slots to others by now.
            self.until = None;
            self.slots.clear();
            self.known_want = 0;
            self.others = 0;
        }
    }

    /// The slots to keep, if a question were sent now.
    fn to_keep(&self, now: Instant) -> u32 {
        let leased = self.leased();
        let needed = match self.others {
            0 if now < self.renew_at => leased,
            0 => self.peak,
            _ => self.need.slots().min(self.cap(now)),
        };
        needed.max(self.need.running).min(leased)
    }

    /// The slots to have at hand for requests that are still to come.
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
            // On the waiting list already: what it wants is only told again when it has doubled.
            let (told, more) = (self.known_want - leased, need.saturating_sub(leased));
            return more >= told.saturating_mul(2);
        }
        // All in use: some are fetched before the next request comes.
        let is_used_up = need == leased && self.none_ahead_at != Some(leased);
        need > leased || is_used_up && self.ahead() > 0
    }

    /// Returns the number of slots that may be used from now on, because the others are about to be offered back. To be
    /// called when a question [is due](Self::is_due), before [`ask`](Self::ask).
    pub fn offer(&mut self, now: Instant) -> u32 {
        let keep = self.to_keep(now);
        let offered = self.offered.map_or(keep, |offered| offered.min(keep));
        self.offered = Some(offered);
        self.cap(now)
    }

    /// Returns the question to send. `running`: the number of requests that run on the endpoint once the cap that
    /// [`offer`](Self::offer) returned holds. `slots`: the slots of the endpoint, as configured.
    pub fn ask(&mut self, running: u32, slots: u32, now: Instant) -> Ask {
        self.need.running = running;
        self.seq += 1;
        // A request may have taken a slot just before the cap was lowered.
        let keep = self.offered.unwrap_or(0).max(running);
        self.offered = Some(keep);
        // A share that has lost its lease says what it has, so that it gets that back if it is still there.
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

    /// Takes the answer to question `seq`.
    pub fn on_answer(&mut self, seq: u64, grant: Grant, now: Instant) {
        let Some(sent) = self.sent.filter(|sent| sent.seq == seq) else {
            return; // it had been given up
        };
        self.sent = None;
        self.offered = None;
        self.known_want = sent.want;
        // From when it was sent: the ledger's time began later.
        self.until = Some(sent.at + self.times.lease - self.times.margin());
        self.renew_at = sent.at + self.times.renewal();
        self.peak = self.need.slots();
        // Those that it gave back are others' now, also if it got as many new ones.
        self.shrink_to(sent.keep);
        self.apply(grant, now);
        let is_none_ahead = sent.is_ahead && grant.slots <= sent.want;
        self.none_ahead_at = is_none_ahead.then_some(grant.slots);
        if let Some(notice) = self.notice.take() {
            self.on_notice(notice, now);
        }
    }

    /// Takes a notice: slots that came later, or that others wait for slots.
    pub fn on_notice(&mut self, notice: Grant, now: Instant) {
        if self.sent.is_some() || self.offered.is_some() {
            // The slots may be among those that are offered back: the answer says.
            let is_later = |last: Grant| last.version < notice.version;
            if self.notice.is_none_or(is_later) {
                self.notice = Some(notice);
            }
        } else if notice.version > self.version && self.until.is_some_and(|until| now < until) {
            self.apply(notice, now);
        }
    }

    /// Takes note that question `seq` has failed. Whether the ledger has seen it is not known.
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

    /// Forgets the slots that were leased for the longest time.
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

    /// Returns the question with which all slots are given back, but those of requests that run.
    pub fn give_back(&mut self, running: u32, slots: u32, now: Instant) -> Ask {
        self.need = Need {
            running,
            ..Need::default()
        };
        self.peak = 0;
        self.offered = Some(0);
        self.ask(running, slots, now)
    }

    /// Takes note of a new connection to the ledger: notices may have been lost before.
    pub fn on_connected(&mut self, now: Instant) {
        self.renew_at = now;
        self.retry_at = now;
    }

    /// Returns `true` while slots are waited for, here or by others, so that what follows has to follow soon.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.need.slots() > self.leased() || self.others > 0 && self.leased() > 0
    }

    /// Returns `true` while it is on the waiting list.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.known_want > self.leased()
    }

    /// Returns the next instant at which a question may be due though nothing has changed; `None` if there is none.
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

/// Returns the number of slots that each of `gateways` may use while the ledger is away: an equal part, and at least one,
/// so that requests go on. It is one if it is not known how many gateways there are.
#[must_use]
pub fn fallback(slots: u32, gateways: Option<u32>) -> u32 {
    let part = gateways.map_or(1, |gateways| slots / gateways.max(1));
    part.max(1).min(slots)
}

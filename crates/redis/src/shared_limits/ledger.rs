//! The ledger of one endpoint's slots: a model in Rust of the script that runs in Redis.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ask, Grant};

/// A record of the slots of one endpoint, of the gateways that have leased some, and of the gateways that wait for
/// some. Times are milliseconds of the ledger's own clock.
///
/// Free slots go to the gateways on the waiting list, in equal parts, beginning with the gateway that has waited for
/// the longest time. A gateway that wants more than its part goes back to the end of the list.
///
/// In production, a script in Redis keeps the ledger by the same rules. This model is for tests and simulations.
#[derive(Debug, Clone, Default)]
pub struct Ledger<K: Ord + Clone> {
    members: BTreeMap<K, Member>,
    /// The waiting list: gateways by their number, the lowest of which has waited for the longest time.
    queue: BTreeMap<u64, K>,
    /// The configured number of slots of each gateway, sorted by that number, so that the first one is the limit.
    limits: BTreeSet<(u32, K)>,
    leased: u32,
    /// The number of slots that gateways on the waiting list still want.
    asked: u32,
    last_number: u64,
    last_version: u64,
    /// `true` if the ledger has told a gateway with slots that the other gateways want none of them. A shortage must
    /// then be announced to the gateways that hold slots.
    told_none: bool,
    /// A lower bound of the times at which leases end. Until then, the search for expired leases is skipped.
    first_end: u64,
}

#[derive(Debug, Clone)]
struct Member {
    seq: u64,
    slots: u32,
    want: u32,
    limit: u32,
    until: u64,
    version: u64,
    number: Option<u64>,
}

impl Member {
    fn ask(&self) -> u32 {
        self.want.saturating_sub(self.slots)
    }
}

impl<K: Ord + Clone> Ledger<K> {
    /// Returns the number of slots that are leased at `now`.
    #[must_use]
    pub fn leased(&self, now: u64) -> u32 {
        let live = self.members.values().filter(|it| it.until > now);
        live.map(|it| it.slots).sum()
    }

    /// Returns the number of slots that a gateway has leased at `now`.
    #[must_use]
    pub fn leased_by(&self, who: &K, now: u64) -> u32 {
        let member = self.members.get(who).filter(|it| it.until > now);
        member.map_or(0, |it| it.slots)
    }

    /// Answers a question of the gateway `who`, and lets its lease end at `now + lease`. Returns the answer, and the
    /// notices for other gateways. A question that is older than the latest one of this gateway changes nothing, and is
    /// only answered.
    pub fn answer(&mut self, who: &K, ask: &Ask, lease: u64, now: u64) -> (Grant, Vec<(K, Grant)>) {
        self.remove_expired(now);
        let mut told = BTreeSet::new();
        let is_late = |it: &Member| ask.seq <= it.seq;
        if !self.members.get(who).is_some_and(is_late) {
            self.note(who, ask, now + lease);
            self.hand_out(&mut told);
            self.give_ahead(who, ask.ahead);
            self.recall(&mut told);
            told.remove(who);
        }
        let grant = self.grant(who);
        let notices = told.into_iter().map(|who| {
            let grant = self.grant(&who);
            (who, grant)
        });
        let notices = notices.collect();
        let is_gone = |it: &Member| it.slots == 0 && it.want == 0;
        if self.members.get(who).is_some_and(is_gone) {
            self.remove(who);
        }
        (grant, notices)
    }

    /// Returns the number of slots of the endpoint, which is the lowest number that any gateway is configured with.
    fn limit(&self) -> u32 {
        self.limits.first().map_or(0, |&(limit, _)| limit)
    }

    fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    /// Records the settings of a question: the gateway returns the slots beyond `ask.keep`, and waits for the slots
    /// that it still wants.
    fn note(&mut self, who: &K, ask: &Ask, until: u64) {
        self.first_end = self.first_end.min(until);
        let version = self.next_version();
        let old = self.members.remove(who);
        let (slots, mut number) = old.as_ref().map_or((0, None), |it| (it.slots, it.number));
        self.asked -= old.as_ref().map_or(0, Member::ask);
        if let Some(old) = &old {
            self.limits.remove(&(old.limit, who.clone()));
        }
        let kept = slots.min(ask.keep);
        self.leased -= slots - kept;
        let member = Member {
            seq: ask.seq,
            slots: kept,
            want: ask.want.max(kept),
            limit: ask.slots,
            until,
            version,
            number: None,
        };
        // A gateway that returns slots for others goes to the end of the list, behind the gateways that already wait.
        if let Some(old) = number.filter(|_| kept < slots || member.ask() == 0) {
            self.queue.remove(&old);
            number = None;
        }
        if member.ask() > 0 && number.is_none() {
            number = Some(self.enqueue(who));
        }
        self.asked += member.ask();
        self.limits.insert((ask.slots, who.clone()));
        self.members
            .insert(who.clone(), Member { number, ..member });
    }

    fn enqueue(&mut self, who: &K) -> u64 {
        self.last_number += 1;
        self.queue.insert(self.last_number, who.clone());
        self.last_number
    }

    /// Distributes the free slots among the gateways that wait.
    fn hand_out(&mut self, told: &mut BTreeSet<K>) {
        while let free @ 1.. = self.free() {
            // At least one gateway waits while the list is not empty, so the divisor below is at least 1.
            let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
            let Some((_, who)) = self.queue.pop_first() else {
                return;
            };
            let given = self.give(&who, free.div_ceil(waiting));
            debug_assert!(given > 0, "it waits for a slot");
            let asks = self.members.get(&who).is_some_and(|it| it.ask() > 0);
            let number = asks.then(|| self.enqueue(&who));
            if let Some(member) = self.members.get_mut(&who) {
                member.number = number;
            }
            told.insert(who);
        }
    }

    /// Gives a gateway slots beyond its wish, as far as slots are free. Slots are free only if all other gateways have
    /// enough.
    fn give_ahead(&mut self, who: &K, ahead: u32) {
        let free = self.free();
        if let Some(member) = self.members.get_mut(who).filter(|_| free > 0) {
            member.want += ahead.min(free);
            self.asked += ahead.min(free);
            self.give(who, free);
        }
    }

    fn free(&self) -> u32 {
        self.limit().saturating_sub(self.leased)
    }

    /// Gives a gateway up to `most` of the slots that it wants. Returns the number of slots given.
    fn give(&mut self, who: &K, most: u32) -> u32 {
        let version = self.next_version();
        let Some(member) = self.members.get_mut(who) else {
            return 0;
        };
        let given = member.ask().min(most);
        member.slots += given;
        member.version = version;
        self.leased += given;
        self.asked -= given;
        given
    }

    /// Notifies all gateways with slots of a shortage, if at least one of them may believe that the others have enough.
    fn recall(&mut self, told: &mut BTreeSet<K>) {
        let is_short = self.asked > 0 || self.leased > self.limit();
        if !is_short || !self.told_none {
            return;
        }
        self.told_none = false;
        let version = self.next_version();
        for (who, member) in self.members.iter_mut().filter(|(_, it)| it.slots > 0) {
            member.version = version;
            told.insert(who.clone());
        }
    }

    fn grant(&mut self, who: &K) -> Grant {
        let Some(member) = self.members.get(who) else {
            return Grant {
                slots: 0,
                version: self.last_version,
                others: self.asked,
                fair: self.fair(),
            };
        };
        let excess = self.leased.saturating_sub(self.limit());
        let others = self.asked - member.ask() + excess;
        self.told_none |= others == 0 && member.slots > 0;
        Grant {
            slots: member.slots,
            version: member.version,
            others,
            fair: self.fair(),
        }
    }

    /// Returns an equal part of the slots, rounded down.
    fn fair(&self) -> u32 {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.limit() / members.max(1)
    }

    fn remove_expired(&mut self, now: u64) {
        // Returns early while even the first lease is valid, because most questions find no expired lease.
        if now < self.first_end {
            return;
        }
        let members = self.members.iter();
        let expired = members.filter(|(_, it)| it.until <= now);
        for who in expired.map(|(who, _)| who.clone()).collect::<Vec<_>>() {
            self.remove(&who);
        }
        let ends = self.members.values().map(|it| it.until);
        self.first_end = ends.min().unwrap_or(u64::MAX);
    }

    fn remove(&mut self, who: &K) {
        if let Some(member) = self.members.remove(who) {
            self.leased -= member.slots;
            self.asked -= member.ask();
            self.limits.remove(&(member.limit, who.clone()));
            if let Some(number) = member.number {
                self.queue.remove(&number);
            }
        }
    }
}

//! Lanes, and which of them a freed slot can serve.
//!
//! Asking every lane after every release would make one release as slow as there are models waiting. Lanes
//! of one discipline that the same pools can serve form a group. A group knows the best head of its lanes, a
//! pool knows its groups, and when one lane of a group finds every slot busy, so would the others.
//!
//! Turns of two disciplines are not comparable: one counts arrivals, another shares, a third deadlines. So each
//! discipline names its best of those whom a slot can serve, and of these, within a level, the one who came first
//! goes first.

use std::collections::HashMap;
use std::hash::Hash;

use slab::Slab;

use super::capacity::{Pool, Pools, Section};
use super::chairs::Chairs;
use super::discipline::{Queue, Standing, Turn, forecast};
use super::heap::Heap;
use super::{Discipline, RoomConfig};

/// The order over lanes of one discipline: level first, then the discipline's turn. Words throughout: with a byte
/// in between, a copy has to wait until what it copies is written.
pub(crate) type Rank = (u64, Turn);

#[derive(Debug)]
struct Lane<L> {
    key: L,
    section: Section,
    group: u32,
    /// Its number among the lanes of its group.
    member: u32,
    levels: Box<[Queue]>,
    head: Option<Head>,
}

/// Who goes next in a lane.
#[derive(Debug, Clone, Copy)]
struct Head {
    at: u32,
    level: u8,
}

#[derive(Debug)]
struct Group {
    pools: Pools,
    discipline: Discipline,
    lanes: Slab<u32>,
    order: Heap<Rank>,
    /// The pump that last found it busy.
    blocked_in: u64,
    /// The pump that last gave it a second look since it was last served.
    looked_again_in: u64,
    /// By level, where tenants take turns; else there are none.
    rounds: Box<[Round]>,
}

impl Group {
    fn best_rank(&self) -> Option<&Rank> {
        self.order.first().map(|(rank, _)| rank)
    }
}

/// Where the tenants of one level are in their round, over all lanes of a group.
///
/// Groups have their own: in one clock for all, whoever came to a slow group would line up behind
/// everything that the fast ones had served meanwhile.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The virtual time: how much service a tenant that never stopped waiting has had.
    served: u128,
    waiting: usize,
}

/// The groups that a pump looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope {
    /// Those that a slot that came back can serve.
    Pool(Pool),
    /// Those, and the one of an arrival that found the slot.
    Claim(Pool, u32),
    All,
}

impl Scope {
    /// Whether one slot of `pool` is all that it is about.
    pub(crate) fn is_about(self, pool: Pool) -> bool {
        match self {
            Self::Pool(one) | Self::Claim(one, _) => one == pool,
            Self::All => false,
        }
    }
}

/// The best waiter that a pump has not yet found blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best {
    pub(crate) at: u32,
    pub(crate) group: u32,
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes<L> {
    by_key: HashMap<L, u32>,
    lanes: Slab<Lane<L>>,
    /// The lane of the latest arrival, which is often that of the next one.
    latest: u32,
    /// The only lane, as long as it has always been. Nobody competes with it, so that its standing in its group
    /// need not be kept up to date.
    alone: Option<u32>,
    occupied: usize,
    /// The groups of lanes that exactly these pools can serve: one for each discipline.
    by_pools: HashMap<Pools, Vec<u32>>,
    groups: Slab<Group>,
    /// The groups that each pool can serve.
    by_pool: Vec<Vec<u32>>,
    /// The pump that last found any group busy.
    blocked_in: u64,
    /// Where the rounds of a new group begin.
    base: u128,
    /// How many turns were given out.
    turns: u64,
    levels: usize,
    discipline: Discipline,
    /// Whether any of them waits in a section with chairs of its own.
    limited: bool,
}

impl<L> Lane<L> {
    #[inline]
    fn first<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        self.levels.iter().find_map(|queue| queue.head(chairs))
    }
}

/// The number of no pump, to which no group is blocked.
const NO_PUMP: u64 = u64::MAX;
const NOT_BLOCKED: u64 = 0;

/// Empty lanes are kept for their next waiter, up to as many as are occupied and these.
const SPARE_LANES: usize = 64;

impl<L: Clone + Eq + Hash> Lanes<L> {
    pub(crate) fn new(config: &RoomConfig) -> Self {
        Self {
            by_key: HashMap::new(),
            lanes: Slab::new(),
            latest: 0,
            alone: None,
            occupied: 0,
            by_pools: HashMap::new(),
            groups: Slab::new(),
            by_pool: Vec::new(),
            blocked_in: NOT_BLOCKED,
            base: 0,
            turns: 0,
            levels: config.levels.count(),
            discipline: config.discipline,
            limited: false,
        }
    }

    /// Begins anew, with nobody in line, and gives the old lanes back. All rounds are at the same point now.
    pub(crate) fn renew(&mut self, config: &RoomConfig) -> Self {
        let rounds = self.groups.iter().flat_map(|(_, group)| &group.rounds);
        let latest = rounds.map(|round| round.served).max();
        let new = Self {
            base: latest.unwrap_or(self.base),
            turns: self.turns,
            ..Self::new(config)
        };
        std::mem::replace(self, new)
    }

    /// How far the waiter's tenant has come: as far behind the others as it was in the `old` lanes.
    pub(crate) fn standing_from<T>(
        &self,
        old: &Self,
        chairs: &Chairs<T>,
        at: u32,
    ) -> Option<Standing> {
        let place = chairs.place(at);
        let (lane, level) = (&old.lanes[place.lane as usize], usize::from(place.level));
        let Standing { start, turn } = lane.levels[level].standing(chairs, at)?;
        let behind = old.groups[lane.group as usize].rounds[level].served - start;
        let start = self.base - behind;
        Some(Standing { start, turn })
    }

    /// Lines up the waiter on chair `at`, in a lane whose pools and section are asked for if it is new.
    #[inline]
    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        key: L,
        ask: impl FnOnce(&L) -> (Pools, Section),
        standing: Option<Standing>,
        config: &RoomConfig,
    ) {
        let lane = match self.lanes.get(self.latest as usize) {
            Some(lane) if lane.key == key => self.latest,
            _ => match self.by_key.get(&key) {
                Some(&lane) => lane,
                None => self.open(chairs, key, ask),
            },
        };
        self.latest = lane;
        chairs.place_mut(at).lane = lane;
        self.line_up(chairs, at, standing, config);
    }

    /// Lines up a waiter whose level changed in the lane that it was in.
    pub(crate) fn push_again<T>(&mut self, chairs: &mut Chairs<T>, at: u32, config: &RoomConfig) {
        self.line_up(chairs, at, None, config);
    }

    #[inline]
    fn line_up<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        standing: Option<Standing>,
        config: &RoomConfig,
    ) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        let start = self.join_round(self.lanes[lane as usize].group, level);
        self.turns += 1;
        let turn = self.turns;
        let standing = standing.unwrap_or(Standing { start, turn });
        let queue = &mut self.lanes[lane as usize].levels[level];
        if queue.push(chairs, at, standing, config) {
            self.refresh(chairs, lane, level);
        }
    }

    /// One more waits in the group. The first to do so finds the round where competitors have it by now.
    #[inline]
    fn join_round(&mut self, group: u32, level: usize) -> u128 {
        let groups = &self.groups;
        let Some(&(mut round)) = groups[group as usize].rounds.get(level) else {
            return 0;
        };
        if round.waiting == 0 {
            let pools = groups[group as usize].pools.iter();
            let competitors = pools
                .flat_map(|&pool| self.groups_on(pool))
                .filter_map(|&other| groups[other as usize].rounds.get(level))
                .filter(|round| round.waiting > 0);
            let served = competitors.map(|round| round.served).max().unwrap_or(0);
            round.served = round.served.max(served);
        }
        round.waiting += 1;
        self.groups[group as usize].rounds[level] = round;
        round.served
    }

    /// Takes out a waiter that got a slot.
    #[inline]
    pub(crate) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        self.turns += 1;
        let due = self.lanes[lane as usize].levels[level].serve(chairs, at, self.turns);
        if let Some(round) = self.round_mut(lane, level) {
            round.waiting -= 1;
            round.served = round.served.max(due);
        }
        self.refresh(chairs, lane, level);
    }

    /// Takes out a waiter for any other reason.
    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        let Lane { levels, head, .. } = &mut self.lanes[lane as usize];
        let queue = &mut levels[level];
        queue.remove(chairs, at);
        let may_matter = queue.depends_on_others() || head.is_some_and(|head| head.at == at);
        if let Some(round) = self.round_mut(lane, level) {
            round.waiting -= 1;
        }
        if may_matter {
            self.refresh(chairs, lane, level);
        }
    }

    /// Takes out a waiter that will be put back.
    pub(crate) fn set_aside<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        self.lanes[lane as usize].levels[level].set_aside(chairs, at);
        self.refresh(chairs, lane, level);
    }

    /// Puts back a waiter that was set aside.
    pub(crate) fn put_back<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        if self.lanes[lane as usize].levels[level].put_back(chairs, at) {
            self.refresh(chairs, lane, level);
        }
    }

    /// The group that a lane belongs to.
    #[inline]
    pub(crate) fn group_at(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].group
    }

    /// Whether anybody may wait in a section with chairs of its own.
    #[inline]
    pub(crate) fn are_limited(&self) -> bool {
        self.limited
    }

    /// The section that a lane waits in.
    #[inline]
    pub(crate) fn section_at(&self, lane: u32) -> Section {
        self.lanes[lane as usize].section
    }

    #[inline]
    fn round_mut(&mut self, lane: u32, level: usize) -> Option<&mut Round> {
        let group = self.group_at(lane);
        self.groups[group as usize].rounds.get_mut(level)
    }

    /// The best waiter of all.
    #[inline]
    pub(crate) fn first<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        match self.alone {
            Some(lane) => self.lanes[lane as usize].first(chairs),
            None => Some(self.best(chairs, Scope::All, NO_PUMP)?.at),
        }
    }

    /// The best waiter of the groups in `scope` that pump number `pump` has not found busy.
    #[inline]
    pub(crate) fn best<T>(&self, chairs: &Chairs<T>, scope: Scope, pump: u64) -> Option<Best> {
        if let Some(lane) = self.alone {
            return self.best_alone(chairs, lane, scope, pump);
        }
        match scope {
            // Nearly every release is about a pool that one group waits for.
            Scope::Pool(pool) => match *self.groups_on(pool) {
                [only] if self.groups[only as usize].blocked_in == pump => None,
                [only] => self.best_in(only),
                ref groups => self.best_of(chairs, groups.iter().copied(), pump),
            },
            Scope::Claim(pool, group) => {
                let groups = self.groups_on(pool).iter().copied();
                self.best_of(chairs, groups.chain(std::iter::once(group)), pump)
            }
            Scope::All => {
                let groups = self.groups.iter().map(|(group, _)| group as u32);
                self.best_of(chairs, groups, pump)
            }
        }
    }

    /// The best waiters of the disciplines that `best` is not of, over all groups that pump number `pump` has
    /// not found busy.
    pub(crate) fn rivals(&self, best: Best, pump: u64) -> Vec<Best> {
        let all = self.groups.iter().map(|(group, _)| group as u32);
        let bests = self.bests_of(all, pump).into_iter().flatten();
        bests
            .filter(|&(_, group)| group != best.group)
            .filter_map(|(_, group)| self.best_in(group))
            .collect()
    }

    /// Notes that pump number `pump` found the group busy.
    pub(crate) fn block(&mut self, group: u32, pump: u64) {
        self.groups[group as usize].blocked_in = pump;
        self.blocked_in = pump;
    }

    /// Clears the way for groups that pump number `pump` found busy just before `pool` got a free slot, if
    /// their heads go before `best`. Says whether there was one.
    ///
    /// Each gets one second look, or a group that is busy beside a free slot of its pools would be asked
    /// for ever.
    #[inline]
    pub(crate) fn unblock_better<T>(
        &mut self,
        chairs: &Chairs<T>,
        pool: Pool,
        best: Best,
        pump: u64,
    ) -> bool {
        if self.blocked_in != pump {
            return false;
        }
        let mut any = false;
        for nth in 0..self.groups_on(pool).len() {
            let index = self.groups_on(pool)[nth];
            let group = &self.groups[index as usize];
            if group.blocked_in == pump
                && group.looked_again_in != pump
                && self.goes_before(chairs, index, best.group)
            {
                let group = &mut self.groups[index as usize];
                group.blocked_in = NOT_BLOCKED;
                group.looked_again_in = pump;
                any = true;
            }
        }
        any
    }

    /// Notes that a waiter of the group is served.
    #[inline]
    pub(crate) fn progress(&mut self, group: u32) {
        self.groups[group as usize].looked_again_in = NOT_BLOCKED;
    }

    /// The waiters that compete with those of `lane`, in the order in which they would be served.
    pub(crate) fn forecast<T>(&self, chairs: &Chairs<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        let groups = &self.by_pools[&group.pools];
        let of_group = |group: u32, level: usize| {
            let mut strands = Vec::new();
            for (_, &lane) in &self.groups[group as usize].lanes {
                self.lanes[lane as usize].levels[level].strands(chairs, &mut strands);
            }
            forecast(chairs, strands, self.turns)
        };
        let of_level = |level: usize| {
            let orders = groups.iter().map(|&group| of_group(group, level));
            merge(chairs, orders.collect())
        };
        (0..self.levels).flat_map(of_level).collect()
    }

    #[inline]
    fn groups_on(&self, pool: Pool) -> &[u32] {
        self.by_pool.get(pool.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn best_of<T>(
        &self,
        chairs: &Chairs<T>,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> Option<Best> {
        let bests = self.bests_of(groups, pump).into_iter().flatten();
        let before = |a, b| self.goes_before(chairs, a, b);
        let of_each = bests.map(|(_, group)| group);
        let group = of_each.reduce(|a, b| if before(b, a) { b } else { a })?;
        self.best_in(group)
    }

    #[inline]
    fn best_in(&self, group: u32) -> Option<Best> {
        let at = self.head_of(&self.groups[group as usize])?.at;
        Some(Best { at, group })
    }

    /// The best waiter of the only lane.
    #[inline]
    fn best_alone<T>(
        &self,
        chairs: &Chairs<T>,
        lane: u32,
        scope: Scope,
        pump: u64,
    ) -> Option<Best> {
        let lane = &self.lanes[lane as usize];
        let group = lane.group;
        let is_in_scope = match scope {
            Scope::Pool(pool) => self.groups_on(pool).contains(&group),
            Scope::Claim(..) | Scope::All => true,
        };
        if !is_in_scope || self.groups[group as usize].blocked_in == pump {
            return None;
        }
        let at = lane.first(chairs)?;
        Some(Best { at, group })
    }

    /// The group with the best waiter of each discipline.
    #[inline]
    fn bests_of(
        &self,
        groups: impl Iterator<Item = u32>,
        pump: u64,
    ) -> [Option<(&Rank, u32)>; Discipline::COUNT] {
        let mut bests: [Option<(&Rank, u32)>; Discipline::COUNT] = [None; Discipline::COUNT];
        for index in groups {
            let group = &self.groups[index as usize];
            if group.blocked_in == pump {
                continue;
            }
            let Some((rank, _)) = group.order.first() else {
                continue;
            };
            let best = &mut bests[group.discipline as usize];
            if best.is_none_or(|(least, _)| rank < least) {
                *best = Some((rank, index));
            }
        }
        bests
    }

    /// The best waiter of a group.
    #[inline]
    fn head_of(&self, group: &Group) -> Option<&Head> {
        let (_, member) = group.order.first()?;
        let lane = group.lanes[*member as usize];
        self.lanes[lane as usize].head.as_ref()
    }

    /// Whether the best waiter of group `a` goes before that of group `b`.
    fn goes_before<T>(&self, chairs: &Chairs<T>, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|group| &self.groups[group as usize]);
        if a.discipline == b.discipline {
            let ranks = a.best_rank().zip(b.best_rank());
            return ranks.is_some_and(|(first, second)| first < second);
        }
        let [Some(first), Some(second)] = [a, b].map(|group| self.head_of(group)) else {
            return false;
        };
        let key = |head: &Head| (head.level, chairs.place(head.at).came());
        key(first) < key(second)
    }

    /// Brings the lane's standing in its group up to date after a change in one of its levels, if anybody asks
    /// for it.
    #[inline]
    fn refresh<T>(&mut self, chairs: &Chairs<T>, lane: u32, changed: usize) {
        if self.alone.is_none() {
            self.reorder(chairs, lane, changed);
        }
    }

    fn reorder<T>(&mut self, chairs: &Chairs<T>, index: u32, changed: usize) {
        let lane = &mut self.lanes[index as usize];
        if lane
            .head
            .is_some_and(|head| usize::from(head.level) < changed)
        {
            return;
        }
        let order = &mut self.groups[lane.group as usize].order;
        let was_occupied = lane.head.is_some();
        // The head was not above: so nobody is.
        for (level, queue) in (changed..).zip(&lane.levels[changed..]) {
            if let Some(at) = queue.head(chairs) {
                order.set(lane.member, (level as u64, queue.turn(chairs, at)));
                let level = level as u8;
                lane.head = Some(Head { at, level });
                self.occupied += usize::from(!was_occupied);
                return;
            }
        }
        order.remove(lane.member);
        lane.head = None;
        self.occupied -= usize::from(was_occupied);
    }

    #[cold]
    #[inline(never)]
    fn open<T>(
        &mut self,
        chairs: &Chairs<T>,
        key: L,
        ask: impl FnOnce(&L) -> (Pools, Section),
    ) -> u32 {
        if let Some(other) = self.alone.take() {
            self.refresh(chairs, other, 0);
        }
        if self.lanes.len() >= 2 * self.occupied + SPARE_LANES {
            self.close_empty_lanes();
        }
        let (pools, section) = ask(&key);
        let discipline = section.discipline.unwrap_or(self.discipline);
        self.limited |= section.chairs.is_some();
        let group = self.group_of(pools, discipline);
        let lane = self.lanes.vacant_key() as u32;
        let member = self.groups[group as usize].lanes.insert(lane) as u32;
        self.lanes.insert(Lane {
            key: key.clone(),
            section,
            group,
            member,
            levels: (0..self.levels).map(|_| Queue::new(discipline)).collect(),
            head: None,
        });
        self.by_key.insert(key, lane);
        self.alone = (self.lanes.len() == 1).then_some(lane);
        lane
    }

    fn group_of(&mut self, pools: Pools, discipline: Discipline) -> u32 {
        let alike = self.by_pools.entry(pools.clone()).or_default();
        let is_of = |group: &&u32| self.groups[**group as usize].discipline == discipline;
        if let Some(&group) = alike.iter().find(is_of) {
            return group;
        }
        let round = Round {
            served: self.base,
            waiting: 0,
        };
        let rounds = match discipline {
            Discipline::Fair => self.levels,
            _ => 0,
        };
        let group = self.groups.insert(Group {
            pools: pools.clone(),
            discipline,
            lanes: Slab::new(),
            order: Heap::new(),
            blocked_in: NOT_BLOCKED,
            looked_again_in: NOT_BLOCKED,
            rounds: vec![round; rounds].into(),
        }) as u32;
        alike.push(group);
        for pool in pools.iter().map(|pool| pool.0 as usize) {
            if pool >= self.by_pool.len() {
                self.by_pool.resize_with(pool + 1, Vec::new);
            }
            self.by_pool[pool].push(group);
        }
        group
    }

    fn close_empty_lanes(&mut self) {
        let (groups, by_key) = (&mut self.groups, &mut self.by_key);
        self.lanes.retain(|_, lane| {
            if lane.head.is_none() {
                groups[lane.group as usize]
                    .lanes
                    .remove(lane.member as usize);
                by_key.remove(&lane.key);
            }
            lane.head.is_some()
        });
        let (by_pools, by_pool) = (&mut self.by_pools, &mut self.by_pool);
        groups.retain(|index, group| {
            if group.lanes.is_empty() {
                if let Some(alike) = by_pools.get_mut(&group.pools) {
                    alike.retain(|&other| other != index as u32);
                    if alike.is_empty() {
                        by_pools.remove(&group.pools);
                    }
                }
                for pool in group.pools.iter() {
                    by_pool[pool.0 as usize].retain(|&other| other != index as u32);
                }
            }
            !group.lanes.is_empty()
        });
    }
}

/// The order over all disciplines, of the orders within each: whoever came first of the next of each.
fn merge<T>(chairs: &Chairs<T>, orders: Vec<Vec<u32>>) -> Vec<u32> {
    let mut orders: Vec<_> = orders
        .into_iter()
        .map(|order| order.into_iter().peekable())
        .collect();
    let came = |next: Option<&u32>| next.map(|&at| chairs.place(at).came());
    std::iter::from_fn(|| {
        let waiting = orders.iter_mut().filter_map(|order| {
            let came = came(order.peek())?;
            Some((came, order))
        });
        let (_, first) = waiting.min_by_key(|&(came, _)| came)?;
        first.next()
    })
    .collect()
}

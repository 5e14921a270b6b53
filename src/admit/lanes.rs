//! Lanes, and which of them a freed slot can serve.
//!
//! Asking every lane after every release would make one release as slow as there are models waiting. Lanes
//! of one discipline that the same pools can serve form a group. A group knows the best head of its lanes, a
//! pool knows its groups, and when one lane of a group finds every slot busy, so would the others.

mod best;
mod express;
mod forecast;
mod opening;

use std::collections::HashMap;
use std::hash::Hash;

use slab::Slab;

use super::capacity::{Partition, PoolId, PoolSet};
use super::chairs::Chairs;
use super::discipline::{Queue, Standing, Turn};
use super::heap::Heap;
use super::{Discipline, WaitingRoomConfig};

pub(crate) use best::{Best, NO_PUMP, Scope};

/// The order over lanes of one discipline: level first, then the discipline's turn. Words throughout: with a byte
/// in between, a copy has to wait until what it copies is written.
pub(crate) type Rank = (u64, Turn);

#[derive(Debug)]
struct Lane<L> {
    key: L,
    section: Partition,
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
    pools: PoolSet,
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
    by_pools: HashMap<PoolSet, Vec<u32>>,
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

/// The number of no pump, of a group that none has found busy.
const NOT_BLOCKED: u64 = 0;

impl<L: Clone + Eq + Hash> Lanes<L> {
    pub(crate) fn new(config: &WaitingRoomConfig) -> Self {
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
    pub(crate) fn renew(&mut self, config: &WaitingRoomConfig) -> Self {
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

    /// The lane of this key, whose pools and section are asked for if it is new.
    #[inline]
    pub(crate) fn lane_of<T>(
        &mut self,
        chairs: &Chairs<T>,
        key: L,
        ask: impl FnOnce(&L) -> (PoolSet, Partition),
    ) -> u32 {
        let lane = match self.lanes.get(self.latest as usize) {
            Some(lane) if lane.key == key => self.latest,
            _ => match self.by_key.get(&key) {
                Some(&lane) => lane,
                None => self.open(chairs, key, ask),
            },
        };
        self.latest = lane;
        lane
    }

    /// Lines up the waiter on chair `at`.
    #[inline]
    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        lane: u32,
        standing: Option<Standing>,
        config: &WaitingRoomConfig,
    ) {
        chairs.place_mut(at).lane = lane;
        self.line_up(chairs, at, standing, config);
    }

    /// Gives back memory that the waiters of now do not need. Their order stays.
    pub(crate) fn trim<T>(&mut self, chairs: &mut Chairs<T>) {
        for (_, lane) in &mut self.lanes {
            lane.levels.iter_mut().for_each(|queue| queue.trim(chairs));
        }
    }

    /// Lines up a waiter whose level changed in the lane that it was in.
    pub(crate) fn push_again<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        config: &WaitingRoomConfig,
    ) {
        self.line_up(chairs, at, None, config);
    }

    #[inline]
    fn line_up<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        standing: Option<Standing>,
        config: &WaitingRoomConfig,
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
    pub(crate) fn skip<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        self.lanes[lane as usize].levels[level].skip(chairs, at);
        self.refresh(chairs, lane, level);
    }

    /// Puts back a waiter that was set aside.
    pub(crate) fn restore<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        if self.lanes[lane as usize].levels[level].restore(chairs, at) {
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
    pub(crate) fn section_at(&self, lane: u32) -> Partition {
        self.lanes[lane as usize].section
    }

    #[inline]
    fn round_mut(&mut self, lane: u32, level: usize) -> Option<&mut Round> {
        let group = self.group_at(lane);
        self.groups[group as usize].rounds.get_mut(level)
    }

    #[inline]
    fn groups_on(&self, pool: PoolId) -> &[u32] {
        self.by_pool.get(pool.0 as usize).map_or(&[], Vec::as_slice)
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
}

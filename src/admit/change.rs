//! Changing the room while requests wait in it.

use std::collections::HashMap;
use std::time::Instant;

use super::alarm::Alarms;
use super::chairs::Came;
use super::ends::Ends;
use super::lanes::Scope;
use super::line::ByLevel;
use super::nanos::Nanos;
use super::patience::longest_wait;
use super::room::WaitingRoom;
use super::sections::Sections;
use super::{
    Capacity, Partition, PoolSet, Priority, PriorityLevels, RejectReason, WaitingRoomConfig,
    WakeList,
};

/// A waiter, and the lane that is its from now on.
struct Moving<C: Capacity> {
    came: Came,
    at: u32,
    lane: C::Lane,
    pools: PoolSet,
    section: Partition,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Nobody may wait any more: everyone who does is answered, and so is everyone who comes.
    pub fn close(&mut self, woken: &mut WakeList<W>) {
        self.closed = true;
        for at in self.latest_first() {
            self.answer(at, RejectReason::ShuttingDown, woken);
        }
    }

    /// Furnishes the room anew. Everyone moves over in order; those who no longer fit are answered, the
    /// latest of the lowest level first.
    ///
    /// A level keeps its waiters by name; those of a name that is gone get the default level.
    pub fn reconfigure(
        &mut self,
        capacity: &C,
        config: WaitingRoomConfig,
        now: Instant,
        woken: &mut WakeList<W>,
    ) {
        let now = self.epoch.nanos(now);
        self.catch_up(now, woken);
        let everyone = self.ask_lanes(capacity);
        let old = std::mem::replace(&mut self.config, config).levels;
        let new = self.config.levels.clone();
        self.chairs.longest_wait = longest_wait(&self.config);
        if self.measures_waits() {
            self.chairs.date(now);
        }
        self.move_over(everyone, now, |priority| rename(&old, &new, priority));
        self.catch_up(now, woken);
        self.send_away(woken);
        self.pump(capacity, Scope::All, woken);
    }

    /// The capacity's lanes, pools or sections changed: everyone moves to the lane that is theirs now. Those
    /// who no longer fit in their section are answered, the latest of its lowest level first.
    pub fn on_capacity_changed(&mut self, capacity: &C, now: Instant, woken: &mut WakeList<W>) {
        let now = self.epoch.nanos(now);
        self.catch_up(now, woken);
        let everyone = self.ask_lanes(capacity);
        self.move_over(everyone, now, |priority| priority);
        self.send_away_from_sections(woken);
        self.pump(capacity, Scope::All, woken);
    }

    /// Everyone who waits, in the order of arrival, and what the capacity says of their lanes now. It is asked before
    /// anything is changed, because it may panic.
    fn ask_lanes(&self, capacity: &C) -> Vec<Moving<C>> {
        let mut known: HashMap<C::Lane, (PoolSet, Partition)> = HashMap::new();
        let waiting = self.chairs.waiting();
        let mut everyone: Vec<Moving<C>> = waiting
            .map(|(at, place)| {
                let lane = capacity.lane(&self.chairs.body(at).demand);
                let ask = || (capacity.pools(&lane), capacity.partition(&lane));
                let (pools, section) = known.entry(lane.clone()).or_insert_with(ask).clone();
                Moving {
                    came: place.came(),
                    at,
                    lane,
                    pools,
                    section,
                }
            })
            .collect();
        everyone.sort_unstable_by_key(|moving| moving.came);
        everyone
    }

    fn move_over(
        &mut self,
        everyone: Vec<Moving<C>>,
        now: Nanos,
        rename: impl Fn(Priority) -> Priority,
    ) {
        let old = self.lanes.renew(&self.config);
        self.clear_indices();
        for moving in everyone {
            let at = moving.at;
            let standing = self.lanes.standing_from(&old, &self.chairs, at);
            let place = self.chairs.place_mut(at);
            place.priority = rename(Priority(place.priority)).0;
            let ask = |_: &C::Lane| (moving.pools, moving.section);
            let lane = self.lanes.lane_of(&self.chairs, moving.lane, ask);
            self.line_up(at, lane, standing, now);
        }
    }

    /// Forgets where waiters are found, in all but their lanes.
    pub(super) fn clear_indices(&mut self) {
        self.express = None;
        self.chairs.clear_lists();
        self.arrivals = ByLevel::new(self.config.levels.count());
        self.sections = Sections::new(self.config.levels.count());
        self.tenants = HashMap::new();
        self.ends = Ends::new();
        self.rises = Alarms::default();
        self.waiting = 0;
    }

    fn send_away(&mut self, woken: &mut WakeList<W>) {
        if let Some(most) = self.config.max_size_per_tenant {
            for at in self.latest_first() {
                let tenant = self.chairs.tenant(at);
                if self
                    .tenants
                    .get(tenant)
                    .is_some_and(|&waiting| waiting > most)
                {
                    self.answer(at, RejectReason::TenantFull, woken);
                }
            }
        }
        self.send_away_from_sections(woken);
        let too_many = self.waiting.saturating_sub(self.config.max_size);
        if too_many == 0 {
            return;
        }
        for at in self.latest_first().into_iter().take(too_many) {
            let why = match self.config.max_size {
                0 => RejectReason::Disabled,
                _ => RejectReason::Full,
            };
            self.answer(at, why, woken);
        }
    }

    fn send_away_from_sections(&mut self, woken: &mut WakeList<W>) {
        if !self.sections.any_overfull() {
            return;
        }
        for at in self.latest_first() {
            let section = self.lanes.section_at(self.chairs.place(at).lane);
            if self.sections.is_overfull(section) {
                self.answer(at, RejectReason::Full, woken);
            }
        }
    }
}

fn rename(old: &PriorityLevels, new: &PriorityLevels, priority: Priority) -> Priority {
    new.parse(old.name(priority).as_bytes())
}

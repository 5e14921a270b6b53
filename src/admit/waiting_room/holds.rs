//! The slots that tenants hold, with what they are charged for them.
//!
//! A tenant shares *slots* with others, whatever its requests cost: they may leave early, answer slowly or say nothing of
//! their tokens. So a request is charged its cost, or the time for which it held its slot while others waited if that
//! is clearly more. Slot time counts by the [contended clock](crate::admit::wait_queue) of its pool, and has the price of
//! [`CostRate`]. When its slot is granted, the tenant pays its cost and the time that the costs of its earlier requests
//! left out on average. It pays more while the slot is held, and the rest at the end, however the request ends. What it
//! paid too much comes back at the end.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use slab::Slab;

use super::WaitingRoom;
use crate::admit::flow::{FlowKey, FlowTable};
use crate::admit::nanos::{NEVER, Nanos, seconds, span};
use crate::admit::wait_queue::UNIT;
use crate::admit::{Account, Capacity, Discipline, PoolId, Priority, Share, Tenant, Ticket, ask};

/// The name of a slot that a tenant holds, until its end was [reported](WaitingRoom::end_hold).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldId {
    index: u32,
    /// The number that tells the hold from earlier ones with the same index.
    serial: u64,
}

/// A slot that a tenant holds.
#[derive(Debug)]
struct Hold<L> {
    serial: u64,
    account: Account<L>,
    pool: PoolId,
    began: Nanos,
    /// The contended time of the pool at the grant.
    contended: Nanos,
    /// The cost that is due whatever the time is, in units: that of a ticket that waited, and the charges while other
    /// requests waited.
    cost: i128,
    /// The units that the tenant has paid so far.
    paid: i128,
    /// The cost of its ticket.
    declared: f64,
    /// The whole cost, from which the price of slot time is learned.
    used: f64,
}

impl<L> Hold<L> {
    /// Returns the units that are due after this contended time, at this price.
    fn due(&self, contended: Nanos, rate: f64) -> i128 {
        let time = seconds(contended.saturating_sub(self.contended));
        // The cast saturates, and no real hold comes near the end of the range.
        let by_time = (rate * time * UNIT as f64) as i128;
        match by_time as f64 > TOLERANCE * self.cost as f64 {
            true => by_time,
            false => self.cost,
        }
    }
}

/// The slots that tenants hold, and what their earlier ones taught.
#[derive(Debug)]
pub(super) struct Holds<L> {
    /// `true` if the caller reports the end of each hold.
    is_tracked: bool,
    all: Slab<Hold<L>>,
    serial: u64,
    lanes: HashMap<L, LaneHolds>,
    /// The instant at which the tenants last paid for the slots that they hold.
    settled: Nanos,
}

/// The earlier holds of a lane.
#[derive(Debug, Default)]
struct LaneHolds {
    rate: CostRate,
    /// The mean hold of all tenants, in seconds.
    mean: f64,
    /// The usual hold of each tenant. The tenants whose holds ended last are kept.
    tenants: FlowTable<Nanos, UsualHold>,
    /// The instant at which the last hold ended; 0 before the first.
    ended: Nanos,
    /// The highest cost of the requests that began to wait before the first hold ended.
    first_cost: f64,
}

/// The mean hold of a tenant.
#[derive(Debug, Clone, Copy)]
struct UsualHold {
    /// The time of the hold, in seconds.
    time: f64,
    /// The cost of its ticket.
    declared: f64,
}

/// The price of slot time: the mean cost per second of a slot over ended holds, weighted by cost.
///
/// The plain mean, all cost over all time, would fall with each long hold that costs little, and slot time would cost
/// next to nothing once half of it goes to such holds.
#[derive(Debug, Clone, Copy, Default)]
struct CostRate {
    /// The sum of `cost² / seconds`.
    weighted: f64,
    /// The sum of `cost²`.
    squares: f64,
    /// The sum of the costs.
    cost: f64,
    at: Nanos,
}

/// The time constant with which the price of slot time forgets, in seconds.
const RATE_MEMORY: f64 = 60.0;
/// The shortest time of a hold for the price, in seconds. With shorter ones, the price would be so high that a moment in
/// which a thread did not run would cost as much as many requests.
const SHORTEST: f64 = 0.02;
/// The time that a request may take without being charged for it, in multiples of the time that its cost explains. No service
/// is equally fast from one request to the next.
const TOLERANCE: f64 = 1.5;
/// The cost of a request, in multiples of the typical one, above which it teaches the price of time when it begins to
/// wait. It is large, because costs differ, and a price that was learned so is too high if long requests cost more.
const UNEXPLAINED: f64 = 16.0;
/// The weight of the latest hold in a tenant's mean.
const LATEST: f64 = 0.1;
/// The least time between two payments for slots that are held, in nanoseconds, and the time for each of them. So
/// payments take a small part of a thread, however many slots there are.
const SETTLE_EVERY: Nanos = 10_000_000;
const SETTLE_EACH: Nanos = 10_000;
/// The number of lanes whose earlier holds are remembered. Demands may name any number of lanes.
const MAX_LANES: usize = 256;

impl CostRate {
    /// Returns the price of a second.
    fn per_second(&self) -> f64 {
        match self.cost > 0.0 {
            true => self.weighted / self.cost,
            false => 0.0,
        }
    }

    /// Returns the mean cost of a hold, weighted by cost.
    fn typical_cost(&self) -> f64 {
        match self.cost > 0.0 {
            true => self.squares / self.cost,
            false => 0.0,
        }
    }

    fn add(&mut self, cost: f64, time: f64, now: Nanos) {
        let time = time.max(SHORTEST);
        let left = (-seconds(now.saturating_sub(self.at)) / RATE_MEMORY).exp();
        self.weighted = self.weighted * left + cost * cost / time;
        self.squares = self.squares * left + cost * cost;
        self.cost = self.cost * left + cost;
        self.at = now;
    }
}

impl UsualHold {
    fn add(&mut self, other: Self) {
        self.time += LATEST * (other.time - self.time);
        self.declared += LATEST * (other.declared - self.declared);
    }

    /// Returns the cost of the slot time that the costs of the tickets do not explain, at this price.
    fn unexplained(&self, per_second: f64) -> f64 {
        let by_time = per_second * self.time;
        match by_time > TOLERANCE * self.declared {
            true => by_time - self.declared,
            false => 0.0,
        }
    }
}

impl LaneHolds {
    /// Returns `true` if a cost is far above those of earlier holds, so that they say little about the price of time.
    fn is_far_above(&self, cost: f64) -> bool {
        self.ended > 0 && cost > UNEXPLAINED * self.rate.typical_cost()
    }

    /// Learns from the cost of a request that begins to wait, if it is far above those of earlier holds.
    ///
    /// Otherwise requests that cost little and hold their slots for long, in a lane where no other request has run yet, would
    /// make time so cheap that a costly one waits for as many of them as its cost says.
    fn on_waiting(&mut self, cost: f64, now: Nanos) {
        if self.is_far_above(cost) {
            self.rate.add(cost, self.mean, now);
        } else if self.ended == 0 {
            // The time of a hold is unknown.
            self.first_cost = self.first_cost.max(cost);
        }
    }

    fn on_ended(&mut self, tenant: FlowKey<'_>, cost: f64, hold: UsualHold, now: Nanos) {
        let is_first = self.ended == 0;
        self.mean = match is_first {
            true => hold.time,
            false => self.mean + LATEST * (hold.time - self.mean),
        };
        self.ended = now;
        self.rate.add(cost, hold.time, now);
        if is_first {
            self.on_waiting(self.first_cost, now);
        }
        match self.tenants.find(tenant) {
            Some(index) => {
                self.tenants[index].add(hold);
                self.tenants.set_rank(index, now);
            }
            None => self.tenants.insert_bounded(tenant, now, hold),
        }
    }

    /// Returns the cost of a tenant's request with this cost, and of the slot time that its tickets usually leave out.
    fn cost_of(&self, tenant: FlowKey<'_>, cost: f64) -> f64 {
        let usual = self.tenants.find(tenant).map(|index| self.tenants[index]);
        let per_second = self.rate.per_second();
        cost + usual.map_or(0.0, |usual| usual.unexplained(per_second))
    }
}

impl<L: Clone + Eq + Hash> Holds<L> {
    pub(super) fn new() -> Self {
        Self {
            is_tracked: false,
            all: Slab::new(),
            serial: 0,
            lanes: HashMap::new(),
            settled: 0,
        }
    }

    fn get(&mut self, id: HoldId) -> Option<&mut Hold<L>> {
        let hold = self.all.get_mut(id.index as usize)?;
        (hold.serial == id.serial).then_some(hold)
    }

    fn take(&mut self, id: HoldId) -> Option<Hold<L>> {
        self.get(id)?;
        Some(self.all.remove(id.index as usize))
    }

    fn rate(&self, account: &Account<L>) -> f64 {
        let lane = account.lane.as_ref().and_then(|lane| self.lanes.get(lane));
        lane.map_or(0.0, |lane| lane.rate.per_second())
    }

    fn lane_mut(&mut self, lane: &L) -> &mut LaneHolds {
        if !self.lanes.contains_key(lane) && self.lanes.len() >= MAX_LANES {
            // Forgets the lane whose last hold ended first. This takes O(lanes), and only if more are in use than kept.
            let oldest = self.lanes.iter().min_by_key(|(_, holds)| holds.ended);
            if let Some(oldest) = oldest.map(|(lane, _)| lane.clone()) {
                self.lanes.remove(&oldest);
            }
        }
        self.lanes.entry(lane.clone()).or_default()
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Makes the room charge tenants for the time for which they hold slots, in lanes that tenants share.
    ///
    /// The caller then takes the name of each hold with its slot, and reports its [end](Self::end_hold).
    #[must_use]
    pub fn with_holds(mut self) -> Self {
        self.holds.is_tracked = true;
        self
    }

    /// Raises the cost of a ticket by the price of the slot time that its tenant's tickets usually leave out, so that its
    /// turn comes when its tenant's share allows for another such hold.
    pub(super) fn expect_hold(&self, lane: u32, ticket: &mut Ticket) {
        let Some(lane) = self.queue.fair_lane(lane) else {
            return;
        };
        let Priority(level) = self.base().config.levels.clamp(ticket.priority);
        let flow = (level, &ticket.tenant);
        let expected = self.expected_cost(lane, flow, f64::from(ticket.cost));
        ticket.least_cost = expected.unwrap_or(0);
    }

    /// Returns `true` if a request costs so much more than the earlier ones of its lane that the price of slot time is
    /// unknown, and its wait with it.
    pub(super) fn is_far_above(&self, lane: u32, ticket: &Ticket) -> bool {
        let lane = self.queue.fair_lane(lane);
        let holds = lane.and_then(|lane| self.holds.lanes.get(lane));
        holds.is_some_and(|holds| holds.is_far_above(f64::from(ticket.cost)))
    }

    /// Learns from the cost of a request that begins to wait. A request that is refused teaches nothing. One that leaves soon has
    /// taught: while clients raise the price so, costs say little, and tenants share the slots by time alone.
    pub(super) fn learn_cost(&mut self, lane: u32, cost: u32) {
        let (cost, now) = (f64::from(cost), self.base().clock.now);
        let Some(lane) = self.queue.fair_lane(lane).filter(|_| self.holds.is_tracked) else {
            return;
        };
        match self.holds.lanes.get_mut(lane) {
            Some(holds) => holds.on_waiting(cost, now),
            None => self.holds.lane_mut(lane).on_waiting(cost, now),
        }
    }

    /// Records that the waiter `idx` holds a slot of `pool` from now on.
    pub(super) fn begin_hold_of(&mut self, idx: u32, pool: PoolId) -> Option<HoldId> {
        if !self.holds.is_tracked {
            return None;
        }
        let lane = self.queue.fair_lane(self.queue.lane_of(idx))?.clone();
        let meta = self.waiters().meta(idx);
        let share = Share {
            tenant: meta.tenant().clone(),
            level: meta.level,
            is_counted: false,
            hold: None,
        };
        let (cost, paid) = (meta.own_cost(), meta.cost());
        let id = self.begin_hold(share, lane, pool, (cost as i128, paid as i128));
        self.pay_expected(id);
        Some(id)
    }

    /// Lets the tenant of a hold that begins pay what it is expected to owe by now. Its request waited at the price of its
    /// arrival. A tenant whose requests arrived before their time had a price would get all slots at once otherwise. If that was
    /// too much, the tenant gets it back at the end.
    fn pay_expected(&mut self, id: HoldId) {
        let Some(hold) = self.holds.all.get(id.index as usize) else {
            return;
        };
        let account = &hold.account;
        let Share { tenant, level, .. } = &account.share;
        let lane = account.lane.as_ref();
        let expected =
            lane.and_then(|lane| self.expected_cost(lane, (*level, tenant), hold.declared));
        let more = expected.map_or(0, |cost| i128::from(cost) * UNIT as i128 - hold.paid);
        if more > 0 {
            let account = account.clone();
            self.pay(&account, more);
            self.holds.all[id.index as usize].paid += more;
        }
    }

    /// Returns the cost of a tenant's request with this cost, and of the slot time that its tickets usually leave out.
    /// `None` before any hold of the lane has ended.
    fn expected_cost(
        &self,
        lane: &C::Lane,
        (level, tenant): (u8, &Tenant),
        cost: f64,
    ) -> Option<u32> {
        let holds = self.holds.lanes.get(lane)?;
        let tenant = self.base().weights.key(level, tenant, Discipline::Fair);
        // The cast saturates.
        Some(holds.cost_of(tenant, cost) as u32)
    }

    /// Records that a request that arrives holds a slot from now on.
    pub(super) fn hold_of_arrival(
        &mut self,
        capacity: &C,
        ticket: &Ticket,
        demand: &C::Demand,
        lease: &C::Lease,
    ) -> Option<HoldId> {
        if !self.holds.is_tracked || !self.is_fair() {
            return None;
        }
        let share = Share {
            tenant: ticket.tenant.clone(),
            level: ticket.priority.0,
            is_counted: false,
            hold: None,
        };
        self.begin_hold_of_free_slot((capacity, lease), demand, &share, ticket.cost)
    }

    /// Records that a request holds a slot from now on that it got at once. Its tenant pays for contended time alone.
    /// `cost` is that of its ticket, from which the price of slot time is learned.
    pub(crate) fn begin_hold_at_once(
        &mut self,
        slot: (&C, &C::Lease),
        demand: &C::Demand,
        share: &Share,
        cost: u32,
        now: Instant,
    ) -> Option<HoldId> {
        self.base_mut().clock.set_now(now);
        self.begin_hold_of_free_slot(slot, demand, share, cost)
    }

    fn begin_hold_of_free_slot(
        &mut self,
        (capacity, lease): (&C, &C::Lease),
        demand: &C::Demand,
        share: &Share,
        cost: u32,
    ) -> Option<HoldId> {
        let lane = self.lane(capacity, demand).ok()?;
        let lane = self.queue.fair_lane(lane)?.clone();
        let pool = ask::pool(capacity, lease)?;
        let id = self.begin_hold(share.clone(), lane, pool, (0, 0));
        if let Some(hold) = self.holds.get(id) {
            hold.declared = f64::from(cost.max(1));
            hold.used = hold.declared;
        }
        Some(id)
    }

    fn begin_hold(
        &mut self,
        share: Share,
        lane: C::Lane,
        pool: PoolId,
        (cost, paid): (i128, i128),
    ) -> HoldId {
        let now = self.base().clock.now;
        let contended = self.queue.common.contention.at(pool, now);
        let holds = &mut self.holds;
        holds.serial += 1;
        let serial = holds.serial;
        let lane = Some(lane);
        let index = holds.all.insert(Hold {
            serial,
            account: Account { share, lane },
            pool,
            began: now,
            contended,
            cost: cost * UNIT as i128,
            paid: paid * UNIT as i128,
            declared: cost as f64,
            used: cost as f64,
        }) as u32;
        HoldId { index, serial }
    }

    /// Charges a tenant for a request during or after its service. All waiters keep waiting, but another one may be the
    /// head now.
    pub(crate) fn charge(&mut self, account: &Account<C::Lane>, cost: u32) {
        let is_held = |hold| self.charge_hold(hold, cost);
        if !account.share.hold.is_some_and(is_held) && self.queue.is_contested(account) {
            self.pay(account, i128::from(cost) * UNIT as i128);
        }
    }

    /// Charges the tenant of a hold this much more. Returns `false` if the hold has ended.
    pub fn charge_hold(&mut self, id: HoldId, cost: u32) -> bool {
        let Some(hold) = self.holds.get(id) else {
            return false;
        };
        hold.used += f64::from(cost);
        // Slots that no other request wants are free of charge.
        if self.queue.is_contested(&hold.account) {
            hold.cost += i128::from(cost) * UNIT as i128;
            self.settle(id.index as usize);
        }
        true
    }

    /// Records that a slot comes back. Call it before [`on_release`](Self::on_release), because the slot then goes to the
    /// right tenant.
    pub fn end_hold(&mut self, id: HoldId, now: Instant) {
        self.base_mut().clock.set_now(now);
        self.end_hold_now(id);
    }

    /// Ends a hold at the time of the present event.
    pub(super) fn end_hold_now(&mut self, id: HoldId) {
        let now = self.base().clock.now;
        let Some(hold) = self.holds.take(id) else {
            return;
        };
        let due = self.due(&hold);
        self.pay(&hold.account, due - hold.paid);
        if let Some(lane) = &hold.account.lane {
            let Share { tenant, level, .. } = &hold.account.share;
            let weights = &self.queue.common.base.weights;
            let tenant = weights.key(*level, tenant, Discipline::Fair);
            let usual = UsualHold {
                time: seconds(now.saturating_sub(hold.began)),
                declared: hold.declared,
            };
            let holds = self.holds.lane_mut(lane);
            holds.on_ended(tenant, hold.used, usual, now);
        }
    }

    /// Lets the tenants pay for the contended time of the slots that they hold.
    pub(super) fn settle_holds(&mut self, now: Nanos) {
        let holds = &mut self.holds;
        let every = SETTLE_EVERY.max(SETTLE_EACH * holds.all.len() as Nanos);
        if holds.all.is_empty() || now.saturating_sub(holds.settled) < every {
            return;
        }
        holds.settled = now;
        let all: Vec<usize> = holds.all.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.settle(index));
    }

    /// Lets the tenant of a hold pay what is due by now. It gets nothing back before the end.
    fn settle(&mut self, index: usize) {
        let due = self.due(&self.holds.all[index]);
        let hold = &mut self.holds.all[index];
        let more = (due - hold.paid).max(0);
        hold.paid += more;
        if more > 0 {
            let account = hold.account.clone();
            self.pay(&account, more);
        }
    }

    /// Returns the units that are due for a hold by now.
    fn due(&self, hold: &Hold<C::Lane>) -> i128 {
        let now = self.base().clock.now;
        let contended = self.queue.common.contention.at(hold.pool, now);
        hold.due(contended, self.holds.rate(&hold.account))
    }

    /// Charges a tenant, or pays it back.
    fn pay(&mut self, account: &Account<C::Lane>, units: i128) {
        if units != 0 && self.queue.charge(account, units) {
            let Share { tenant, level, .. } = &account.share;
            let cost = units as f64 / UNIT as f64;
            self.base_mut().on_charged(Priority(*level), tenant, cost);
        }
    }

    /// Returns the pool and the tenant of a hold, if it has not ended.
    pub(crate) fn hold_of(&self, id: HoldId) -> Option<(PoolId, &Tenant)> {
        let hold = self.holds.all.get(id.index as usize)?;
        let is_it = hold.serial == id.serial;
        is_it.then_some((hold.pool, &hold.account.share.tenant))
    }

    /// Returns the number of slots, of those that could take the place of this hold, for which other tenants wait that
    /// are below their shares. O(waiters and holds).
    pub(crate) fn slots_wanted(&self, capacity: &C, id: HoldId) -> usize {
        let own = self.holds.all.get(id.index as usize);
        let Some(own) = own.filter(|hold| hold.serial == id.serial) else {
            return 0;
        };
        let mut pools = vec![own.pool];
        // The number of waiters and of slots of each tenant.
        let mut tenants: HashMap<&Tenant, (usize, usize)> = HashMap::new();
        for (idx, meta) in self.waiters().waiting() {
            let served_by = self.queue.pools_of(idx);
            if !meta.is_parked && served_by.contains(&own.pool) {
                tenants.entry(meta.tenant()).or_default().0 += 1;
                for pool in served_by {
                    if !pools.contains(pool) {
                        pools.push(*pool);
                    }
                }
            }
        }
        let held = self.holds.all.iter().map(|(_, hold)| hold);
        for hold in held.filter(|hold| pools.contains(&hold.pool)) {
            tenants.entry(&hold.account.share.tenant).or_default().1 += 1;
        }
        let weight = |tenant: &Tenant| {
            let weights = &self.base().weights;
            f64::from(weights.of(weights.key(0, tenant, Discipline::Fair)))
        };
        let weights: f64 = tenants.keys().map(|tenant| weight(tenant)).sum();
        let slots: usize = pools.iter().map(|&pool| ask::slots(capacity, pool)).sum();
        let others = tenants
            .iter()
            .filter(|&(&tenant, _)| *tenant != own.account.share.tenant);
        let wanted = others.map(|(tenant, &(waiting, held))| {
            let share = slots as f64 * weight(tenant) / weights;
            (share.ceil() as usize).saturating_sub(held).min(waiting)
        });
        wanted.sum()
    }

    /// Returns the instant of the next look for slots to recall, or `NEVER` while no request waits for them.
    pub(crate) fn next_recall(&self, every: Duration) -> Nanos {
        // The requests that wait may have begun to before any slot was held.
        match !self.holds.is_tracked || !self.is_fair() || self.is_empty() {
            true => NEVER,
            false => self.base().clock.now.saturating_add(span(every)),
        }
    }

    /// Returns the number of slots that tenants hold.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.holds.all.len()
    }
}

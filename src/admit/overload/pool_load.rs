//! The rate at which the slots of a pool go to waiters, and the waits of each level for them.
//!
//! Only time in which requests wait is counted, because the pool's use at other times says nothing about a wait. All
//! slots of the pool are taken in that time. Its length times the slots, divided by the hand-overs, is therefore the
//! mean time for which a request holds a slot (Little's law). This works without timing any request.

use crate::admit::SlotState;
use crate::admit::nanos::{Nanos, seconds};

/// The measurements of one pool.
#[derive(Debug)]
pub(crate) struct PoolLoad {
    /// The slot time that passed while requests waited, up to the last hand-over, in seconds.
    slot_time: f64,
    /// The number of slots that went to a waiter in that time.
    handed_over: f64,
    /// The slot time that passed while requests waited since the last hand-over, in seconds.
    since: f64,
    /// The time in which requests waited, in seconds, and the hand-overs, both since the last
    /// [`take_possible`](Self::take_possible).
    recent: (f64, f64),
    /// The instant up to which slot time is counted.
    counted_to: Nanos,
    /// The instant at which a request was last admitted as a probe, to find out whether the rate is still as low as
    /// measured.
    probed: Nanos,
    /// The number of slots at the last observation; at least 1.
    pub(super) slots: f64,
    /// `true` while the pool can hand slots over.
    pub(crate) is_in_service: bool,
    /// The instant since which the pool can hand slots over; 0 if it always could.
    pub(super) in_service_since: Nanos,
    /// The instant since which the pool's slots are ready without a break; `None` while they are not ready.
    pub(super) made_since: Option<Nanos>,
    /// `true` if the pool's slots were ever not ready.
    pub(super) is_on_demand: bool,
    /// `true` while the pool's slots are being started.
    pub(super) is_making: bool,
    /// The instant at which the last start of the pool's slots ended; 0 before the first.
    pub(super) load_ended: Nanos,
    /// The waits of each level.
    levels: Box<[LevelLoad]>,
}

/// The waits of one level for one pool.
#[derive(Debug, Clone, Copy)]
struct LevelLoad {
    /// The number of waits in the sums.
    count: f64,
    /// The sum of the waits as they were predicted, in seconds.
    predicted: f64,
    /// The sum of the waits as they turned out, in seconds.
    actual: f64,
    /// The fraction of a refusal that is carried over to the next arrival.
    refusals: f64,
    /// The factor by which to multiply a prediction to get the wait that 19 of 20 waits exceed.
    exceeded: f64,
}

impl Default for LevelLoad {
    fn default() -> Self {
        Self {
            count: 0.0,
            predicted: 0.0,
            actual: 0.0,
            refusals: 0.0,
            exceeded: 1.0,
        }
    }
}

/// The number of hand-overs and waits that the averages cover. They cover twice as many at most.
const MEMORY: f64 = 64.0;
/// The shortest time that the averages cover, in seconds. At a million hand-overs per second, the time of 64 would be a
/// matter of chance.
const SHORTEST_MEMORY: f64 = 2.0;
/// The number of hand-overs from which on a rate is certain.
const MIN_HANDED_OVER: f64 = 4.0;
/// The number of waits that a correction starts with, as if their predictions had been right.
const PRIOR: f64 = 4.0;
/// The limits of the learned corrections, so that one strange hour does not stop all waiting.
const CORRECTION: (f64, f64) = (0.25, 4.0);
/// The share of the waits that are shorter than [`LevelLoad::exceeded`] predicts.
const SHORTER: f64 = 0.05;
/// The step by which `exceeded` moves with each wait.
const STEP: f64 = 0.1;

impl PoolLoad {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            slot_time: 0.0,
            handed_over: 0.0,
            since: 0.0,
            recent: (0.0, 0.0),
            counted_to: 0,
            probed: 0,
            slots: 1.0,
            is_in_service: true,
            in_service_since: 0,
            made_since: Some(0),
            is_on_demand: false,
            is_making: false,
            load_ended: 0,
            levels: vec![LevelLoad::default(); levels].into(),
        }
    }

    /// Resets the corrections, for another number of levels.
    pub(crate) fn set_levels(&mut self, levels: usize) {
        self.levels = vec![LevelLoad::default(); levels].into();
    }

    /// Counts the time up to `now`. `is_empty` is `true` if the pool has had no waiters since the last call.
    #[inline]
    pub(crate) fn observe(&mut self, now: Nanos, slots: usize, is_empty: bool) {
        // `counted_to` is 0 before the first observation, when there is no time to count yet.
        if !is_empty && self.counted_to > 0 {
            // The time counts for the slots of the last observation. It saturates at 0 if the caller did not read the
            // clock.
            let time = seconds(now.saturating_sub(self.counted_to));
            self.since += time * self.slots;
            self.recent.0 += time;
        }
        // The instant must not go back. `now` may be too early if the caller waited for the lock or did not read the
        // clock.
        self.counted_to = self.counted_to.max(now);
        // A limit of 0 means that slots come from elsewhere, one at a time.
        self.slots = slots.max(1) as f64;
    }

    /// Returns `true` if the pool had this number of slots when it was last [observed](Self::observe).
    pub(crate) fn has_slots(&self, slots: usize) -> bool {
        self.slots == slots.max(1) as f64
    }

    /// Sets the state of the pool's slots from now on. The caller has to observe time in which they are not ready as if
    /// the pool had no waiters.
    pub(crate) fn set_slot_state(&mut self, now: Nanos, state: SlotState) {
        let is_made = state == SlotState::Ready;
        self.made_since = is_made.then(|| self.made_since.unwrap_or(now));
        self.is_on_demand |= !is_made;
        let was_making = self.is_making;
        self.is_making = matches!(state, SlotState::Starting { .. });
        if was_making && !self.is_making {
            self.load_ended = now;
        }
    }

    /// Sets the ability of the pool to hand slots over from now on.
    pub(crate) fn set_in_service(&mut self, now: Nanos, is_in_service: bool) {
        if is_in_service && !self.is_in_service {
            self.in_service_since = now;
        }
        self.is_in_service = is_in_service;
    }

    /// Returns `true` if the pool's slots are ready and have been ready since `then`.
    pub(crate) fn is_made_since(&self, then: Nanos) -> bool {
        self.made_since.is_some_and(|since| since <= then)
    }

    /// Records that a slot went to a waiter.
    #[inline]
    pub(crate) fn on_handed_over(&mut self) {
        // Converted to slot time, because all slots are taken during these seconds.
        let shortest = SHORTEST_MEMORY * self.slots;
        // A service that stood still works again. Its pause counts at most as much as all the time before, however long
        // it was.
        self.slot_time += match self.is_certain() {
            true => self.since.min(self.slot_time.max(shortest)),
            false => self.since,
        };
        self.since = 0.0;
        self.recent.1 += 1.0;
        self.handed_over += 1.0;
        if self.handed_over >= 2.0 * MEMORY && self.slot_time >= shortest {
            // Both are halved, so that the rate stays and later hand-overs get more weight.
            self.handed_over /= 2.0;
            self.slot_time /= 2.0;
        }
    }

    /// Returns the number of slots that go to waiters per second, or `None` before the first hand-over.
    pub(crate) fn per_second(&self) -> Option<f64> {
        // Includes the time since the last hand-over, because a pool that stands still would otherwise keep its rate.
        let slot_time = self.slot_time + self.since;
        let is_known = self.handed_over > 0.0 && slot_time > 0.0;
        // `handed_over / slot_time` is the rate of one slot. It is multiplied by the present number of slots, so that a
        // new limit counts at once.
        is_known.then(|| self.slots * self.handed_over / slot_time)
    }

    /// Returns the mean time for which a request holds a slot, in seconds, or `None` before the first hand-over.
    pub(crate) fn service_seconds(&self) -> Option<f64> {
        self.per_second().map(|per_second| self.slots / per_second)
    }

    /// Returns the number of slots that the pool could have handed over since the last call, `time` seconds ago. While
    /// requests wait, all slots are busy, so the actual hand-overs count, however few they are.
    pub(crate) fn take_possible(&mut self, time: f64) -> f64 {
        let (waited, handed_over) = std::mem::take(&mut self.recent);
        // Time without waiters counts by the rate, and time with waiters by the hand-overs in it.
        let more = match self.is_in_service {
            true => self.per_second().unwrap_or(0.0) * (time - waited).max(0.0),
            false => 0.0,
        };
        more + handed_over
    }

    /// Returns `true` if the rate is known well enough to refuse requests because of it.
    pub(crate) fn is_certain(&self) -> bool {
        self.handed_over >= MIN_HANDED_OVER
    }

    /// Returns `true` once per `interval` seconds, to let one request probe whether the pool is still slow. The rate is
    /// measured only while requests wait, so a pool that was slow once would otherwise count as slow for ever.
    pub(crate) fn is_probed_by(&mut self, now: Nanos, interval: f64) -> bool {
        let is_due = seconds(now.saturating_sub(self.probed)) >= interval;
        if is_due {
            self.probed = now;
        }
        is_due
    }

    /// Returns the factor by which to multiply the prediction `predicted` of this level, as learned from past
    /// predictions.
    pub(crate) fn correction(&self, level: u8, predicted: f64) -> f64 {
        let Some(level) = self.levels.get(usize::from(level)) else {
            return 1.0;
        };
        // Adds `PRIOR` waits of the predicted length that came out as predicted.
        let prior = PRIOR * predicted;
        let ratio = (level.actual + prior) / (level.predicted + prior);
        match ratio.is_nan() {
            true => 1.0, // 0 / 0
            false => ratio.clamp(CORRECTION.0, CORRECTION.1),
        }
    }

    /// Returns the wait in seconds that 19 of 20 waits of this level exceed if `predicted` was predicted for them.
    pub(crate) fn exceeded(&self, level: u8, predicted: f64) -> f64 {
        let level = self.levels.get(usize::from(level));
        predicted * level.map_or(1.0, |level| level.exceeded)
    }

    /// Records the end of a wait of this level. A wait that ended without a slot counts only if it was longer than
    /// predicted, because its full length is unknown.
    pub(crate) fn on_wait_ended(&mut self, level: u8, predicted: f64, actual: f64, served: bool) {
        let Some(level) = self.levels.get_mut(usize::from(level)) else {
            return;
        };
        if !served && actual <= predicted {
            return;
        }
        // The factor comes to rest where the steps down, after one wait in 20, balance the steps up.
        level.exceeded *= match actual < predicted * level.exceeded {
            true => 1.0 - STEP * (1.0 - SHORTER),
            false => 1.0 + STEP * SHORTER,
        };
        level.exceeded = level.exceeded.clamp(CORRECTION.0, CORRECTION.1);
        level.count += 1.0;
        level.predicted += predicted;
        level.actual += actual;
        if level.count >= 2.0 * MEMORY {
            level.count /= 2.0;
            level.predicted /= 2.0;
            level.actual /= 2.0;
        }
    }

    /// Returns `true` if an arrival of this level is refused, if the share `probability` of all arrivals has to be.
    /// Exactly this share of many arrivals is refused, evenly spread.
    pub(crate) fn refuses(&mut self, level: u8, probability: f64) -> bool {
        let Some(level) = self.levels.get_mut(usize::from(level)) else {
            return false;
        };
        level.refusals += probability;
        let refuses = level.refusals >= 1.0;
        if refuses {
            level.refusals -= 1.0;
        }
        refuses
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// A pool of 4 slots that handed one over in each of 100 s in which requests waited.
    fn steady() -> PoolLoad {
        let mut load = PoolLoad::new(2);
        load.observe(SECOND, 4, true);
        for second in 2..=101 {
            load.observe(second * SECOND, 4, false);
            load.on_handed_over();
        }
        load
    }

    fn assert_near(rate: Option<f64>, expected: f64) {
        let rate = rate.unwrap();
        assert!((rate - expected).abs() < 0.02 * expected, "{rate}");
    }

    #[test]
    fn the_rate_is_that_of_the_time_in_which_requests_wait() {
        let mut load = steady();
        assert_near(load.per_second(), 1.0);
        // An hour without a waiter leaves the rate as it was.
        load.observe(3_600 * SECOND, 4, true);
        assert_near(load.per_second(), 1.0);
        // 100 s without a hand-over halve it.
        load.observe(3_700 * SECOND, 4, false);
        assert_near(load.per_second(), 0.5);
    }

    #[test]
    fn a_service_that_stood_still_is_as_fast_as_before_or_half_as_fast() {
        let mut load = steady();
        load.observe(3_701 * SECOND, 4, false);
        assert_near(load.per_second(), 100.0 / 3_700.0);
        load.on_handed_over();
        assert_near(load.per_second(), 0.5);
        assert!(load.is_probed_by(3_701 * SECOND, 60.0));
        assert!(!load.is_probed_by(3_760 * SECOND, 60.0));
        assert!(load.is_probed_by(3_761 * SECOND, 60.0));
    }

    #[test]
    fn the_rate_follows_a_service_that_becomes_faster() {
        let mut load = steady();
        for tenth in 1..=400 {
            load.observe(101 * SECOND + tenth * SECOND / 10, 4, false);
            load.on_handed_over();
        }
        let rate = load.per_second().unwrap();
        assert!(rate > 5.0, "{rate}");
    }

    #[test]
    fn the_rate_follows_a_change_of_the_limit_at_once() {
        let mut load = steady();
        load.observe(101 * SECOND, 8, false);
        assert_near(load.per_second(), 2.0);
    }

    #[test]
    fn few_hand_overs_are_not_certain() {
        let mut load = PoolLoad::new(1);
        assert_eq!(load.per_second(), None);
        load.observe(SECOND, 1, true);
        for second in 2..=4 {
            load.observe(second * SECOND, 1, false);
            load.on_handed_over();
        }
        assert!(load.per_second().is_some() && !load.is_certain());
        load.on_handed_over();
        assert!(load.is_certain());
    }

    #[test]
    fn predictions_are_corrected_by_level() {
        let mut load = PoolLoad::new(2);
        for _ in 0..200 {
            load.on_wait_ended(1, 1.0, 2.0, true);
            // These waits ended early without a slot, so they are not counted.
            load.on_wait_ended(1, 1.0, 0.5, false);
        }
        let corrections = [0, 1, 2].map(|level| load.correction(level, 1.0));
        assert_eq!((corrections[0], corrections[2]), (1.0, 1.0));
        assert!((1.9..=2.0).contains(&corrections[1]), "{corrections:?}");
        for _ in 0..1_000 {
            load.on_wait_ended(1, 1.0, 100.0, true);
        }
        assert_eq!(load.correction(1, 1.0), 4.0);
        for _ in 0..1_000 {
            load.on_wait_ended(0, 1.0, 0.01, true);
        }
        assert_eq!(load.correction(0, 1.0), 0.25);
        // The correction stays at 1 as long as nothing is known.
        assert_eq!(load.correction(1, 0.0), 4.0);
        assert_eq!(PoolLoad::new(1).correction(0, 0.0), 1.0);
    }

    #[test]
    fn exactly_the_share_is_refused() {
        let mut load = PoolLoad::new(1);
        let refused = (0..1_000).filter(|_| load.refuses(0, 0.25)).count();
        assert_eq!(refused, 250);
        assert!((0..10).all(|_| load.refuses(0, 1.0)));
        assert!((0..10).all(|_| !load.refuses(0, 0.0)));
    }
}

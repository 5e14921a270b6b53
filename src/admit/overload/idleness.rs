//! The share of the slots that was idle lately, as each level sees it. Slots that lower levels used count as idle, too.
//!
//! The idler the slots were, the longer a burst may queue. Idleness above [`IDLE`] makes no difference, not even to the
//! average. So a queue counts as a burst for the same time after a quiet night as after a busy hour.

use crate::admit::nanos::{Nanos, seconds};

/// Averages of idleness over some minutes, measured when requests find no slot. The capacity itself counts the requests
/// that were served without a wait.
#[derive(Debug, Default)]
pub(crate) struct Idleness {
    levels: Box<[LevelIdleness]>,
    measured_at: Nanos,
    /// The number of leases that the capacity had given at `measured_at`.
    leased: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelIdleness {
    /// The number of the level's requests that got a slot since the last measurement, if their level is known.
    served: u64,
    /// The averaged share of the slots that this level and those above left idle.
    idle: f64,
}

/// The share of idle slots from which on bursts may wait for as long as their callers do.
pub(super) const IDLE: f64 = 0.18;
/// The number of measurements in one time constant of the average. With more of them, a single lease would weigh too
/// much.
const MEASUREMENTS: f64 = 64.0;

impl Idleness {
    /// Creates averages that begin with the share `idle`, because the past is unknown.
    pub(crate) fn new(levels: usize, idle: f64) -> Self {
        let level = LevelIdleness { served: 0, idle };
        Self {
            levels: vec![level; levels].into(),
            ..Self::default()
        }
    }

    #[inline]
    pub(crate) fn on_served(&mut self, level: u8) {
        if let Some(level) = self.levels.get_mut(usize::from(level)) {
            level.served += 1;
        }
    }

    /// Measures the idleness when a request finds no slot, if the last measurement is old enough. `leased` is the
    /// number of leases so far. `possible` returns the number of leases that were possible in the given number of
    /// seconds up to now. `memory` is the time constant of the average, in seconds.
    pub(crate) fn observe(
        &mut self,
        now: Nanos,
        leased: u64,
        possible: impl FnOnce(f64) -> f64,
        memory: f64,
    ) {
        let time = seconds(now.saturating_sub(self.measured_at));
        // An infinite time constant is skipped, too. Waits are then unbounded, and the average is never read.
        if time * MEASUREMENTS < memory || !memory.is_finite() {
            return;
        }
        let possible = possible(time);
        // A longer measurement lets the old ones count less. The first call only sets the start of the measurement.
        let weight = match self.measured_at {
            0 => 0.0,
            _ => 1.0 - (-time / memory).exp(),
        };
        let known: u64 = self.levels.iter().map(|level| level.served).sum();
        // `leased` may start again from 0. Requests that found a slot free may be of any level.
        let unknown = leased.saturating_sub(self.leased).saturating_sub(known);
        let mut used = unknown as f64;
        for level in &mut self.levels {
            // The sum covers this level and all above it, so use by lower levels counts as idle here.
            used += std::mem::take(&mut level.served) as f64;
            let idle = match possible > 0.0 {
                // More leases than were possible come from many short requests. A value below 0 would hide idle slots
                // for a long time.
                true => (1.0 - used / possible).max(0.0),
                false => 0.0, // the service stood still
            };
            level.idle = (level.idle + (idle - level.idle) * weight).min(IDLE);
        }
        (self.measured_at, self.leased) = (now, leased);
    }

    /// Returns the share of the slots that all levels together left idle, from 0 to [`IDLE`].
    pub(crate) fn share_of_all(&self) -> f64 {
        self.levels.last().map_or(0.0, |level| level.idle)
    }

    /// Returns the share of the slots that this level and those above left idle, from 0 to [`IDLE`].
    pub(crate) fn share(&self, level: u8) -> f64 {
        let level = self.levels.get(usize::from(level));
        level.map_or(0.0, |level| level.idle)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn what_lower_levels_had_is_idle_to_the_higher() {
        let mut idleness = Idleness::new(2, 0.2);
        for second in 1..=100 {
            // Out of a hundred possible services, 81 were urgent, eight were not, and the level of six is unknown.
            (0..81).for_each(|_| idleness.on_served(0));
            (0..8).for_each(|_| idleness.on_served(1));
            idleness.observe(second * SECOND, second * 95, |time| 100.0 * time, 10.0);
        }
        let shares = [0, 1, 2].map(|level| (idleness.share(level) * 1_000.0).round());
        assert_eq!(shares, [130.0, 50.0, 0.0]);
    }

    #[test]
    fn a_long_silence_counts_as_idle() {
        let mut idleness = Idleness::new(1, IDLE);
        for second in 1..=100 {
            (0..10).for_each(|_| idleness.on_served(0));
            idleness.observe(second * SECOND, second * 10, |time| 10.0 * time, 10.0);
        }
        assert!(idleness.share(0) < 0.001);
        idleness.observe(200 * SECOND, 1_000, |time| 10.0 * time, 10.0);
        assert!(idleness.share(0) > 0.999 * IDLE);
    }

    #[test]
    fn more_than_was_possible_hides_no_idle_slots() {
        let mut idleness = Idleness::new(1, IDLE);
        let mut leased = 0;
        for second in 1..=100 {
            // A hundred short requests in one second, and none in the next.
            leased += 100 * (second % 2);
            idleness.observe(second * SECOND, leased, |time| 10.0 * time, 10.0);
        }
        assert!(idleness.share(0) > 0.9 * IDLE, "{}", idleness.share(0));
    }
}

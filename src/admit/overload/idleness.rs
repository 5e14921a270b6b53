//! The share of the slots that was idle lately, as each level sees it: slots that lower levels had count as idle.
//!
//! If slots are idle from time to time, a burst that waits is served later, and takes no slot from another request. If slots
//! are never idle, a longer queue adds latency and no throughput. The idler the slots were, the longer a burst may queue.
//! From [`IDLE`] on more makes no difference, also to the average: so the time in which a queue is taken for a burst is as
//! short after a quiet night as after a busy hour.

use crate::admit::nanos::{Nanos, seconds};

/// An average over some minutes, measured when requests find no slot. What was served without a wait is counted by the
/// capacity.
#[derive(Debug, Default)]
pub(crate) struct Idleness {
    levels: Box<[LevelIdleness]>,
    measured_at: Nanos,
    /// The number of leases that the capacity had given at `measured_at`.
    leased: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelIdleness {
    /// The number of its requests that got a slot since the last measurement, as far as their level is known.
    served: u64,
    /// The average.
    idle: f64,
}

/// The share of idle slots from which on bursts wait for as long as their callers do.
pub(super) const IDLE: f64 = 0.18;
/// The number of measurements in one time constant of the average. With more, a single lease would weigh too much.
const MEASUREMENTS: f64 = 64.0;

impl Idleness {
    /// Begins with this share: what was before is not known.
    pub(crate) fn new(levels: usize, idle: f64) -> Self {
        let level = LevelIdleness { served: 0, idle };
        Self {
            levels: vec![level; levels].into(),
            ..Self::default()
        }
    }

    /// A request of this level got a slot.
    #[inline]
    pub(crate) fn on_served(&mut self, level: u8) {
        if let Some(level) = self.levels.get_mut(usize::from(level)) {
            level.served += 1;
        }
    }

    /// A request finds no slot. `leased`: how many leases there were so far; `possible`: how many there could have been in
    /// so many seconds, up to now; `memory`: the time constant of the average, in seconds.
    pub(crate) fn observe(
        &mut self,
        now: Nanos,
        leased: u64,
        possible: impl FnOnce(f64) -> f64,
        memory: f64,
    ) {
        let time = seconds(now.saturating_sub(self.measured_at));
        // Also without a time constant: then no bound is set for waits, and nothing asks for the average.
        if time * MEASUREMENTS < memory || !memory.is_finite() {
            return;
        }
        let possible = possible(time);
        // The longer this measurement, the less the old ones count. The first one measures nothing yet.
        let weight = match self.measured_at {
            0 => 0.0,
            _ => 1.0 - (-time / memory).exp(),
        };
        let known: u64 = self.levels.iter().map(|level| level.served).sum();
        // The count may start again from 0. Requests that found a slot free may have been of any level.
        let unknown = leased.saturating_sub(self.leased).saturating_sub(known);
        let mut used = unknown as f64;
        for level in &mut self.levels {
            // By now what this level and all above it had: what lower ones had is idle to it.
            used += std::mem::take(&mut level.served) as f64;
            let idle = match possible > 0.0 {
                // More than was possible is many short requests. Below 0 they would hide idle slots for long after.
                true => (1.0 - used / possible).max(0.0),
                false => 0.0, // the service stood still
            };
            level.idle = (level.idle + (idle - level.idle) * weight).min(IDLE);
        }
        (self.measured_at, self.leased) = (now, leased);
    }

    /// Returns the share of the slots that no level had, from 0 to [`IDLE`].
    pub(crate) fn share_of_all(&self) -> f64 {
        self.levels.last().map_or(0.0, |level| level.idle)
    }

    /// Returns the share of the slots that this level and those above did not have, from 0 to [`IDLE`].
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
            // Of a hundred that could be served, 81 were urgent, eight were not, and of six the level is not known.
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

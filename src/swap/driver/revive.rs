//! Pinned models come back by themselves when they have crashed, or could not be started.

use std::time::Instant;

use super::Driver;
use super::configure::BACKOFF;
use crate::swap::swapper::ModelId;

/// When a pinned instance is started again.
#[derive(Debug, Default)]
pub(super) struct Revival {
    loaded: Option<Instant>,
    /// How often it crashed soon after it was loaded, in a row.
    crashes: u32,
    due: Option<Instant>,
}

impl Revival {
    pub(super) fn on_loaded(&mut self, at: Instant) {
        (self.loaded, self.due) = (Some(at), None);
    }

    /// It could not be started, and may not be tried again before `retry_at`.
    pub(super) fn on_start_failed(&mut self, retry_at: Instant) {
        self.due = Some(retry_at);
    }

    /// It has ended, though it was not to stop.
    pub(super) fn on_crash(&mut self, at: Instant) {
        let (wait, longest) = BACKOFF;
        let ran = self.loaded.take().map(|loaded| at - loaded);
        if ran.is_none_or(|ran| ran > longest) {
            self.crashes = 0;
        }
        let wait = wait.saturating_mul(1 << self.crashes.min(16));
        self.due = Some(at + wait.min(longest));
        self.crashes += 1;
    }

    /// When it was last loaded.
    pub(super) fn loaded(&self) -> Option<Instant> {
        self.loaded
    }

    /// When it is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It stays as it is, until it is asked for.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }
}

impl Driver {
    /// Starts the pinned instances that are due.
    pub(super) fn revive(&mut self, at: Instant) {
        let now = self.nanos(at);
        for nth in 0..self.units.units.len() {
            let unit = &mut self.units.units[nth];
            if unit.revival.due.is_none_or(|due| due > at) {
                continue;
            }
            unit.revival.due = None;
            if unit.is_configured && unit.model.pinned {
                self.scheduler
                    .on_load(ModelId(nth as u32), now, &mut self.units);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_instance_that_ran_for_long_is_not_in_a_loop() {
        let (mut revival, mut now) = (Revival::default(), Instant::now());
        let mut wait = |ran| {
            revival.on_loaded(now);
            now += Duration::from_secs(ran);
            revival.on_crash(now);
            (revival.due().unwrap() - now).as_secs()
        };
        let waits = [1, 2, 60, 0, 0, 0, 0, 0, 61, 0].map(&mut wait);
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]);
    }
}

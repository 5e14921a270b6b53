//! Restarts of pinned models that have crashed or could not be started.

use std::time::Instant;

use super::SwapDriver;
use super::configure::BACKOFF;

/// The next restart of a pinned instance, with the crashes that delay it.
#[derive(Debug, Default)]
pub(super) struct Revival {
    loaded: Option<Instant>,
    /// The number of crashes in a row that came soon after a load.
    crashes: u32,
    due: Option<Instant>,
}

impl Revival {
    pub(super) fn on_loaded(&mut self, at: Instant) {
        (self.loaded, self.due) = (Some(at), None);
    }

    /// Records that a start failed, and that the next one may not come before `retry_at`.
    pub(super) fn on_start_failed(&mut self, retry_at: Instant) {
        self.due = Some(retry_at);
    }

    /// Records a crash, and plans the restart.
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

    /// Returns the time of the last load, until a crash.
    pub(super) fn loaded(&self) -> Option<Instant> {
        self.loaded
    }

    /// Returns the time of the next restart.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Cancels the restart, because the operator unloaded the instance.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }
}

impl SwapDriver {
    /// Starts the pinned instances that are due for a restart.
    pub(super) fn revive(&mut self, at: Instant) {
        let now = self.instances.nanos(at);
        for id in self.instances.ids() {
            let instance = &mut self.instances[id];
            if instance.revival.due.is_none_or(|due| due > at) {
                continue;
            }
            instance.revival.due = None;
            if instance.is_configured && instance.model.pinned {
                self.scheduler.on_load(id, now, &mut self.instances);
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

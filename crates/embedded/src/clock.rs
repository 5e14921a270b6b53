//! The clock of a store, which runs on when the clock of the system is set.
//!
//! Retention, delays and deadlines are durations, so the store measures them by a time of its own, which never jumps.
//! The times that callers see are those of the system: they are ahead of the store's time by what the system's clock
//! was set. Across a restart, the uptime of the machine says how much time has passed, and after a reboot the system's
//! clock does.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::time::Time;
use tower_triage_durable::{Backlog, DueWebhook, Enqueued, Fetched, Pause, RequestInfo};

/// The clocks of the machine at one moment.
pub(crate) struct Machine {
    pub(crate) system: SystemTime,
    pub(crate) boot: Option<Boot>,
}

/// The time since the machine was started.
pub(crate) struct Boot {
    /// The name of this run of the machine.
    pub(crate) id: String,
    pub(crate) uptime: Duration,
}

impl Machine {
    pub(crate) fn now() -> Self {
        Self {
            system: SystemTime::now(),
            boot: Boot::now(),
        }
    }
}

impl Boot {
    /// Returns `None` on a system that doesn't say.
    fn now() -> Option<Self> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let seconds = uptime.split(' ').next()?.parse().ok()?;
        Some(Self {
            id: id.trim().to_owned(),
            uptime: Duration::try_from_secs_f64(seconds).ok()?,
        })
    }
}

/// The stored state of the clock, by which it goes on after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClockRow {
    /// The microseconds by which the system's time is ahead of the store's.
    ahead: i64,
    /// The name of the run of the machine, and the microseconds by which the store's time is ahead of its uptime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<(String, i64)>,
}

/// A difference in microseconds from which on the system's clock was set, and did not just run a little faster.
const STEP: i64 = 1_000_000;

/// A clock that starts at a time, and then runs like Tokio's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    time: Time,
    instant: Instant,
    boot: Option<(String, i64)>,
    ahead: AtomicI64,
}

impl Clock {
    /// Starts a clock at the system's time.
    pub(crate) fn start() -> Self {
        let machine = Machine {
            system: SystemTime::now(),
            boot: None,
        };
        Self::resume(&machine, None, None)
    }

    /// Starts a clock that goes on from its row, and is never behind the time of the latest request.
    pub(crate) fn resume(machine: &Machine, row: Option<ClockRow>, latest: Option<Time>) -> Self {
        let system = micros(Time::from_system(machine.system));
        let uptime = machine.boot.as_ref();
        let uptime = uptime.map(|boot| (boot, i64::try_from(boot.uptime.as_micros()).unwrap_or(0)));
        let latest = latest.map_or(0, micros);
        let before = row.as_ref().map_or(0, |row| row.ahead);
        let by_system = system.saturating_sub(before);
        let by_uptime = row.and_then(|row| {
            let ((boot, uptime), (id, ahead)) = (uptime?, row.boot?);
            (boot.id == id).then_some(uptime + ahead)
        });
        let now = by_uptime.filter(|now| *now >= latest);
        let mut now = now.unwrap_or(by_system).max(latest);
        if (by_system - now).abs() < STEP {
            now = by_system;
        }
        Self {
            time: Time::from_micros(u64::try_from(now).unwrap_or(0)),
            instant: instant(),
            boot: uptime.map(|(boot, uptime)| (boot.id.clone(), now - uptime)),
            ahead: AtomicI64::new(system - now),
        }
    }

    /// Returns what the store has to keep.
    pub(crate) fn row(&self) -> ClockRow {
        ClockRow {
            ahead: self.ahead.load(Relaxed),
            boot: self.boot.clone(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.time
            .after(instant().saturating_duration_since(self.instant))
    }

    /// Returns the instant at which the clock shows `time`, or `None` if an `Instant` can't represent it.
    pub(crate) fn instant(&self, time: Time) -> Option<Instant> {
        self.instant.checked_add(time.since(self.time))
    }

    /// Compares the clock with the system's time. Returns what the store has to keep if that was set since.
    pub(crate) fn check(&self, system: SystemTime) -> Option<ClockRow> {
        let ahead = micros(Time::from_system(system)) - micros(self.now());
        if (ahead - self.ahead.load(Relaxed)).abs() < STEP {
            return None;
        }
        // Only the thread that writes to the disk sets this, and each reader takes it as it is.
        self.ahead.store(ahead, Relaxed);
        tracing::warn!(
            "the system's clock was set: delays, deadlines and retention go on as before"
        );
        Some(self.row())
    }

    /// Converts the times of the store into those of the system.
    pub(crate) fn shown<T: HasTimes>(&self, mut times: T) -> T {
        let ahead = self.ahead.load(Relaxed);
        if ahead != 0 {
            times.shift(ahead);
        }
        times
    }

    /// Converts the times of the system into those of the store.
    pub(crate) fn read<T: HasTimes>(&self, mut times: T) -> T {
        times.shift(-self.ahead.load(Relaxed));
        times
    }
}

fn micros(time: Time) -> i64 {
    i64::try_from(time.micros()).unwrap_or(i64::MAX)
}

fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A value with times in it.
pub(crate) trait HasTimes {
    /// Moves all times by so many microseconds.
    fn shift(&mut self, micros: i64);
}

impl HasTimes for SystemTime {
    fn shift(&mut self, micros: i64) {
        let by = Duration::from_micros(micros.unsigned_abs());
        let shifted = match micros < 0 {
            true => self.checked_sub(by),
            false => self.checked_add(by),
        };
        *self = shifted.unwrap_or(*self);
    }
}

impl<T: HasTimes> HasTimes for Option<T> {
    fn shift(&mut self, micros: i64) {
        self.iter_mut().for_each(|time| time.shift(micros));
    }
}

impl<T: HasTimes> HasTimes for Vec<T> {
    fn shift(&mut self, micros: i64) {
        self.iter_mut().for_each(|time| time.shift(micros));
    }
}

impl HasTimes for RequestInfo {
    fn shift(&mut self, micros: i64) {
        self.created.shift(micros);
        self.started.shift(micros);
        self.ended.shift(micros);
        self.deadline.shift(micros);
        self.not_before.shift(micros);
    }
}

impl HasTimes for Enqueued {
    fn shift(&mut self, micros: i64) {
        match self {
            Self::New(info) | Self::Known(info) => info.shift(micros),
        }
    }
}

impl HasTimes for Backlog {
    fn shift(&mut self, micros: i64) {
        self.next.shift(micros);
        for head in &mut self.queues {
            head.info.shift(micros);
        }
    }
}

impl HasTimes for Fetched {
    fn shift(&mut self, micros: i64) {
        self.info.shift(micros);
    }
}

impl HasTimes for DueWebhook {
    fn shift(&mut self, micros: i64) {
        self.info.shift(micros);
    }
}

impl HasTimes for Pause {
    fn shift(&mut self, micros: i64) {
        self.until.shift(micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// Returns a machine with this uptime in the run with this name, and with this time since 1970.
    fn machine(id: &str, uptime: Duration, system: Duration) -> Machine {
        Machine {
            system: SystemTime::UNIX_EPOCH + system,
            boot: Some(Boot {
                id: id.to_owned(),
                uptime,
            }),
        }
    }

    fn since_1970(clock: &Clock) -> Duration {
        Duration::from_micros(clock.time.micros())
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_goes_on_whatever_the_clock_was_set_to() {
        let first = Clock::resume(&machine("a", HOUR, 100 * HOUR), None, None);
        assert_eq!(since_1970(&first), 100 * HOUR);
        let row = Some(first.row());
        for system in [0, 50, 102, 1_000_000] {
            let again = machine("a", 3 * HOUR, system * HOUR);
            let again = Clock::resume(&again, row.clone(), None);
            assert_eq!(since_1970(&again), 102 * HOUR, "set to {system} h");
            let created = SystemTime::UNIX_EPOCH + 101 * HOUR;
            let shown = again.shown(created);
            assert_eq!(again.read(shown), created);
            let ago = (SystemTime::UNIX_EPOCH + system * HOUR).duration_since(shown);
            if system > 1 {
                assert_eq!(ago.unwrap(), HOUR, "set to {system} h");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_while_the_store_runs_counts_after_a_reboot() {
        let first = Clock::resume(&machine("a", HOUR, 100 * HOUR), None, None);
        tokio::time::advance(HOUR).await;
        let system = SystemTime::UNIX_EPOCH;
        assert_eq!(first.check(system + 101 * HOUR), None);
        let row = first.check(system + 500 * HOUR);
        assert!(row.is_some());
        assert_eq!(first.check(system + 500 * HOUR), None);
        assert_eq!(first.now(), Time::from_system(system + 101 * HOUR));
        let rebooted = Clock::resume(&machine("b", HOUR, 502 * HOUR), row, None);
        assert_eq!(since_1970(&rebooted), 103 * HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_never_behind_the_latest_request() {
        let latest = Time::from_system(SystemTime::UNIX_EPOCH + 100 * HOUR);
        let early = Clock::resume(&machine("b", HOUR, HOUR), None, Some(latest));
        assert_eq!(early.now(), latest);
        let shown = early.shown(latest.to_system());
        assert_eq!(shown, SystemTime::UNIX_EPOCH + HOUR);
    }
}

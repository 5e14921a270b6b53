//! The health of an endpoint as a report shows it: its state, the time since it has it, and the reason.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::endpoint_word::{HealthChange, HealthFlags};
use crate::gate;

/// The health of an endpoint at one instant, which [`EndpointRef::health`](super::EndpointRef::health) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointHealth {
    /// The state of the endpoint. An endpoint that an operator [drains](super::EndpointRef::draining) may be in any state.
    pub state: HealthState,
    /// The time since the endpoint last went out of service, came back, was started or stopped, or began or ended to drain.
    /// Without such a change in a router, it is the time since the endpoint was configured.
    pub since: Duration,
    /// The reason of the last failure that took the endpoint out of service, for people to read. `None` while the
    /// endpoint is healthy.
    pub reason: Option<Arc<str>>,
}

/// The state of an endpoint's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HealthState {
    /// The endpoint gets requests.
    Healthy,
    /// The endpoint is new and has a check. It gets one request at a time until it has answered one or passed a check.
    Unchecked,
    /// The endpoint fails its health checks.
    Down,
    /// The endpoint gets no requests for a while, because it failed too many or because an operator ejected it.
    Ejected,
    /// The time of the ejection is over, and one request at a time finds out if the endpoint works again.
    Probing,
    /// The endpoint is started on demand, and does not run.
    Stopped,
}

impl HealthState {
    /// Returns the state that these flags mean, the most lasting one first.
    pub(super) fn of(flags: HealthFlags) -> Self {
        if flags.contains(HealthFlags::DOWN) {
            Self::Down
        } else if flags.contains(HealthFlags::EJECTED) {
            Self::Ejected
        } else if flags.intersects(HealthFlags::HALF_OPEN | HealthFlags::PROBING) {
            Self::Probing
        } else if flags.contains(HealthFlags::STOPPED) {
            Self::Stopped
        } else if flags.intersects(HealthFlags::UNKNOWN) {
            Self::Unchecked
        } else {
            Self::Healthy
        }
    }

    /// Returns the name of the state in lower case, such as `healthy`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unchecked => "unchecked",
            Self::Down => "down",
            Self::Ejected => "ejected",
            Self::Probing => "probing",
            Self::Stopped => "stopped",
        }
    }
}

/// The time and the reason of the last change of an endpoint's health. Only changes and reports take its lock.
#[derive(Debug)]
pub(crate) struct HealthRecord(Mutex<Fields>);

#[derive(Debug)]
struct Fields {
    since: Instant,
    reason: Option<Arc<str>>,
}

impl HealthRecord {
    /// Makes the record of an endpoint that enters service now.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Fields {
            since: gate::now(),
            reason: None,
        }))
    }

    /// Records the reason of a failure, in case that it takes the endpoint out of service.
    pub(crate) fn set_reason(&self, reason: impl Into<Arc<str>>) {
        self.lock().reason = Some(reason.into());
    }

    /// Records the time of `change`, if a report tells the two states apart.
    pub(crate) fn on_change(&self, change: HealthChange) {
        if change.is_reported() {
            self.restart();
        }
    }

    /// Records that the present state begins now.
    pub(super) fn restart(&self) {
        self.lock().since = gate::now();
    }

    pub(super) fn report(&self, flags: HealthFlags) -> EndpointHealth {
        let fields = self.lock();
        EndpointHealth {
            state: HealthState::of(flags),
            since: gate::now().saturating_duration_since(fields.since),
            reason: fields.reason.clone().filter(|_| !flags.is_healthy()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Fields> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::{Endpoint, Endpoints, Registry};

    #[test]
    fn flags_are_reported_as_one_state() {
        for (flags, state) in [
            (HealthFlags::empty(), HealthState::Healthy),
            (HealthFlags::DRAINING, HealthState::Healthy),
            (HealthFlags::UNKNOWN, HealthState::Unchecked),
            (HealthFlags::DOWN | HealthFlags::EJECTED, HealthState::Down),
            (HealthFlags::EJECTED, HealthState::Ejected),
            (HealthFlags::HALF_OPEN, HealthState::Probing),
            (
                HealthFlags::HALF_OPEN | HealthFlags::PROBING,
                HealthState::Probing,
            ),
            (HealthFlags::STOPPED, HealthState::Stopped),
        ] {
            assert_eq!(HealthState::of(flags), state, "{flags:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_keeps_the_time_of_the_first_failure() {
        let gpu = Endpoint::new("gpu", http::Uri::from_static("http://127.0.0.1:9001"));
        let endpoints = Endpoints::new(Registry::new(vec![gpu]).unwrap());
        let endpoint = &endpoints.endpoints()[0];
        let state = endpoint.state();
        let health = &state.cold.health;
        let second = Duration::from_secs(1);

        tokio::time::advance(second).await;
        health.set_reason("a test failed it");
        assert_eq!(endpoint.health().since, second);
        assert_eq!(endpoint.health().reason, None);
        health.on_change(state.word.eject());
        for change in [state.word.eject(), state.word.set_up(false)] {
            tokio::time::advance(second).await;
            health.on_change(change);
        }
        assert_eq!(endpoint.health().since, 2 * second);
        assert_eq!(
            endpoint.health().reason.as_deref(),
            Some("a test failed it")
        );
        health.on_change(state.word.set(HealthFlags::DRAINING, true));
        assert_eq!(endpoint.health().since, Duration::ZERO);
    }
}

//! The limit of open descriptors: each request needs one for its client and one for its backend.

use crate::config::ServerConfig;

/// The descriptors that are left for the admin address, health checks, stores and log files.
const RESERVE: u64 = 64;

/// The descriptors of a worker: its listener, a connection that waits for a place, and two of its runtime.
const PER_WORKER: u64 = 4;

/// The connections that the main address may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) count: u32,
    /// The limit of open descriptors, if it allows less than nine tenths of the connections that the configuration does.
    too_low: Option<u64>,
}

impl Places {
    /// Returns the places under the current limit of open descriptors.
    pub(crate) fn of(server: &ServerConfig) -> Self {
        Self::under(limit(), server.max_connections, server.worker_count())
    }

    /// Returns the places under a `limit` of open descriptors, or under none.
    fn under(limit: Option<u64>, max_connections: u32, workers: usize) -> Self {
        let unlimited = Self {
            count: max_connections,
            too_low: None,
        };
        let Some(limit) = limit else {
            return unlimited;
        };
        let reserve = RESERVE + PER_WORKER * workers as u64;
        // A tiny limit is shared between the two.
        let for_requests = limit - reserve.min(limit / 2);
        match u32::try_from(for_requests / 2) {
            Ok(count) if count < max_connections => Self {
                count: count.max(1),
                too_low: (u64::from(count) * 10 < u64::from(max_connections) * 9).then_some(limit),
            },
            _ => unlimited,
        }
    }

    /// Returns the warning about a limit that is too low.
    pub(crate) fn warning(&self, server: &ServerConfig) -> Option<String> {
        let limit = self.too_low?;
        let (count, wanted) = (self.count, server.max_connections);
        Some(format!(
            "the main address serves {count} connections at a time and not the {wanted} of `max_connections`: this \
             process may open {limit} files, and each request needs two; raise the limit (`ulimit -n`, or LimitNOFILE \
             of systemd) or lower `max_connections`"
        ))
    }
}

/// The soft limit with which this process was started, which models get.
#[cfg(unix)]
static INITIAL: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();

/// Returns the soft limit that [`raise_limit`] has found, or `None` if there is none.
#[cfg(unix)]
pub(crate) fn initial_limit() -> Option<u64> {
    *INITIAL.get_or_init(limit)
}

/// Raises the soft limit of this process to the hard one. The usual soft limit of 1024 is for programs that use `select`.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    INITIAL.get_or_init(|| current);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit of open files");
    }
}

/// Returns the number of descriptors that this process may have open, or `None` if there is no limit.
#[cfg(unix)]
fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() {}

#[cfg(not(unix))]
fn limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_two_descriptors_beside_the_reserve() {
        for (limit, workers, count) in [
            (None, 2, 10_000),
            (Some(1 << 20), 2, 10_000),
            (Some(20_072), 2, 10_000),
            (Some(20_070), 2, 9_999),
            (Some(1_024), 2, 476),
            (Some(1_024), 64, 352),
            (Some(64), 2, 16),
            (Some(3), 2, 1),
            (Some(0), 2, 1),
        ] {
            let places = Places::under(limit, 10_000, workers);
            assert_eq!(places.count, count, "{limit:?}");
            assert_eq!(places.too_low.is_some(), count < 9_000, "{limit:?}");
        }
    }
}

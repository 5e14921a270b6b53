//! The number of results in a row that changes the health of an endpoint.

use crate::endpoints::HealthCheck;

/// The health of an endpoint by its checks, and the results in a row that contradict it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Threshold {
    #[default]
    Unknown,
    Up {
        failures: u32,
    },
    Down {
        successes: u32,
    },
}

const UP: Threshold = Threshold::Up { failures: 0 };
const DOWN: Threshold = Threshold::Down { successes: 0 };

impl Threshold {
    /// Records the result of a check. Returns whether the endpoint is up, if that is new.
    pub(super) fn record(&mut self, well: bool, check: &HealthCheck) -> Option<bool> {
        let (next, changed) = match (&*self, well) {
            (Self::Up { .. }, true) => (UP, false),
            (Self::Down { .. }, false) => (DOWN, false),
            (Self::Unknown, true) => (UP, true),
            (Self::Unknown, false) => (DOWN, true),
            (Self::Up { failures }, false) => match failures + 1 {
                failures if failures < check.unhealthy_after => (Self::Up { failures }, false),
                _ => (DOWN, true),
            },
            (Self::Down { successes }, true) => match successes + 1 {
                successes if successes < check.healthy_after => (Self::Down { successes }, false),
                _ => (UP, true),
            },
        };
        *self = next;
        changed.then_some(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of `results` changes: `+` is a check that passed, `-` one that failed; `U` is up, `D` down, `.` nothing.
    fn told(results: &str, unhealthy_after: u32, healthy_after: u32) -> String {
        let check = HealthCheck::default()
            .unhealthy_after(unhealthy_after)
            .healthy_after(healthy_after);
        let mut threshold = Threshold::default();
        let tell = |result| match threshold.record(result == '+', &check) {
            Some(true) => 'U',
            Some(false) => 'D',
            None => '.',
        };
        results.chars().map(tell).collect()
    }

    #[test]
    fn the_first_result_decides_then_results_in_a_row() {
        for (results, unhealthy_after, healthy_after, changes) in [
            ("+++", 3, 2, "U.."),
            ("---", 3, 2, "D.."),
            ("+---", 3, 2, "U..D"),
            ("+--+--+---", 3, 2, "U........D"),
            ("-++", 3, 2, "D.U"),
            ("-+-+-++", 3, 2, "D.....U"),
            ("+---++---", 3, 2, "U..D.U..D"),
            ("+-+-", 1, 1, "UDUD"),
            ("-+++-", 1, 3, "D..UD"),
        ] {
            let told = told(results, unhealthy_after, healthy_after);
            assert_eq!(
                told, changes,
                "{results}, {unhealthy_after}, {healthy_after}"
            );
        }
    }
}

//! The number of results in a row that changes the health of an endpoint.

use crate::endpoints::HealthCheck;

/// The health of an endpoint by its checks, and the number of results in a row that contradict it.
#[derive(Debug, Default)]
pub(super) struct Threshold {
    /// `true` while the endpoint counts as up. `None` before the first result.
    up: Option<bool>,
    contradicting: u32,
}

impl Threshold {
    /// Records the result of a check. Returns `Some` with the new health if the result changes it.
    pub(super) fn record(&mut self, well: bool, check: &HealthCheck) -> Option<bool> {
        if self.up == Some(well) {
            self.contradicting = 0;
            return None;
        }
        self.contradicting += 1;
        let needed = match self.up {
            None => 1,
            Some(true) => check.unhealthy_after,
            Some(false) => check.healthy_after,
        };
        if self.contradicting < needed {
            return None;
        }
        self.up = Some(well);
        self.contradicting = 0;
        self.up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one character for each of `results`, where `+` is a passed check and `-` a failed one. `U` means that
    /// the endpoint came up, `D` that it went down, and `.` that it stayed the same.
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

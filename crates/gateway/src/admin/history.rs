//! The numbers of the last five minutes, one sample a second while the page is watched.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::live::LiveRequest;

/// The time for which samples are kept.
const KEPT: Duration = Duration::from_secs(300);
/// The time over which refusals are counted by their code.
const MINUTE: Duration = Duration::from_secs(60);

/// Counts since the start, and the present state, of which a sample is made.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) served: u64,
    pub(super) cancelled: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
    pub(super) waiting: usize,
    pub(super) in_flight: usize,
    pub(super) oldest: Option<Duration>,
}

/// The numbers of one second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Sample {
    /// In seconds since 1970.
    pub(super) at: f64,
    /// Per second; absent in the first sample, which has no earlier one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrivals: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    served: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<f64>,
    waiting: usize,
    in_flight: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_seconds: Option<f64>,
    /// Of the requests that hold a slot, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_p95: Option<f64>,
    /// Of the requests that stream, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_p95: Option<f64>,
}

/// The samples so far.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) samples: VecDeque<Sample>,
    /// Readings of the last minute, oldest first.
    readings: VecDeque<(SystemTime, Reading)>,
}

impl History {
    /// Adds the sample of `now`. Returns it.
    pub(super) fn add(
        &mut self,
        now: SystemTime,
        reading: Reading,
        live: &[LiveRequest],
    ) -> Sample {
        let before = self.readings.back();
        // After a pause without watchers, rates would be means over that pause.
        let before = before.and_then(|(at, before)| {
            let passed = now.duration_since(*at).ok()?.as_secs_f64();
            (passed > 0.0 && passed < 5.0).then_some((passed, before))
        });
        let rate = |count: fn(&Reading) -> u64| {
            let (passed, before) = before?;
            Some(rounded(
                count(&reading).saturating_sub(count(before)) as f64 / passed,
            ))
        };
        let [wait_p50, wait_p95] =
            percentiles(live.iter().filter(|it| has_slot(it)), |it| Some(it.wait_ms));
        let [first_byte_p50, first_byte_p95] = percentiles(live.iter(), |it| it.first_byte_ms);
        let sample = Sample {
            at: rounded(
                now.duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs_f64(),
            ),
            arrivals: rate(|it| it.served + it.cancelled + it.all_refused() + it.waiting as u64),
            served: rate(|it| it.served),
            refused: rate(Reading::all_refused),
            waiting: reading.waiting,
            in_flight: reading.in_flight,
            oldest_seconds: reading.oldest.map(|age| rounded(age.as_secs_f64())),
            wait_p50,
            wait_p95,
            first_byte_p50,
            first_byte_p95,
        };
        self.keep(now, reading, sample.clone());
        sample
    }

    /// Adds what was made, and removes what is too old.
    fn keep(&mut self, now: SystemTime, reading: Reading, sample: Sample) {
        self.readings.push_back((now, reading));
        while is_older(self.readings.front().map(|(at, _)| *at), now, MINUTE) {
            self.readings.pop_front();
        }
        let begin = sample.at - KEPT.as_secs_f64();
        self.samples.push_back(sample);
        while self.samples.front().is_some_and(|first| first.at < begin) {
            self.samples.pop_front();
        }
    }

    /// Returns the refusals of the last minute by their code, as far as they were seen.
    pub(super) fn refused_lately(&self) -> BTreeMap<&'static str, u64> {
        let (Some((_, first)), Some((_, last))) = (self.readings.front(), self.readings.back())
        else {
            return BTreeMap::new();
        };
        let since = |(&code, count): (&&'static str, &u64)| {
            let before = first.refused.get(code).copied().unwrap_or(0);
            (code, count.saturating_sub(before))
        };
        let lately = last.refused.iter().map(since);
        lately.filter(|&(_, count)| count > 0).collect()
    }
}

impl Reading {
    fn all_refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

fn has_slot(request: &LiveRequest) -> bool {
    matches!(request.phase, "running" | "streaming")
}

fn is_older(at: Option<SystemTime>, now: SystemTime, than: Duration) -> bool {
    at.is_some_and(|at| now.duration_since(at).is_ok_and(|passed| passed > than))
}

/// Returns the median and the 95th percentile of a number of milliseconds, in seconds.
fn percentiles<'a>(
    requests: impl Iterator<Item = &'a LiveRequest>,
    of: impl Fn(&LiveRequest) -> Option<u64>,
) -> [Option<f64>; 2] {
    let mut all: Vec<u64> = requests.filter_map(of).collect();
    all.sort_unstable();
    [50, 95].map(|percent| {
        // The nearest rank: at least so many percent are at most this.
        let rank = (all.len() * percent).div_ceil(100).max(1);
        all.get(rank - 1).map(|&ms| ms as f64 / 1e3)
    })
}

/// Rounds to two digits behind the point, because more would only make the stream longer.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(served: u64, full: u64) -> Reading {
        Reading {
            served,
            refused: BTreeMap::from([("queue_full", full)]),
            waiting: 2,
            ..Reading::default()
        }
    }

    #[test]
    fn rates_are_per_second_and_unknown_after_a_pause() {
        let mut history = History::default();
        let start = UNIX_EPOCH + Duration::from_secs(1_000);
        let mut add = |after: u64, served, full| {
            let now = start + Duration::from_secs(after);
            history.add(now, reading(served, full), &[])
        };
        assert_eq!(add(0, 10, 1).served, None);
        let second = add(2, 20, 4);
        assert_eq!((second.served, second.refused), (Some(5.0), Some(1.5)));
        assert_eq!(second.arrivals, Some(6.5));
        assert_eq!(add(30, 60, 4).served, None);
        assert_eq!(
            history.refused_lately(),
            BTreeMap::from([("queue_full", 3)])
        );
        history.add(start + Duration::from_secs(90), reading(60, 4), &[]);
        assert!(history.refused_lately().is_empty());
        assert_eq!(history.samples.len(), 4);
        history.add(start + Duration::from_secs(331), reading(60, 4), &[]);
        assert_eq!(history.samples.len(), 2);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let request = |wait_ms| LiveRequest {
            key: String::new(),
            id: String::new(),
            age_ms: 0,
            level: None,
            tenant: None,
            model: None,
            endpoint: None,
            phase: "running",
            wait_ms,
            first_byte_ms: None,
            bytes: 0,
            tokens: None,
            tries: 1,
        };
        let of = |count: u64| {
            let all: Vec<_> = (1..=count).map(|n| request(n * 1_000)).collect();
            percentiles(all.iter(), |it| Some(it.wait_ms))
        };
        assert_eq!(of(0), [None, None]);
        assert_eq!(of(1), [Some(1.0), Some(1.0)]);
        assert_eq!(of(20), [Some(10.0), Some(19.0)]);
    }
}

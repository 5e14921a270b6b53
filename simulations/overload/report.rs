//! The figures of a run.

use std::time::Duration;

use crate::simulation::{Outcome, Record, Run};
use crate::workload::{Request, Until, Workload};

/// A refusal that takes no longer is one at once.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The figures of a run, or of one group of its requests. Shares are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Figures {
    /// Slot-seconds for requests that were served in time, of all slot-seconds.
    pub(crate) useful: f64,
    /// Requests served in time, of all.
    pub(crate) in_time: f64,
    /// Requests served, but too late, of all.
    pub(crate) late: f64,
    /// Requests refused at once, of all.
    pub(crate) at_once: f64,
    /// Requests that waited in vain, of those that were not served.
    pub(crate) in_vain: f64,
    /// Until the start, of those served. `None` if none was.
    pub(crate) median_wait: Option<Duration>,
    pub(crate) p99_wait: Option<Duration>,
}

/// The figures of all requests, and of each group of the workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) all: Figures,
    pub(crate) groups: Vec<Figures>,
}

impl Report {
    pub(crate) fn new(workload: &Workload, run: &Run) -> Self {
        let groups = workload.groups.iter();
        Self {
            all: Figures::of(workload, run, |_| true),
            groups: groups
                .map(|group| Figures::of(workload, run, group.contains))
                .collect(),
        }
    }
}

impl Figures {
    fn of(workload: &Workload, run: &Run, is_counted: impl Fn(&Request) -> bool) -> Self {
        let lives = workload.requests.iter().zip(&run.records);
        let lives: Vec<_> = lives
            .filter(|(request, _)| is_counted(request))
            .map(|(request, record)| Life { request, record })
            .collect();
        let count = |is: &dyn Fn(&Life<'_>) -> bool| lives.iter().filter(|life| is(life)).count();
        let in_time = count(&|life| life.is_in_time(workload));
        let unserved = count(&|life| !life.is_served());
        let at_once = count(&|life| life.is_refused_at_once());
        let useful: f64 = lives
            .iter()
            .filter(|life| life.is_in_time(workload))
            .map(|life| life.slot_seconds(workload.duration))
            .sum();
        let mut waits: Vec<Duration> = lives.iter().filter_map(Life::wait).collect();
        waits.sort_unstable();
        Self {
            useful: useful / workload.slot_seconds(),
            in_time: share(in_time, lives.len()),
            late: share(lives.len() - unserved - in_time, lives.len()),
            at_once: share(at_once, lives.len()),
            in_vain: share(unserved - at_once, unserved),
            median_wait: percentile(&waits, 50),
            p99_wait: percentile(&waits, 99),
        }
    }
}

/// A request, and what became of it.
struct Life<'a> {
    request: &'a Request,
    record: &'a Record,
}

impl Life<'_> {
    fn is_served(&self) -> bool {
        self.record.outcome == Outcome::Served
    }

    fn is_in_time(&self, workload: &Workload) -> bool {
        let patience_ends = self.request.arrival + workload.patience_of(self.request);
        self.is_served()
            && self.record.slot.is_some_and(|(start, end)| {
                let is_needed = match workload.until {
                    Until::Started => start,
                    Until::Answered => end,
                };
                is_needed <= patience_ends
            })
    }

    fn is_refused_at_once(&self) -> bool {
        let took = self.record.decided - self.request.arrival;
        self.record.outcome == Outcome::Refused && took <= AT_ONCE
    }

    /// Until the start, if it was served.
    fn wait(&self) -> Option<Duration> {
        let (start, _) = self.record.slot.filter(|_| self.is_served())?;
        Some(start - self.request.arrival)
    }

    /// How long a slot worked for it before the end of the run.
    fn slot_seconds(&self, end_of_run: Duration) -> f64 {
        let (start, end) = self.record.slot.unwrap_or_default();
        end.min(end_of_run).saturating_sub(start).as_secs_f64()
    }
}

/// 0 of none.
fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}

/// The least of the sorted values that so many percent of all do not exceed.
fn percentile(sorted: &[Duration], of_hundred: usize) -> Option<Duration> {
    let rank = (sorted.len() * of_hundred).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

//! The figures of the runs, as a table.

use std::fmt::Display;
use std::time::Duration;

use tower_triage::{Priority, RejectReason};

use crate::caller::Outcome;
use crate::run::Run;
use crate::workload::LEVELS;

pub(crate) fn table(runs: &[Run]) -> String {
    let levels = LEVELS.map(|name| format!("{:>19}", format!("{name} wait in s")));
    let waits = LEVELS.map(|_| format!("{:>11}{:>8}", "median", "p99"));
    let mut lines = vec![
        line(
            "",
            ["tokens", "requests", "memory"],
            levels,
            ["hung up", "hung up", "too"],
        ),
        line(
            "",
            ["per s", "per s", "in use"],
            waits,
            ["waiting", "served", "late"],
        ),
    ];
    lines.extend(runs.iter().map(row));
    lines.extend(runs.first().and_then(too_large));
    lines.join("\n")
}

fn row(run: &Run) -> String {
    let per_second = run.answers().count() as f64 / run.took.as_secs_f64();
    let memory = run.memory(run.took).iter().sum::<f64>();
    let hung_up = run.count(|outcome| *outcome == Outcome::HungUp);
    let late = Outcome::Rejected(RejectReason::DeadlinePassed);
    let rates = [
        format!("{:.0}", run.throughput()),
        format!("{per_second:.2}"),
        format!("{:.0} %", 100.0 * memory),
    ];
    let waits = [0, 1, 2].map(|level| {
        let waits = run.waits(Priority(level));
        let seconds = |of_hundred| percentile(&waits, of_hundred).as_secs_f64();
        format!("{:>11.2}{:>8.1}", seconds(50), seconds(99))
    });
    let lost = [
        hung_up - run.log.abandoned,
        run.log.abandoned,
        run.count(|outcome| *outcome == late),
    ];
    line(run.plan.name, rates, waits, lost)
}

/// A request that no run can serve.
fn too_large(run: &Run) -> Option<String> {
    let mut outcomes = run.outcomes.iter();
    outcomes.find_map(|(_, outcome)| match outcome {
        Outcome::Rejected(RejectReason::Unservable(why)) => {
            Some(format!("\nRejected in each run: {why}"))
        }
        _ => None,
    })
}

fn line<R: Display, L: Display>(
    name: &str,
    rates: [R; 3],
    waits: [String; 3],
    lost: [L; 3],
) -> String {
    let [tokens, requests, memory] = rates;
    let [waiting, served, late] = lost;
    let waits = waits.concat();
    format!("{name:28}{tokens:>7}{requests:>10}{memory:>8}{waits}{waiting:>9}{served:>9}{late:>6}")
}

/// The shortest wait that `of_hundred` percent of all do not exceed. `waits` are sorted.
pub(crate) fn percentile(waits: &[Duration], of_hundred: usize) -> Duration {
    let rank = (waits.len() * of_hundred).div_ceil(100);
    rank.checked_sub(1).map_or(Duration::ZERO, |at| waits[at])
}

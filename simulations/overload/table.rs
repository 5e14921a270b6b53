//! The figures of a study, as a table.

use std::time::Duration;

use crate::policies::POLICIES;
use crate::report::Figures;
use crate::study::Study;

/// What the columns mean.
pub(crate) const LEGEND: &str = "\
useful   slot-seconds for requests that were served in time, of all slot-seconds
in time  requests served within their callers' patience, of all
late     requests served after that, to callers that stayed, of all
at once  requests refused within 20 ms, of all
in vain  requests that waited and were not served, of those not served
p50 p99  wait of the served until a slot works for them, in seconds
bound    no policy does more useful work, even if it knows the future";

pub(crate) fn table(study: &Study) -> String {
    let mut lines = vec![format!(
        "{:32}{:>7}{:>9}{:>7}{:>9}{:>9}{:>9}{:>9}",
        "", "useful", "in time", "late", "at once", "in vain", "p50", "p99"
    )];
    for (policy, report) in POLICIES.iter().zip(&study.reports) {
        lines.push(row(policy.name, &report.all));
        for (group, figures) in study.workload.groups.iter().zip(&report.groups) {
            lines.push(row(&format!("    {}", group.name), figures));
        }
    }
    lines.push(format!("{:32}{}", "bound", percent(study.bound, 7)));
    lines.join("\n")
}

fn row(name: &str, figures: &Figures) -> String {
    let Figures {
        useful,
        in_time,
        late,
        at_once,
        in_vain,
        median_wait,
        p99_wait,
    } = figures;
    let shares = [
        percent(*useful, 7),
        percent(*in_time, 9),
        percent(*late, 7),
        percent(*at_once, 9),
        percent(*in_vain, 9),
    ];
    let waits = [seconds(*median_wait), seconds(*p99_wait)];
    format!("{name:32}{}{}", shares.concat(), waits.concat())
}

fn percent(share: f64, width: usize) -> String {
    format!("{:>width$.1}", 100.0 * share)
}

fn seconds(wait: Option<Duration>) -> String {
    match wait {
        Some(wait) => format!("{:>9.2}", wait.as_secs_f64()),
        None => format!("{:>9}", "–"),
    }
}

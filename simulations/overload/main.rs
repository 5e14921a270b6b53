//! Policies for overload, side by side: which requests are served in time, and how much of the work was useful.
//!
//! Requests come faster than the slots of a backend can serve them, and their callers are patient for some seconds. Work for
//! a request that starts later than that is of no use. Each policy decides which requests wait, which are refused, and which
//! is next.
//!
//! ```sh
//! cargo run --release -p tower-triage-simulations --bin overload   # every workload
//! cargo run --release -p tower-triage-simulations --bin overload -- --workload conversation   # one
//! cargo run --release -p tower-triage-simulations --bin overload -- --svg target/overload   # draws, too
//! cargo run --release -p tower-triage-simulations --bin overload -- --trace FILE.csv.gz   # a recorded trace
//! cargo run --release -p tower-triage-simulations --bin overload -- --gateway target/release/triage-gateway   # over sockets
//! cargo run --release -p tower-triage-simulations --bin overload -- --help
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `simulation.rs` | arrivals, slots, callers that lose patience; a discrete-event simulation |
//! | `policy.rs` | what a policy is told, and what it decides |
//! | `policies/ours.rs` | this crate: the very waiting room, before and after |
//! | `policies/*.rs` | the others, each with what it models and with which numbers |
//! | `workload/` | the requests: generators, their distributions, recorded traces |
//! | `bound.rs` | the most useful work that is possible |
//! | `report.rs`, `study.rs` | figures of a run; all policies on one workload |
//! | `sockets.rs` | the gateway under the same load, over sockets |
//! | `table.rs`, `plot.rs`, `args.rs` | what comes out (the image has five of the policies), and what goes in |
//!
//! # What is simulated
//!
//! Time is virtual: no task sleeps, an event follows the other, and every run with the same seed is the same. A policy sees
//! of a request what a server would see, so not how long it will take. A backend has a number of slots; each works for one
//! request at a time, at the same speed however many are busy. What a policy admits beyond that waits in the backend.
//!
//! The policies know the number of slots, except for those that adapt a limit. Nothing else is tuned but the patience,
//! where a policy has a setting for it. Those of other projects are models of their decisions, not their code.

mod args;
mod bound;
mod plot;
mod policies;
mod policy;
mod report;
mod simulation;
mod sockets;
mod study;
mod table;
#[cfg(test)]
mod tests;
mod workload;

use std::error::Error;
use std::path::Path;

use args::Args;
use study::Study;
use workload::Callers;
use workload::scenarios::{SCENARIOS, Scenario, Source};

/// The loads of the images.
const PLOT_LOADS: [f64; 8] = [0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0];

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse(std::env::args_os().skip(1))?;
    if args.wants_help {
        println!("{}", args::help());
        return Ok(());
    }
    if let Some(gateway) = &args.gateway {
        return sockets::print(gateway, args.seed);
    }
    let source = Source {
        seed: args.seed,
        scale: if args.is_quick { 0.1 } else { 1.0 },
        trace: args
            .trace
            .as_deref()
            .map(workload::trace::read)
            .transpose()?,
    };
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    println!("{}", table::LEGEND);
    let all: Vec<_> = SCENARIOS.iter().collect();
    let scenarios = match args.scenarios.is_empty() {
        true => all,
        false => args.scenarios,
    };
    for scenario in scenarios {
        let one = args.callers.map(|callers| [callers]);
        let callers = one.as_ref().map_or(scenario.callers, |one| &one[..]);
        for &callers in callers {
            print(scenario, &source, callers);
            if let Some(folder) = &args.svg {
                draw(scenario, &source, callers, folder)?;
            }
        }
    }
    Ok(())
}

fn title(scenario: &Scenario, callers: Callers) -> String {
    format!(
        "{}: {}. Callers {}.",
        scenario.name,
        scenario.about,
        callers.describe()
    )
}

/// Prints a table for each load.
fn print(scenario: &Scenario, source: &Source, callers: Callers) {
    println!("\n{}", title(scenario, callers));
    for &load in scenario.loads {
        let study = Study::of(scenario.build(source, load, callers), source.seed);
        let workload = &study.workload;
        println!(
            "\n{:.2} × load: {} requests in {:.0} s, {:.2} s each, {} slots",
            workload.load(),
            workload.requests.len(),
            workload.duration.as_secs_f64(),
            workload.mean_service().as_secs_f64(),
            workload.slots,
        );
        println!("{}", table::table(&study));
    }
}

/// Draws an image over the load.
fn draw(
    scenario: &Scenario,
    source: &Source,
    callers: Callers,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let study = |load| Study::of(scenario.build(source, load, callers), source.seed);
    let studies: Vec<Study> = PLOT_LOADS.into_iter().map(study).collect();
    let picture = plot::plot(&title(scenario, callers), &studies);
    let path = folder.join(format!("{}-{}.svg", scenario.name, callers.name()));
    std::fs::write(&path, picture).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nplot: {}", path.display());
    Ok(())
}

//! Tests of what the simulation claims. Each run checks itself that every request has one outcome, and that the batch fits
//! into the memory.

use std::sync::LazyLock;

use tower_triage::batch::TooLarge;
use tower_triage::{Priority, RejectReason};

use crate::caller::Outcome;
use crate::engine::MEMORY;
use crate::plot::plot;
use crate::run::{Run, all};
use crate::table::{percentile, table};
use crate::workload::LEVELS;

static RUNS: LazyLock<Vec<Run>> = LazyLock::new(serve);

fn serve() -> Vec<Run> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(all())
}

/// In the order of `PLANS`: static, first come, priorities, priorities with backfill.
fn runs() -> &'static [Run; 4] {
    RUNS.first_chunk().unwrap()
}

fn wait(run: &Run, level: u8, of_hundred: usize) -> f64 {
    percentile(&run.waits(Priority(level)), of_hundred).as_secs_f64()
}

#[test]
fn continuous_batches_are_faster_than_static_ones() {
    let [fixed, continuous @ ..] = runs();
    for run in continuous {
        let name = run.plan.name;
        assert!(run.throughput() > 1.5 * fixed.throughput(), "{name}");
        for level in 0..3 {
            assert!(
                2.0 * wait(run, level, 50) < wait(fixed, level, 50),
                "{name} {level}"
            );
        }
    }
}

#[test]
fn priorities_shorten_urgent_waits_at_equal_throughput() {
    let [_, first_come, by_priority @ ..] = runs();
    for run in by_priority {
        let name = run.plan.name;
        assert!(5.0 * wait(run, 0, 50) < wait(first_come, 0, 50), "{name}");
        assert!(1.5 * wait(run, 0, 99) < wait(first_come, 0, 99), "{name}");
        assert!(run.throughput() > 0.97 * first_come.throughput(), "{name}");
    }
}

#[test]
fn backfill_shortens_the_median_wait_of_lower_levels() {
    let [.., stop, skip] = runs();
    for level in [1, 2] {
        assert!(
            1.25 * wait(skip, level, 50) < wait(stop, level, 50),
            "{level}"
        );
    }
}

#[test]
fn memory_stays_within_bounds_and_is_returned() {
    for run in runs() {
        let memory = || run.log.memory.iter().map(|&(_, bytes)| bytes);
        assert!(memory().all(|bytes| bytes <= MEMORY));
        assert_eq!(memory().next_back(), Some(0));
    }
}

#[test]
fn every_outcome_occurs() {
    for run in runs() {
        let name = run.plan.name;
        let is_too_large = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Rejected(RejectReason::Unservable(TooLarge { .. }))
            )
        };
        let is_late = |outcome: &_| *outcome == Outcome::Rejected(RejectReason::DeadlinePassed);
        assert_eq!(run.count(is_too_large), 1, "{name}");
        assert!(run.count(is_late) > 0, "{name}");
        let left_the_queue = run.count(|outcome| *outcome == Outcome::HungUp) - run.log.abandoned;
        assert!(left_the_queue > 0, "{name}");
    }
}

#[test]
fn every_run_is_the_same() {
    let again = serve();
    assert_eq!(table(&RUNS), table(&again));
    for (run, same) in RUNS.iter().zip(&again) {
        for level in 0..3 {
            assert_eq!(run.waits(Priority(level)), same.waits(Priority(level)));
        }
    }
}

#[test]
fn the_plot_shows_every_plan_and_level() {
    let picture = plot(&RUNS).unwrap();
    let plans = RUNS.iter().map(|run| run.plan.name);
    for name in plans.chain(LEVELS) {
        assert!(picture.contains(name), "{name}");
    }
}

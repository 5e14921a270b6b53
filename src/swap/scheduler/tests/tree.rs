//! The decision tree, row by row: what becomes of a request.

use super::*;
use crate::swap::swapper::{Matrix, MatrixConfig};

/// Up to four models; these may run together.
fn sets(sets: &[&str]) -> Test {
    let names = ["a", "b", "c", "d"].map(str::to_owned);
    let sets = sets.iter().enumerate();
    let config = MatrixConfig {
        sets: sets
            .map(|(nth, set)| (nth.to_string(), (*set).to_owned()))
            .collect(),
        ..MatrixConfig::default()
    };
    Test::new(Arc::new(Matrix::new(&names, &[], &config).unwrap()), 4)
}

#[test]
fn it_joins_a_swap_on_its_way() {
    sets(&["a"]).goes(&[("ask a", "start a"), ("ask a", ""), ("ok", "open a")]);
}

#[test]
fn it_is_served_by_a_model_that_runs() {
    let mut test = sets(&["a & b"]);
    test.slots = 2;
    // Also while another one is being started beside it.
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask a", ""),
        ("ask b", "start b"),
    ]);
    assert_eq!(test.world.of(InstanceId(0)).serves, 2);
    test.goes(&[("serve a", ""), ("ask a", "")]);
    assert_eq!(test.world.of(InstanceId(0)).serves, 2);
}

#[test]
fn it_waits_while_what_it_stops_is_being_started() {
    sets(&["a", "b"]).goes(&[
        ("ask a", "start a"),
        ("ask b", ""),
        ("pass 60", ""),
        // It has waited for so long that only one request of a goes before.
        ("ok", "open a, close a"),
        ("serve a", "start b for a"),
    ]);
}

#[test]
fn it_waits_while_its_model_is_being_stopped() {
    sets(&["a", "b"]).goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b for a"),
        ("ask a", ""),
        ("ok", "open b"),
        ("serve b", "start a for b"),
    ]);
}

#[test]
fn it_waits_while_what_it_stops_is_being_stopped_for_another() {
    // b and c may run together, and a with neither.
    sets(&["a", "b & c"]).goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b for a"),
        ("ask c", ""),
        ("ok", "start c, open b"),
    ]);
}

#[test]
fn it_waits_while_what_it_stops_serves() {
    sets(&["a", "b"]).goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask b", ""),
        ("serve a", "start b for a"),
    ]);
}

#[test]
fn swaps_that_do_not_touch_each_other_run_side_by_side() {
    // a and b replace each other; so do c and d.
    sets(&["(a | b) & (c | d)"]).goes(&[
        ("ask a", "start a"),
        ("ask c", "start c"),
        ("ok", "open a"),
        ("ok", "open c"),
        ("serve a", ""),
        ("serve c", ""),
        ("ask b", "start b for a"),
        ("ask d", ""),
        // Once a has stopped.
        ("stopped a", "start d for c"),
        ("ok", "open b"),
        ("ok", "open d"),
    ]);
}

#[test]
fn it_passes_one_that_waits_if_that_waits_no_longer_for_it() {
    // b waits for a, and c has to do with neither.
    sets(&["(a | b) & c"]).goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask b", ""),
        ("ask c 1", "start c"),
    ]);
}

#[test]
fn it_does_not_pass_one_that_would_have_more_to_wait_for() {
    // Three units of memory: a and b have one each, c needs two, and d would fit beside a and b.
    let mut test = Test::new(budget(3.0, &[1.0, 1.0, 2.0, 1.0]), 4);
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask b", "start b"),
        ("ok", "open b"),
        ("ask c", ""),
        ("pass 1", ""),
        ("ask d 1", ""),
        ("ask d", ""),
        ("serve a", "start c for a"),
        ("ok", "open c"),
        ("serve c", "start d for c"),
    ]);
}

#[test]
fn it_is_told_when_its_model_fails_to_start() {
    let mut test = sets(&["a"]);
    test.goes(&[("ask a", "start a")]);
    assert!(test.end(false));
    let retry = test.world.schedule(InstanceId(0)).earliest_retry();
    assert_eq!(retry, Some(test.world.now + SECOND));
    // It was rejected; the next one comes before the time.
    test.goes(&[
        ("leave a", ""),
        ("ask a", ""),
        ("pass 1", "start a"),
        ("ok", "open a"),
    ]);
    assert_eq!(test.world.schedule(InstanceId(0)).earliest_retry(), None);
}

#[test]
fn what_a_swap_has_stopped_may_be_started_before_the_swap_ends() {
    let mut test = sets(&["a & b", "c & b"]);
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask c", "start c for a"),
    ]);
    test.goes(&[("stopped a", "")]);
    assert_eq!(
        test.world.schedule(InstanceId(0)).phase,
        InstancePhase::Stopped
    );
    // c is unloaded, and ends late; a is ready by then.
    test.goes(&[
        ("leave c", ""),
        ("ask a", "abort"),
        ("ok", "start a"),
        ("ok", "open a"),
    ]);
    assert_eq!(
        test.world.schedule(InstanceId(0)).phase,
        InstancePhase::Ready
    );
}

//! Operators: pinned and default models, loads, unloads, and reconfigurations.

use super::*;

const A: InstanceId = InstanceId(0);
const B: InstanceId = InstanceId(1);
const C: InstanceId = InstanceId(2);

#[test]
fn a_pinned_model_is_never_stopped() {
    let mut test = Test::with_memory(2, 3);
    test.settings(A).is_pinned = true;
    (0..3).for_each(|model| test.settings(InstanceId(model)).ttl = SECOND);
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b"),
        ("ok", "open b"),
        ("serve b", ""),
        // It was used last; but the other one is never stopped.
        ("ask c", "start c for b"),
        ("ok", "open c"),
        ("serve c", ""),
        ("pass 1", "close c, stop c"),
        ("ok", ""),
        ("pass 1000", ""),
        // By its name it is.
        ("unload a", "close a, close a, stop a"),
    ]);
}

#[test]
fn a_pinned_model_that_was_unloaded_is_pinned_again_when_it_is_back() {
    let mut test = Test::with_memory(1, 3);
    test.settings(A).is_pinned = true;
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("unload a", "close a"),
        ("ask b", ""),
        ("serve a", "start b for a"),
        ("ok", "open b"),
        ("serve b", ""),
        ("ask a", "start a for b"),
        ("ask c", "fail c"),
    ]);
}

#[test]
fn waiters_behind_a_pinned_model_are_told() {
    let mut test = Test::with_memory(1, 3);
    test.settings(A).is_pinned = true;
    test.goes(&[
        ("ask a", "start a"),
        // Also before it is ready. Once, until it is tried again.
        ("ask b", "fail b"),
        ("ask b", ""),
        ("ok", "open a"),
        ("ask c", "fail c"),
    ]);
    assert_eq!(
        test.world.schedule(B).earliest_retry(),
        Some(test.world.now + SECOND)
    );
    test.goes(&[
        ("leave b", ""),
        ("leave b", ""),
        ("leave c", ""),
        ("pass 5", ""),
        ("load b", "fail b"),
        ("pass 60", ""),
        ("serve a", ""),
        ("unload a", "close a, close a, stop a"),
        ("ok", ""),
        ("ask b", "start b"),
    ]);
}

#[test]
fn an_operator_loads_a_model_that_no_request_waits_for() {
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("load a", "start a"),
        // A waiter that leaves does not end it.
        ("ask a", ""),
        ("leave a", ""),
        ("ok", "open a"),
        ("load a", ""),
        ("load b", "start b for a"),
        // Until it has failed.
        ("fail", ""),
        ("pass 1000", ""),
        ("load b", "start b"),
        ("unload b", "abort"),
        ("ok", ""),
    ]);
}

#[test]
fn a_load_is_not_forgotten_for_a_start_that_was_given_up() {
    let mut test = Test::with_memory(1, 1);
    test.goes(&[("load a", "start a"), ("unload a", "abort"), ("load a", "")]);
    test.world.begun[0].is_aborted = false; // it was ready before
    test.goes(&[("ok", "close a, stop a"), ("ok", "start a")]);
}

#[test]
fn a_load_ends_the_backoff_of_a_failed_start() {
    let mut test = Test::with_memory(1, 1);
    test.goes(&[
        ("ask a", "start a"),
        ("fail", ""),
        ("load a", "start a"),
        ("fail", ""),
        // The second failure in a row.
        ("pass 1", ""),
        ("load a", "start a"),
        ("ok", "open a"),
    ]);
}

#[test]
fn a_load_without_waiters_is_of_the_lowest_level() {
    Test::with_memory(1, 3).goes(&[
        ("ask a", "start a"),
        ("load b", ""),
        ("ok", "open a"),
        ("ask c 3", ""),
        ("serve a", "start c for a"),
        ("ok", "open c"),
        ("ask c 3", ""),
        ("serve c", ""),
        // It has waited for long enough, and so the traffic of c ends.
        ("pass 10", "close c"),
        ("ask c 3", ""),
        ("serve c", "start b for c"),
    ]);
}

#[test]
fn an_unload_gives_a_start_up_even_if_a_model_was_stopped_for_it() {
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b for a"),
    ]);
    // Its waiters were rejected.
    test.world.of_mut(B).waiting.clear();
    test.tell(B);
    test.goes(&[("unload b", "abort"), ("unload b", "")]);
    assert!(!test.end(true), "it has not failed");
    test.goes(&[("pass 1000", ""), ("ask b", "start b")]);
}

/// With 5 s until the default model returns.
fn with_default() -> Test {
    let mut test = Test::with_memory(1, 3);
    test.scheduler.settings.default = Some(A);
    test.scheduler.settings.min_loaded = 5 * SECOND;
    test
}

#[test]
fn the_default_model_returns_after_the_rush() {
    let mut test = with_default();
    test.settings(A).ttl = SECOND;
    (test.scheduler).decide(&mut test.world);
    assert_eq!(test.world.take_log(), "start a");
    test.goes(&[
        ("ok", "open a"),
        // It was loaded for no request, so it is not kept for a while.
        ("ask b", "start b for a"),
        ("ok", "open b"),
        ("pass 100", ""),
        ("serve b", ""),
        ("pass 4", ""),
        ("ask c", "start c for b"),
        ("ok", "open c"),
        ("serve c", ""),
        ("pass 4", ""),
        ("pass 1", "start a for c"),
        // It fails, and is tried again later.
        ("fail", ""),
        ("pass 1", "start a"),
        ("ok", "open a"),
        // Idle as it is, it stays.
        ("pass 1000", ""),
        // But not against the operator's will.
        ("unload a", "close a, close a, stop a"),
        ("ok", ""),
        ("pass 1000", ""),
    ]);
}

#[test]
fn the_default_model_does_not_return_while_requests_run() {
    // There would be room.
    let mut test = Test::with_memory(2, 2);
    test.scheduler.settings.default = Some(A);
    test.goes(&[
        ("ask b", "start b"),
        ("ok", "open b"),
        ("pass 100", ""),
        ("serve b", "start a"),
    ]);
}

#[test]
fn the_default_model_yields_while_it_is_being_loaded() {
    let mut test = with_default();
    (test.scheduler).decide(&mut test.world);
    assert_eq!(test.world.take_log(), "start a");
    test.goes(&[
        ("ask b", "abort"),
        ("ok", "start b"),
        ("ok", "open b"),
        ("serve b", ""),
        ("pass 5", "start a for b"),
        // Also when a model was stopped for it.
        ("ask c", "abort"),
        ("ok", "start c"),
        ("ok", "open c"),
        ("serve c", ""),
        ("pass 5", "start a for c"),
        // A request for itself goes on waiting for it; then it is like any other.
        ("ask a", ""),
        ("ask b", ""),
        ("leave a", "abort"),
    ]);
}

#[test]
fn an_abandoned_load_that_a_model_was_stopped_for_yields() {
    let mut test = Test::with_memory(1, 3);
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b for a"),
        ("leave b", ""),
        ("ask c", "abort"),
        ("ok", "start c"),
    ]);
    // Unless it is to be finished.
    let mut test = Test::with_memory(1, 3);
    test.scheduler.settings.abandoned_load = AbandonedLoad::Finish;
    test.goes(&[
        ("ask a", "start a"),
        ("leave a", ""),
        ("ask b", ""),
        ("ok", "open a, start b for a"),
    ]);
}

#[test]
fn a_release_stops_only_an_idle_model() {
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("release a", ""),
        ("ask a", "start a"),
        ("release a", ""),
        ("ok", "open a"),
        ("release a", ""), // it serves
        ("serve a", ""),
        ("release a", "close a, stop a"),
    ]);
    let mut test = Test::with_memory(1, 2);
    test.settings(A).is_pinned = true;
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("release a", ""),
    ]);
}

#[test]
fn an_abandoned_load_goes_on_until_another_one_needs_its_memory() {
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("ask a", "start a"),
        ("leave a", ""),
        ("pass 60", ""),
        // The client comes back, leaves and comes back.
        ("ask a", ""),
        ("leave a", ""),
        ("ok", "open a"),
        ("ask a", ""),
        ("serve a", ""),
    ]);
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("ask a", "start a"),
        ("leave a", ""),
        ("ask b", "abort"),
        ("ok", "start b"),
    ]);
}

#[test]
fn an_instance_that_serves_none_of_its_waiters_does_not_keep_others_waiting_for_ever() {
    let mut test = Test::with_memory(1, 2);
    test.slots = 0;
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("pass 1", ""),
        ("ask b", ""),
        ("pass 9", ""),
        ("pass 1", ""),
    ]);
    // a's waiter came first; then another one is the first.
    let now = test.world.now;
    test.world.of_mut(A).waiting[0].arrival = now;
    test.tell(A);
    assert_eq!(test.world.take_log(), "start b for a");
}

#[test]
fn a_less_urgent_waiter_does_not_hold_what_a_more_urgent_one_waits_for() {
    // c needs both, a and b. For a there is a waiter that came before; but it is less urgent.
    let names = ["a", "b", "c"].map(str::to_owned);
    let group = Group {
        swap: false,
        ..Group::new(["a", "b"])
    };
    let groups = Groups::new(&names, [("ab".to_owned(), group)]).unwrap();
    let mut test = Test::new(Arc::new(groups), 3);
    test.goes(&[
        ("ask a 1", "start a"),
        ("ask b 1", "start b"),
        ("ok", "open a"),
        ("ok", "open b"),
        ("ask a 1", ""),
        ("pass 1", ""),
        ("ask c", ""),
        ("pass 10", "close a, close b"),
    ]);
    // That b is idle, and so no traffic of unknown level, is enough for it to go first.
    let mut test = Test::new(Arc::clone(&test.scheduler.swapper), 3);
    test.goes(&[
        ("ask a 1", "start a"),
        ("ask b 1", "start b"),
        ("ok", "open a"),
        ("ok", "open b"),
        ("serve b", ""),
        ("ask a 1", ""),
        ("ask c", "close a, close b"),
    ]);
}

#[test]
fn another_configuration_lets_unchanged_models_run() {
    let mut test = Test::with_memory(4, 4);
    for model in ["a", "b", "c"] {
        test.act(&format!("ask {model}"));
        test.act("ok");
    }
    test.act("serve b");
    test.act("ask c");
    // a is unchanged; b, which is idle, and c, which is not, have changed; d is gone, and e is new.
    let said = test.reconfigure(&[true, true, true, false, true], &[B, C]);
    assert_eq!(said, "close b, close c, close b, stop b");
    assert!(test.world.schedule(C).is_leaving);
    test.goes(&[
        ("ok", ""),
        ("ask b", "start b"),
        ("serve c", "close c, stop c"),
        ("ok", "open b"),
        // Its request waited for it.
        ("ok", "start c"),
        ("ask e", "start e"),
        ("serve a", ""),
    ]);
    assert_eq!(test.world.schedule(A).phase, InstancePhase::Ready);
}

#[test]
fn another_configuration_lets_removed_models_run_out() {
    let mut test = Test::with_memory(4, 3);
    test.goes(&[("ask a", "start a"), ("ok", "open a"), ("ask b", "start b")]);
    test.goes(&[("load c", "start c")]);
    let said = test.reconfigure(&[false, true, false], &[B]);
    assert_eq!(said, "close a, abort, abort");
    test.goes(&[
        ("serve a", "close a, stop a"),
        // b has another configuration, with which its request is served.
        ("ok", "start b"),
        ("ok", ""),
        ("ok", ""),
        ("load c", ""),
    ]);
    // Nor when it is back.
    assert_eq!(test.reconfigure(&[true, true, true], &[]), "");
    assert_eq!(test.world.schedule(A).phase, InstancePhase::Stopped);
    assert_eq!(test.world.schedule(C).phase, InstancePhase::Stopped);
}

#[test]
fn a_changed_model_that_failed_is_tried_at_once() {
    let mut test = Test::with_memory(1, 1);
    test.goes(&[("ask a", "start a"), ("fail", "")]);
    assert_eq!(test.reconfigure(&[true], &[A]), "start a");
}

#[test]
fn nothing_is_started_after_the_shutdown() {
    let mut test = Test::with_memory(1, 2);
    test.scheduler.settings.default = Some(B);
    test.scheduler.on_shutdown();
    test.goes(&[("ask a", ""), ("pass 1000", ""), ("load b", "")]);
}

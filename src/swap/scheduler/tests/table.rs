//! One case after the other.

use super::*;

const A: InstanceId = InstanceId(0);
const B: InstanceId = InstanceId(1);
const C: InstanceId = InstanceId(2);

#[test]
fn a_request_starts_its_model_and_others_join() {
    let mut test = Test::with_memory(1, 2);
    test.ask(A, 0);
    assert_eq!(test.world.take_log(), "start a");
    test.ask(A, 0);
    assert_eq!(test.world.take_log(), "");
    assert!(!test.end(true));
    assert_eq!(test.world.take_log(), "open a");
    assert_eq!(
        (test.world.of(A).serves, test.world.of(A).waiting.len()),
        (1, 1)
    );
}

#[test]
fn a_model_in_the_way_stops_when_it_is_idle() {
    let mut test = Test::with_memory(1, 2);
    test.ask(A, 0);
    test.end(true);
    test.ask(B, 0);
    assert_eq!(test.world.take_log(), "start a, open a");
    test.serve(A);
    assert_eq!(test.world.take_log(), "start b for a");
    // Its own requests wait until then.
    test.ask(A, 0);
    test.end(true);
    assert_eq!(test.world.take_log(), "open b");
    test.serve(B);
    assert_eq!(test.world.take_log(), "start a for b");
}

#[test]
fn models_that_fit_are_loaded_side_by_side() {
    let mut test = Test::with_memory(2, 3);
    test.ask(A, 0);
    test.ask(B, 0);
    assert_eq!(test.world.take_log(), "start a, start b");
    // Both are being loaded, so there is nothing to stop for it.
    test.ask(C, 0);
    assert_eq!(test.world.take_log(), "");
    test.end(true);
    test.serve(A);
    assert_eq!(test.world.take_log(), "open a, start c for a");
}

#[test]
fn a_model_yields_to_a_waiter_of_ten_seconds() {
    let mut test = Test::with_memory(1, 2);
    test.slots = 2;
    test.ask(A, 0);
    test.end(true);
    test.ask(B, 0);
    test.world.take_log();
    // It is never idle.
    for _ in 0..9 {
        test.pass(1);
        test.ask(A, 0);
        test.serve(A);
    }
    assert_eq!(test.world.take_log(), "");
    test.pass(1);
    assert_eq!(test.world.take_log(), "close a");
    test.ask(A, 0);
    assert_eq!(test.world.of(A).waiting.len(), 1);
    test.serve(A);
    assert_eq!(test.world.take_log(), "start b for a");
}

#[test]
fn a_waiter_that_leaves_gives_the_slots_back() {
    let mut test = Test::with_memory(1, 2);
    test.ask(A, 0);
    test.end(true);
    test.ask(B, 0);
    test.pass(10);
    test.world.take_log();
    test.leave(B);
    assert_eq!(test.world.take_log(), "open a");
}

#[test]
fn a_more_urgent_waiter_is_not_kept_waiting_by_waiting_ones() {
    let mut test = Test::with_memory(1, 2);
    test.ask(A, 1);
    test.end(true);
    test.ask(A, 1);
    test.world.take_log();
    test.ask(B, 0);
    assert_eq!(test.world.take_log(), "close a");
    test.serve(A);
    assert_eq!(test.world.take_log(), "start b for a");
}

#[test]
fn a_load_ends_with_its_last_waiter_unless_a_model_was_stopped_for_it() {
    let mut test = Test::with_memory(1, 2);
    test.scheduler.settings.abandoned_load = AbandonedLoad::Abort;
    test.ask(A, 0);
    test.ask(A, 0);
    test.leave(A);
    assert_eq!(test.world.take_log(), "start a");
    test.leave(A);
    assert_eq!(test.world.take_log(), "abort");
    // A new one joins, and starts it again.
    test.ask(A, 0);
    assert_eq!(test.world.take_log(), "");
    assert!(!test.end(true), "it did not fail");
    assert_eq!(test.world.take_log(), "start a");
    test.end(true);
    test.serve(A);
    test.ask(B, 0);
    test.leave(B);
    assert_eq!(test.world.take_log(), "open a, start b for a");
}

#[test]
fn a_model_that_fails_is_tried_again_later_and_later() {
    let mut test = Test::with_memory(1, 1);
    test.ask(A, 0);
    for seconds in [1, 2, 4] {
        assert_eq!(test.world.take_log(), "start a");
        assert!(test.end(false), "its waiters are told");
        test.pass(seconds - 1);
        assert_eq!(test.world.take_log(), "");
        test.pass(1);
    }
    test.end(true);
    assert_eq!(test.world.take_log(), "start a, open a");
    // From the beginning.
    test.serve(A);
    test.world.of_mut(A).is_up = false;
    test.scheduler.on_exit(A, &mut test.world);
    test.ask(A, 0);
    test.end(false);
    test.pass(1);
    test.ask(A, 0);
    assert_eq!(test.world.take_log(), "close a, start a, start a");
}

#[test]
fn an_unload_waits_for_what_is_served_or_does_not() {
    let mut test = Test::with_memory(1, 1);
    for at_once in [false, true] {
        test.ask(A, 0);
        test.end(true);
        test.world.take_log();
        test.scheduler.on_unload(A, at_once, &mut test.world);
        if !at_once {
            assert_eq!(test.world.take_log(), "close a");
            test.serve(A);
            assert_eq!(test.world.take_log(), "close a, stop a");
            test.end(true);
        } else {
            assert_eq!(test.world.take_log(), "close a, close a, stop a");
        }
    }
}

#[test]
fn an_idle_model_is_stopped_after_its_time() {
    let mut test = Test::with_memory(1, 1);
    test.settings(A).ttl = 5 * SECOND;
    test.ask(A, 0);
    test.pass(60);
    test.end(true);
    test.pass(60);
    test.serve(A);
    test.pass(4);
    assert_eq!(test.world.take_log(), "start a, open a");
    test.pass(1);
    assert_eq!(test.world.take_log(), "close a, stop a");
}

#[test]
fn traffic_of_a_model_that_was_just_loaded_goes_on() {
    let mut test = Test::with_memory(1, 2);
    test.scheduler.settings.min_loaded = 15 * SECOND;
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask a", ""),
        ("ask b", ""),
        ("pass 14", ""),
        ("pass 1", "close a"),
    ]);
}

#[test]
fn an_idle_model_that_was_just_loaded_makes_room() {
    let mut test = Test::with_memory(1, 2);
    test.scheduler.settings.min_loaded = 5 * SECOND;
    test.goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("ask b", ""),
        ("serve a", "start b for a"),
    ]);
}

#[test]
fn later_work_does_not_get_in_the_way_of_a_waiter() {
    // a and b are busy and c waits for one of them: when b is idle, it is c's turn, though d asks as well.
    let mut test = Test::with_memory(2, 4);
    let d = InstanceId(3);
    for model in [A, B] {
        test.ask(model, 0);
        test.end(true);
    }
    test.ask(C, 0);
    test.pass(1);
    test.ask(d, 0);
    test.world.take_log();
    test.serve(B);
    assert_eq!(test.world.take_log(), "start c for b");
    // Until that has ended, b takes memory, too.
    test.serve(A);
    assert_eq!(test.world.take_log(), "");
    test.end(true);
    assert_eq!(test.world.take_log(), "start d for a, open c");
}

#[test]
fn traffic_that_overtakes_a_more_urgent_waiter_yields() {
    let mut test = Test::with_memory(1, 2);
    test.goes(&[
        ("ask a 1", "start a"),
        ("ok", "open a"),
        ("ask b", ""),
        // Of its own level, and before it came.
        ("overtake a 0", ""),
        ("ask a 0", ""),
        ("leave a", ""),
        ("overtake a 1", "close a"),
        ("leave b", "open a"),
        ("pass 1", ""),
        // That was before this one.
        ("ask b", ""),
        ("overtake a 1", "close a"),
        ("serve a", "start b for a"),
    ]);
}

#[test]
fn waiters_count_before_overtakes() {
    Test::with_memory(1, 2).goes(&[
        ("ask a 1", "start a"),
        ("ok", "open a"),
        ("ask b", ""),
        ("overtake a 1", "close a"),
        ("ask a 0", "open a"),
    ]);
}

/// a takes all memory, and each of the others a third of it.
fn one_large_and_three_small() -> Test {
    Test::new(budget(3.0, &[3.0, 1.0, 1.0, 1.0]), 4)
}

#[test]
fn all_of_a_class_that_fit_start_at_once() {
    one_large_and_three_small().goes(&[
        ("ask a", "start a"),
        ("ok", "open a"),
        ("serve a", ""),
        ("ask b", "start b for a"),
        ("ask c", ""),
        ("ask d", ""),
        ("ok", "start c, start d, open b"),
    ]);
}

#[test]
fn all_of_a_class_that_a_pinned_model_blocks_fail_at_once() {
    let mut test = one_large_and_three_small();
    test.settings(A).is_pinned = true;
    test.goes(&[
        ("ask a", "start a"),
        ("ask b", "fail b"),
        ("ask c", "fail c"),
        ("pass 1", "fail b, fail c"),
    ]);
}

#[test]
fn abcabc_is_served_as_aabbcc() {
    let mut test = Test::new(one_at_a_time(3), 3);
    for model in [A, B, C, A, B, C] {
        test.ask(model, 0);
    }
    let mut order = String::new();
    while !test.world.begun.is_empty() {
        test.end(true);
        // Ends because each round serves a request.
        while let Some(model) = [A, B, C]
            .into_iter()
            .find(|&model| test.world.of(model).serves > 0)
        {
            order.push(letter(model));
            test.serve(model);
        }
    }
    assert_eq!(order, "aabbcc");
}

#[test]
fn the_least_recently_used_model_stops_whichever_use_was_seen() {
    for used in ["a", "b"] {
        let mut test = Test::with_memory(2, 3);
        let other = if used == "a" { "b" } else { "a" };
        test.goes(&[
            ("ask a", "start a"),
            ("ok", "open a"),
            ("serve a", ""),
            ("ask b", "start b"),
            ("ok", "open b"),
            ("serve b", ""),
            ("pass 1", ""),
            (&format!("use {other}"), ""),
            ("pass 1", ""),
            (&format!("use {used}"), ""),
            ("ask c", &format!("start c for {other}")),
        ]);
    }
}

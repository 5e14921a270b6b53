use super::*;

const ALL: HealthFlags = HealthFlags::all();

fn load(in_use: u32, limit: u32) -> Snapshot {
    assert!(in_use <= MAX_SLOTS);
    Snapshot(u64::from(in_use)).with_limit(limit)
}

fn admissible(word: &EndpointWord) -> Admissible {
    word.flags().admissible()
}

fn take(word: &EndpointWord) -> bool {
    word.take(word.load())
}

#[test]
fn a_good_check_does_not_end_an_ejection() {
    let word = EndpointWord::new(9);
    assert!(word.eject().is_new());
    assert!(!word.set_up(true).is_new());
    assert_eq!(admissible(&word), Admissible::Never);
    assert!(word.set_up(false).is_new());
    assert!(word.close().is_new());
    assert_eq!(admissible(&word), Admissible::Never);
    assert!(word.set_up(true).is_new());
    assert_eq!(admissible(&word), Admissible::Always);
}

#[test]
fn a_half_open_endpoint_gets_one_probe_at_a_time() {
    let word = EndpointWord::new(9);
    _ = word.eject();
    word.half_open();
    assert_eq!(admissible(&word), Admissible::Probe);
    assert!(!word.flags().is_healthy());
    let probe = word.load().next_probe();
    assert!(take(&word));
    assert!(!take(&word));
    assert_eq!(admissible(&word), Admissible::Never);
    assert!(word.return_probe(probe));
    assert!(!word.return_probe(probe));
    assert!(take(&word));
    assert!(word.close().is_new());
    assert_eq!(admissible(&word), Admissible::Always);
    assert!(!word.close().is_new());
}

#[test]
fn a_failed_probe_is_an_ejection() {
    let word = EndpointWord::new(9);
    _ = word.eject();
    word.half_open();
    let probe = word.load().next_probe();
    take(&word);
    assert!(word.eject().is_new());
    assert!(!word.eject().is_new());
    assert!(!word.return_probe(probe));
    assert_eq!(admissible(&word), Admissible::Never);
}

#[test]
fn the_end_of_a_past_probe_is_not_that_of_the_present_one() {
    let word = EndpointWord::new(999);
    for _ in 0..300 {
        _ = word.eject();
        word.half_open();
        let past = word.load().next_probe();
        assert!(take(&word));
        _ = word.eject();
        word.half_open();
        let present = word.load().next_probe();
        assert!(take(&word));
        assert!(!word.load().is_probed_by(past) && word.load().is_probed_by(present));
        assert!(!word.return_probe(past));
        assert!(!take(&word));
        assert!(word.return_probe(present));
    }
    assert_eq!(word.load().in_use(), 600);
}

#[test]
fn an_endpoint_in_service_or_draining_is_not_probed() {
    let word = EndpointWord::new(9);
    word.half_open();
    assert_eq!(admissible(&word), Admissible::Always);
    assert!(word.set(HealthFlags::DRAINING, true).is_new());
    assert!(word.flags().is_healthy());
    assert!(word.flags().contains(HealthFlags::DRAINING));
    _ = word.eject();
    word.half_open();
    assert!(!take(&word));
}

#[test]
fn a_slot_seen_free_is_not_taken_while_draining() {
    let word = EndpointWord::new(9);
    let seen = word.load();
    _ = word.set(HealthFlags::DRAINING, true);
    assert!(!word.take(seen));
    assert!(!take(&word));
    assert_eq!(word.load().in_use(), 0);
}

#[test]
fn an_endpoint_drained_while_half_open_is_probed_afterwards() {
    let word = EndpointWord::new(1);
    _ = word.eject();
    word.half_open();
    _ = word.set(HealthFlags::DRAINING, true);
    assert!(word.flags().contains(HealthFlags::HALF_OPEN));
    _ = word.set(HealthFlags::DRAINING, false);
    assert!(take(&word));
    assert!(word.flags().contains(HealthFlags::HALF_OPEN));
}

#[test]
fn a_response_or_a_check_makes_an_endpoint_known() {
    for checked in [false, true] {
        let word = EndpointWord::new(9);
        _ = word.set(HealthFlags::UNKNOWN, true);
        assert_eq!(admissible(&word), Admissible::LastResort);
        assert!(word.flags().is_in_service() && word.flags().is_healthy());
        assert!(take(&word));
        assert!(!word.load().is_free());
        match checked {
            true => assert!(word.set_up(true).is_new()),
            false => assert!(word.answered().unwrap().is_new()),
        }
        assert_eq!(admissible(&word), Admissible::Always);
        assert!(take(&word));
        assert!(word.answered().is_none());
    }
}

#[test]
fn a_new_endpoint_is_probed_after_an_ejection() {
    let word = EndpointWord::new(9);
    _ = word.set(HealthFlags::UNKNOWN, true);
    _ = word.eject();
    word.half_open();
    assert_eq!(admissible(&word), Admissible::Probe);
    assert!(take(&word));
    assert_eq!(admissible(&word), Admissible::Never);
}

#[test]
fn health_changes_once_for_several_reasons() {
    let word = EndpointWord::new(9);
    assert_eq!(word.set(HealthFlags::DRAINING, true).health(), None);
    assert_eq!(word.eject().health(), Some(false));
    assert_eq!(word.set_up(false).health(), None);
    word.half_open();
    assert_eq!(word.eject().health(), None);
    assert_eq!(word.close().health(), None);
    assert_eq!(word.set_up(true).health(), Some(true));
    assert_eq!(word.set_up(true).health(), None);
}

#[test]
fn take_fails_if_the_word_has_changed() {
    let word = EndpointWord::new(2);
    let seen = word.load();
    assert!(word.take(seen));
    assert!(!word.take(seen));
    word.set_limit(1);
    assert_eq!(word.load(), load(1, 1));
    word.release();
    assert!(word.load().is_free());
    let seen = word.load();
    assert!(word.set_up(false).is_new());
    assert!(!word.take(seen));
}

#[test]
fn counts_and_flags_are_independent() {
    let word = EndpointWord::new(u32::MAX);
    assert!(take(&word));
    _ = word.change(|_| ALL);
    word.set_limit(7);
    word.set_limit(u32::MAX);
    let all = load(1, MAX_SLOTS).with_flags(ALL);
    assert_eq!(word.load(), all);
    assert_eq!(
        all.with_probe(ProbeId(u8::MAX)).with_limit(0).next_probe(),
        ProbeId(0)
    );
    word.release();
    _ = word.change(|_| HealthFlags::empty());
    assert_eq!(word.load(), load(0, MAX_SLOTS));
}

#[test]
fn an_endpoint_that_has_yet_to_answer_has_one_slot() {
    for flags in [HealthFlags::UNKNOWN, HealthFlags::SILENT] {
        for (limit, free) in [(0, false), (1, true), (5, true)] {
            let idle = load(0, limit).with_flags(flags);
            assert_eq!(idle.is_free(), free, "{limit}");
            assert_eq!(idle.slots(), u32::from(free), "{limit}");
            assert!(!load(1, limit).with_flags(flags).is_free(), "{limit}");
        }
    }
}

#[test]
fn a_limit_below_the_leases_leaves_no_slot_free() {
    let word = EndpointWord::new(5);
    assert!(take(&word));
    word.set_limit(0);
    assert_eq!(word.load(), load(1, 0));
    assert!(!word.load().is_free());
}

#[test]
fn idler_means_the_larger_free_share() {
    for (a, b, idler) in [
        (load(0, 1), load(1, 2), true),
        (load(1, 4), load(1, 2), true),
        (load(1, 2), load(2, 4), false),
        (load(3, 4), load(1, 2), false),
        (load(0, MAX_SLOTS), load(1, MAX_SLOTS), true),
    ] {
        assert_eq!(a.is_idler_than(b), idler, "{a:?} {b:?}");
    }
}

#[test]
fn an_endpoint_is_stopped_while_it_is_idle_or_takes_a_request() {
    let word = EndpointWord::new(2);
    let free = word.load();
    assert!(word.take(free));
    assert!(!word.stop_if_idle());
    assert_eq!(word.load().flags().admissible(), Admissible::Always);
    word.release();
    // Seen before it was stopped, and taken after.
    let seen = word.load();
    assert!(word.stop_if_idle());
    assert!(!word.take(seen));
    let stopped = word.load();
    assert!(!word.take(stopped));
    assert!(stopped.flags().may_serve(), "it can be waited for");
    _ = word.set(HealthFlags::STOPPED, false);
    assert!(word.take(word.load()));
}

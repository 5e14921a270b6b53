use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::archive::Part;
use crate::memory::Memory;
use crate::storage::Storage;
use crate::write::ops;
use tower_triage::{Discipline, PriorityLevels};
use tower_triage_durable::{
    Enqueued, Lease, NewRequest, OnCrash, Outcome, PauseScope, RequestInfo, RequestStatus,
};

/// The written rows, as a disk keeps them.
#[derive(Default)]
struct Paper(Memory, PriorityLevels);

impl Paper {
    fn archive(&self) -> Archive<'_> {
        Archive(&self.0, &self.1)
    }

    /// Writes down what has changed.
    fn write(&self, state: &mut State) {
        let ops = ops(&state.take_writes(), self.archive()).unwrap();
        self.0.commit(ops).unwrap();
        let ended = state.take_ended();
        state.release_ended(&ended);
    }

    fn read(&self, config: StoreConfig, now: Time) -> State {
        let mut state = State::new(config, 2);
        let mut recovery = Recovery::new(&mut state, now);
        self.archive().recover(&mut recovery).unwrap();
        recovery.finish();
        state
    }

    /// Returns a request, from memory or paper.
    fn get(&self, state: &State, id: RequestId, now: Time) -> Option<RequestInfo> {
        let archived = || state.archived(self.archive(), id, now).unwrap();
        state.get(id).or_else(|| Some(archived()?.info()))
    }
}

impl State {
    fn put(
        &mut self,
        paper: &Paper,
        request: NewRequest,
        now: Time,
    ) -> Result<Enqueued, StoreError> {
        self.enqueue(request, paper.archive(), now)
    }
}

fn at(seconds: u64) -> Time {
    Time::from_micros(1_000_000 * (1_000_000 + seconds))
}

fn new(id: u128) -> NewRequest {
    NewRequest::new(RequestId::from_bits(id), Bytes::new())
}

#[test]
fn an_undone_request_leaves_no_trace() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default().max_size(1), 1);
    let mut request = new(1);
    request.request = Bytes::from_static(b"body");
    request.cancel_after = Some(Duration::from_secs(5));
    request.idempotency = Some(tower_triage_durable::Idempotency {
        key: "k".into(),
        fingerprint: [0; 32],
    });
    for delay in [None, Some(Duration::from_secs(3)), Some(Duration::ZERO)] {
        request.delay = delay;
        let stored = state.put(&paper, request.clone(), at(0));
        assert!(matches!(stored, Ok(Enqueued::New(_))));
        let undo = state.take_undo();
        state.undo(undo);
        assert_eq!(state.get(RequestId::from_bits(1)), None);
        assert!(state.deadlines.is_empty() && state.delayed.is_empty());
        assert!(state.depths(at(0)).is_empty());
        assert!(state.fetch("", 1, at(0)).is_empty());
        assert!(state.by_key.is_empty() && state.listed.is_empty());
        assert_eq!(state.stored_bytes(b""), 0);
    }
    // One that is over at once, too.
    request.cancel_after = Some(Duration::ZERO);
    state.put(&paper, request.clone(), at(0)).unwrap();
    let undo = state.take_undo();
    state.undo(undo);
    assert_eq!(state.live, 0);
    let ended = state.take_ended();
    state.release_ended(&ended);
    assert!(state.requests.is_empty());
    assert_eq!(state.stored_bytes(b""), 0);
    assert!(state.put(&paper, new(2), at(0)).is_ok());
}

/// Stores a request of tenant `t` with a body of 4 bytes, and ends it with a response of 8.
fn run_one(state: &mut State, paper: &Paper, id: u128, now: Time) {
    let mut request = new(id);
    request.request = Bytes::from_static(b"body");
    request.tenant = b"t".to_vec();
    state.put(paper, request, now).unwrap();
    let lease = state.fetch("", 1, now).remove(0).lease;
    let outcome = Outcome::Responded {
        status: 200,
        response: Bytes::from_static(b"response"),
    };
    assert!(state.finish(&lease, outcome, now));
}

#[test]
fn an_undone_piece_of_a_response_takes_no_bytes() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    state.put(&paper, new(1), at(0)).unwrap();
    state.take_undo();
    let lease = state.fetch("", 1, at(0)).remove(0).lease;
    state.append(&lease, Bytes::from_static(b"piece"));
    assert_eq!(state.stored_bytes(b""), 5);
    let undo = state.take_undo();
    state.undo(undo);
    assert_eq!(state.stored_bytes(b""), 0);
}

#[test]
fn stored_bytes_of_a_tenant_count_after_a_reopen() {
    let retention = Duration::from_secs(600);
    let config = StoreConfig::default().retention(retention);
    let mut state = State::new(config.clone(), 1);
    let paper = Paper::default();
    run_one(&mut state, &paper, 1, at(0));
    paper.write(&mut state);
    run_one(&mut state, &paper, 3, at(100));
    let mut request = new(2);
    request.request = Bytes::from_static(b"waits");
    request.tenant = b"t".to_vec();
    state.put(&paper, request, at(100)).unwrap();
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b"t"), 12 + 5 + 12);
    for seconds in [101, 200] {
        // The first segment is sealed by the second time.
        state.advance(at(seconds));
        paper.write(&mut state);
        state = paper.read(config.clone(), at(seconds));
        assert_eq!(state.stored_bytes(b"t"), 12 + 5 + 12, "{seconds}");
        assert_eq!(state.stored_bytes(b"other"), 0);
    }
    state.advance(at(601));
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b"t"), 5 + 12);
    // Of the second segment, only what waits is left.
    state.advance(at(701));
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b"t"), 5);
    let state = paper.read(config, at(702));
    assert_eq!(state.stored_bytes(b"t"), 5);
}

#[test]
fn an_operators_retry_takes_the_bytes_of_the_response_back() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    let mut request = new(1);
    request.request = Bytes::from_static(b"body");
    let id = request.id;
    state.put(&paper, request, at(0)).unwrap();
    for _ in 0..3 {
        let lease = state.fetch("", 1, at(0)).remove(0).lease;
        state.append(&lease, Bytes::from_static(b"piece"));
        let response = Bytes::from_static(b"response");
        let outcome = Outcome::Responded {
            status: 500,
            response,
        };
        assert!(state.finish(&lease, outcome, at(0)));
        paper.write(&mut state);
        assert_eq!(state.stored_bytes(b""), 4 + 5 + 8);
        state.retry(id, paper.archive(), at(0)).unwrap().unwrap();
        assert_eq!(state.stored_bytes(b""), 4);
        paper.write(&mut state);
        state = paper.read(StoreConfig::default(), at(0));
        assert_eq!(state.stored_bytes(b""), 4);
    }
    // The undoing of a piece from before the retry takes nothing back twice.
    state.take_undo();
    let lease = state.fetch("", 1, at(0)).remove(0).lease;
    state.append(&lease, Bytes::from_static(b"piece"));
    let reason = "it failed".to_owned();
    assert!(state.finish(&lease, Outcome::Failed { reason }, at(0)));
    state.retry(id, paper.archive(), at(0)).unwrap().unwrap();
    let undo = state.take_undo();
    state.undo(undo);
    assert_eq!(state.stored_bytes(b""), 4);
}

#[test]
fn dropped_pieces_of_a_waiting_request_take_no_bytes() {
    let paper = Paper::default();
    let config = StoreConfig::default().retention(Duration::from_secs(100));
    let mut state = State::new(config.clone(), 1);
    let mut request = new(1);
    request.request = Bytes::from_static(b"body");
    state.put(&paper, request, at(0)).unwrap();
    let lease = state.fetch("", 1, at(0)).remove(0).lease;
    state.append(&lease, Bytes::from_static(b"piece"));
    let again = Outcome::Retry {
        after: Duration::from_secs(1_000_000),
        counts: true,
    };
    assert!(state.finish(&lease, again, at(0)));
    let mut ended = new(2);
    ended.cancel_after = Some(Duration::ZERO);
    state.put(&paper, ended, at(0)).unwrap();
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b""), 4 + 5);
    state.advance(at(101));
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b""), 4);
    state.advance(at(1_000_001));
    let lease = state.fetch("", 1, at(1_000_001)).remove(0).lease;
    let response = Bytes::from_static(b"response");
    let outcome = Outcome::Responded {
        status: 200,
        response,
    };
    assert!(state.finish(&lease, outcome, at(1_000_001)));
    paper.write(&mut state);
    assert_eq!(state.stored_bytes(b""), 4 + 8);
    let state = paper.read(config, at(1_000_002));
    assert_eq!(state.stored_bytes(b""), 4 + 8);
}

#[test]
fn a_segment_is_dropped_with_its_last_request() {
    let config = StoreConfig::default().retention(Duration::from_secs(600));
    let mut state = State::new(config.clone(), 1);
    let paper = Paper::default();
    let id = RequestId::from_bits;
    for (id, second) in [(1, 0), (2, 1), (3, 200), (4, 201)] {
        state.put(&paper, new(id), at(second)).unwrap();
    }
    for number in [1, 2, 3] {
        let canceled = state.cancel(id(number), paper.archive(), at(300));
        canceled.unwrap().unwrap();
    }
    paper.write(&mut state);
    assert_eq!(state.requests.len(), 1, "only what waits is in memory");
    assert!(paper.get(&state, id(1), at(899)).is_some());
    // Also where it was opened meanwhile.
    state.advance(at(400));
    paper.write(&mut state);
    let mut reopened = paper.read(config, at(500));
    for state in [&mut state, &mut reopened] {
        let due = state.next_event().unwrap();
        assert_eq!(due, at(900));
        state.advance(at(899));
        assert!(state.take_writes().is_empty());
    }
    state.advance(at(901));
    paper.write(&mut state);
    // The first two were alone in theirs; the fourth keeps that of the third.
    assert_eq!(paper.0.segments().unwrap().len(), 1);
    assert!(paper.archive().by_id(id(1)).unwrap().is_none());
    assert!(paper.archive().by_id(id(3)).unwrap().is_some());
    assert!(paper.get(&state, id(3), at(901)).is_none());
    assert!(paper.get(&state, id(4), at(901)).is_some());
}

#[test]
fn a_waiting_request_keeps_no_bytes_of_forgotten_ones() {
    let paper = Paper::default();
    let retention = std::time::Duration::from_secs(100);
    let config = StoreConfig::default().retention(retention);
    let mut state = State::new(config.clone(), 1);
    let mut waiting = new(1);
    waiting.request = Bytes::from_static(b"body");
    waiting.delay = Some(std::time::Duration::from_secs(1_000_000));
    state.put(&paper, waiting, at(0)).unwrap();
    state.put(&paper, new(2), at(0)).unwrap();
    let lease = state.fetch("", 1, at(0)).remove(0).lease;
    let response = Bytes::from(vec![0; 300_000]);
    let outcome = Outcome::Responded {
        status: 200,
        response,
    };
    assert!(state.finish(&lease, outcome, at(1)));
    paper.write(&mut state);
    let [(kept, seq), (segment, ended)] = [1, 2].map(|id| {
        let stored = paper.archive().by_id(RequestId::from_bits(id));
        stored.unwrap().unwrap().place()
    });
    assert_eq!(kept, segment);
    assert_eq!(state.stored_bytes(b""), 300_004);
    let response = || paper.archive().response(segment, ended).unwrap();
    state.advance(at(100));
    paper.write(&mut state);
    assert_eq!(response().map(|response| response.len()), Some(300_000));
    assert!(state.next_event().unwrap() <= at(101));
    state.advance(at(101));
    paper.write(&mut state);
    assert_eq!(response(), None);
    assert_eq!(state.stored_bytes(b""), 4);
    let body = paper.archive().body(kept, seq).unwrap();
    assert_eq!(body.unwrap(), "body");
    // It does so once, and again after a reopen.
    assert!(state.next_event().unwrap() > at(1_000));
    let mut state = paper.read(config, at(102));
    paper.write(&mut state);
    let body = paper.archive().body(kept, seq).unwrap();
    assert_eq!(body.unwrap(), "body");
    state.advance(at(1_000_001));
    assert_eq!(state.fetch("", 9, at(1_000_001)).len(), 1);
}

#[test]
fn requests_stay_in_order_when_the_clock_is_set_back() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    let list = |state: &State, now| {
        let part = Part {
            tenant: None,
            ended: None,
            limit: 10,
            before: u64::MAX,
            retention: state.retention(now),
        };
        let page = paper.archive().list(&part).unwrap();
        let ids = page.requests.iter().map(|info| info.id.bits());
        ids.collect::<Vec<_>>()
    };
    state.put(&paper, new(1), at(100_000)).unwrap();
    paper.write(&mut state);
    let mut state = paper.read(StoreConfig::default(), at(0));
    state.put(&paper, new(2), at(0)).unwrap();
    paper.write(&mut state);
    assert_eq!(list(&state, at(0)), [2, 1]);
    // A segment is sealed, and not read when the store is opened.
    for id in [1, 2] {
        let id = RequestId::from_bits(id);
        state.cancel(id, paper.archive(), at(100_001)).unwrap();
    }
    paper.write(&mut state);
    state.advance(at(120_000));
    assert!(matches!(state.writes[..], [Write::Sealed { .. }]));
    paper.write(&mut state);
    let mut state = paper.read(StoreConfig::default(), at(0));
    for id in [1, 2] {
        let again = state.put(&paper, new(id), at(1)).unwrap();
        assert!(matches!(again, Enqueued::Known(_)));
    }
    state.put(&paper, new(4), at(1)).unwrap();
    paper.write(&mut state);
    assert_eq!(list(&state, at(1)), [4, 2, 1]);
    // A shorter retention makes shorter segments.
    let config = StoreConfig::default().retention(Duration::from_secs(60));
    let mut state = paper.read(config, at(0));
    state.put(&paper, new(3), at(1)).unwrap();
    paper.write(&mut state);
    assert_eq!(list(&state, at(1)), [3, 4, 2, 1]);
    assert_eq!(state.fetch("", 3, at(2)).len(), 2);
}

#[test]
fn a_retried_request_of_a_sealed_segment_waits_after_a_reopen() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    let id = RequestId::from_bits(1);
    state.put(&paper, new(1), at(0)).unwrap();
    let lease = state.fetch("", 1, at(0)).remove(0).lease;
    let reason = "why".to_owned();
    assert!(state.finish(&lease, Outcome::Failed { reason }, at(0)));
    paper.write(&mut state);
    state.advance(at(20_000));
    paper.write(&mut state);
    let mut state = paper.read(StoreConfig::default(), at(20_000));
    let info = state.retry(id, paper.archive(), at(20_000)).unwrap();
    assert_eq!(info.unwrap().status, RequestStatus::Queued);
    paper.write(&mut state);
    let mut state = paper.read(StoreConfig::default(), at(20_001));
    assert_eq!(state.fetch("", 9, at(20_001)).len(), 1);
}

#[test]
fn pieces_of_a_lost_attempt_are_a_gap_after_a_reopen() {
    let config = StoreConfig::default().on_crash(OnCrash::Retry { max_attempts: 2 });
    let paper = Paper::default();
    let mut state = State::new(config.clone(), 1);
    let id = RequestId::from_bits(1);
    state.put(&paper, new(1), at(0)).unwrap();
    let lost = state.fetch("", 1, at(0)).remove(0).lease;
    for _ in 0..3 {
        assert!(state.append(&lost, Bytes::from_static(b"old")));
    }
    paper.write(&mut state);
    let mut state = paper.read(config, at(1));
    let lease = state.fetch("", 1, at(1)).remove(0).lease;
    assert!(state.append(&lease, Bytes::from_static(b"new")));
    let pieces = state.pieces(id, 2).unwrap();
    assert_eq!((pieces.first, pieces.last, pieces.has_gap), (4, 4, true));
}

#[test]
fn a_name_is_used_again_after_its_request_is_forgotten() {
    let config = StoreConfig::default().retention(Duration::from_secs(5));
    let paper = Paper::default();
    let mut state = State::new(config.clone(), 1);
    let id = RequestId::from_bits(1);
    state.put(&paper, new(1), at(0)).unwrap();
    state.cancel(id, paper.archive(), at(0)).unwrap();
    paper.write(&mut state);
    let known = state.put(&paper, new(1), at(4)).unwrap();
    assert!(matches!(known, Enqueued::Known(_)));
    let again = state.put(&paper, new(1), at(6)).unwrap();
    assert!(matches!(again, Enqueued::New(_)));
    paper.write(&mut state);
    // The rows of both are in one segment.
    assert_eq!(paper.0.segments().unwrap().len(), 1);
    let mut state = paper.read(config, at(7));
    let info = paper.get(&state, id, at(7)).unwrap();
    assert_eq!(info.status, RequestStatus::Queued);
    assert_eq!(state.fetch("", 9, at(7)).len(), 1);
}

#[test]
fn positions_among_many_are_close() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    let position = |state: &State, id: u128| state.position(RequestId::from_bits(id));
    for id in 1..=5_000 {
        state.put(&paper, new(id), at(0)).unwrap();
    }
    assert_eq!(position(&state, 4_000), Some(4_000));
    state.fetch("", 100, at(0));
    state.put(&paper, new(5_001), at(0)).unwrap();
    assert_eq!(position(&state, 4_000), Some(3_900));
    assert_eq!(position(&state, 101), Some(1));
    assert_eq!(position(&state, 5_001), Some(4_901));
    for id in 200..=3_000 {
        let id = RequestId::from_bits(id);
        state.cancel(id, paper.archive(), at(0)).unwrap();
    }
    assert_eq!(position(&state, 4_000), Some(3_900 - 2_801));
    assert_eq!(position(&state, 200), None);
}

#[test]
fn a_reader_of_an_old_attempt_is_told_of_a_gap() {
    let paper = Paper::default();
    let mut state = State::new(StoreConfig::default(), 1);
    let id = RequestId::from_bits(1);
    state.put(&paper, new(1), at(0)).unwrap();
    let first = state.fetch("", 1, at(0)).remove(0).lease;
    for _ in 0..3 {
        assert!(state.append(&first, Bytes::from_static(b"old")));
    }
    let again = Outcome::Retry {
        after: Duration::ZERO,
        counts: true,
    };
    assert!(state.finish(&first, again, at(0)));
    let second = state.fetch("", 1, at(0)).remove(0).lease;
    assert!(!state.append(&first, Bytes::new()));
    assert!(state.append(&second, Bytes::from_static(b"new")));
    let read = |after| {
        let pieces = state.pieces(id, after).unwrap();
        (pieces.first, pieces.last, pieces.has_gap)
    };
    assert_eq!(read(0), (4, 4, false));
    assert_eq!(read(2), (4, 4, true));
    assert_eq!(read(3), (4, 4, true));
    assert_eq!(read(4), (5, 4, false));
}

#[derive(Debug, Clone)]
enum Op {
    Enqueue {
        queue: u8,
        tenant: u8,
        level: u8,
        delay: u8,
        cancel_after: u8,
        has_key: bool,
    },
    Fetch {
        queue: u8,
        max: usize,
    },
    Called,
    Finish {
        nth: usize,
        outcome: u8,
    },
    Cancel(prop::sample::Index),
    Retry(prop::sample::Index),
    Pause {
        scope: u8,
        seconds: u8,
    },
    Resume(u8),
    Append(usize),
    Webhooks,
    Pass(u8),
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..2u8, 0..3u8, 0..3u8, 0..6u8, 0..20u8, any::<bool>()).prop_map(
            |(queue, tenant, level, delay, cancel_after, has_key)| Op::Enqueue {
                queue, tenant, level, delay, cancel_after, has_key,
            }
        ),
        5 => (0..2u8, 1..4usize).prop_map(|(queue, max)| Op::Fetch { queue, max }),
        1 => Just(Op::Called),
        5 => (0..8usize, 0..6u8).prop_map(|(nth, outcome)| Op::Finish { nth, outcome }),
        2 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        1 => any::<prop::sample::Index>().prop_map(Op::Retry),
        1 => (0..6u8, 0..10u8).prop_map(|(scope, seconds)| Op::Pause { scope, seconds }),
        1 => (0..6u8).prop_map(Op::Resume),
        1 => (0..8usize).prop_map(Op::Append),
        1 => Just(Op::Webhooks),
        3 => (0..10u8).prop_map(Op::Pass),
        1 => Just(Op::Crash),
    ]
}

fn scope(number: u8) -> PauseScope {
    match number {
        0 => PauseScope::All,
        1 | 2 => PauseScope::Queue(number.saturating_sub(1).to_string()),
        _ => PauseScope::Tenant(vec![number - 3]),
    }
}

impl State {
    /// Checks that all that is kept twice agrees.
    fn check(&self, now: Time) {
        let (mut live, mut ready) = (0, 0);
        for (slot, record) in &self.requests {
            let slot = slot as u32;
            assert_eq!(self.slot(record.id), Some(slot));
            let is_in_lists = record.is_listed && !record.has_ended();
            let listed = self.listed.get(&(record.tenant, record.seq));
            assert_eq!(listed, is_in_lists.then_some(&slot));
            let level = &self.queues[record.queue].levels[usize::from(record.level)];
            let waits = matches!(
                record.phase,
                Phase::Ready(_) | Phase::Delayed | Phase::Held | Phase::Aside
            );
            let is_ready = waits && record.phase != Phase::Delayed;
            let place = (record.arrival(), slot);
            assert_eq!(level.queued.contains(&place), is_ready);
            assert_eq!(record.extra().ended.is_some(), record.has_ended());
            assert!(record.phase != Phase::Outside);
            if !record.has_ended() {
                live += 1;
                if let Some(deadline) = record.deadline {
                    assert!(deadline > now, "it has not ended at its deadline");
                    assert!(self.deadlines.contains(&(deadline, slot)));
                }
            }
            match record.phase {
                Phase::Ready(_) => {
                    ready += 1;
                    assert!(record.extra().not_before.is_none_or(|begin| begin <= now));
                    assert!(!self.is_held(record.tenant));
                }
                Phase::Delayed => {
                    assert!(record.extra().not_before.is_some_and(|begin| begin > now));
                }
                Phase::Held => assert!(self.is_held(record.tenant)),
                Phase::Aside => {
                    let key = (record.tenant, record.queue, record.seq);
                    assert_eq!(self.aside[&key], slot);
                    let tenant = &self.tenants[record.tenant];
                    let ready = self.requests.iter().filter(|(_, other)| {
                        matches!(other.phase, Phase::Ready(_))
                            && (other.tenant, other.queue) == (record.tenant, record.queue)
                    });
                    let limit = self.config.max_running_per_tenant;
                    assert!(
                        tenant.running + ready.count() as u64 >= limit,
                        "it waits for nothing"
                    );
                }
                _ => {}
            }
        }
        assert_eq!(self.live, live);
        let lengths = self.queues.iter().map(|(_, queue)| queue.order.len());
        assert_eq!(lengths.sum::<usize>(), ready);
        assert_eq!(
            self.tenants
                .iter()
                .map(|(_, tenant)| tenant.live)
                .sum::<u64>(),
            live
        );
        let running = |record: &&Record| matches!(record.phase, Phase::Running { .. });
        let counted = self.queues.iter().flat_map(|(_, queue)| &queue.levels);
        let counted: u64 = counted.map(|level| level.running).sum();
        let running = self
            .requests
            .iter()
            .map(|(_, record)| record)
            .filter(running);
        assert_eq!(counted, running.count() as u64);
        assert_eq!(counted, self.running.len() as u64);
        let by_tenant = self.tenants.iter().map(|(_, tenant)| tenant.running);
        assert_eq!(by_tenant.sum::<u64>(), counted);
        assert!(self.config.max_running == 0 || counted <= self.config.max_running);
        assert!(self.next_event().is_none_or(|next| next > now));
    }
}

/// Checks that lists have exactly what is known, the newest first.
fn check_lists(paper: &Paper, state: &State, ids: &[RequestId], now: Time) {
    let known = ids.iter().rev().filter_map(|&id| paper.get(state, id, now));
    let known: Vec<RequestInfo> = known.collect();
    let statuses = RequestStatus::ALL.map(Some).into_iter().chain([None]);
    let tenants = [None, Some(vec![0]), Some(vec![1])];
    for (status, tenant) in statuses.flat_map(|status| tenants.clone().map(|of| (status, of))) {
        let is_meant = |info: &&RequestInfo| {
            status.is_none_or(|status| info.status == status)
                && tenant.as_ref().is_none_or(|tenant| info.tenant == *tenant)
        };
        let expected: Vec<_> = known.iter().filter(is_meant).map(|info| info.id).collect();
        let page = match status {
            Some(status) if !status.has_ended() => {
                state.list(status, tenant.as_deref(), 1_000, u64::MAX)
            }
            _ => {
                let part = Part {
                    tenant,
                    ended: status,
                    limit: 1_000,
                    before: u64::MAX,
                    retention: state.retention(now),
                };
                paper.archive().list(&part).unwrap()
            }
        };
        let listed: Vec<_> = page.requests.iter().map(|info| info.id).collect();
        assert_eq!(listed, expected, "{status:?}");
    }
}

fn model_config(discipline: Discipline) -> StoreConfig {
    let order = tower_triage::WaitingRoomConfig::default().discipline(discipline);
    StoreConfig::default()
        .order(order)
        .max_size(30)
        .retention(Duration::from_secs(20))
        .on_crash(OnCrash::Retry { max_attempts: 2 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_tables_agree_and_a_crash_changes_only_what_ran(
        ops in prop::collection::vec(op(), 1..120),
        discipline in prop::sample::select(vec![Discipline::Fifo, Discipline::Fair, Discipline::Deadline]),
        limit in 0..3u64,
    ) {
        let config = model_config(discipline)
            .max_running(3 * limit)
            .max_running_per_queue(2 * limit)
            .max_running_per_tenant(limit);
        let mut state = State::new(config.clone(), 1);
        let paper = Paper::default();
        let mut leases: Vec<Lease> = Vec::new();
        let mut ids: Vec<RequestId> = Vec::new();
        let mut seconds = 0;
        for op in ops {
            let now = at(seconds);
            state.advance(now);
            match op {
                Op::Enqueue { queue, tenant, level, delay, cancel_after, has_key } => {
                    let mut request = new(ids.len() as u128 + 1);
                    request.queue = queue.to_string();
                    request.tenant = vec![tenant];
                    request.level = level;
                    request.delay = (delay > 2).then(|| Duration::from_secs(delay.into()));
                    request.cancel_after = (cancel_after < 10).then(|| Duration::from_secs(cancel_after.into()));
                    request.idempotency = has_key.then(|| tower_triage_durable::Idempotency {
                        key: level.to_string(),
                        fingerprint: [0; 32],
                    });
                    request.webhook = has_key.then(|| "http://example.com".into());
                    ids.push(request.id);
                    let _ = state.put(&paper, request, now);
                }
                Op::Fetch { queue, max } => {
                    let started = state.fetch(&queue.to_string(), max, now);
                    leases.extend(started.into_iter().map(|started| started.lease));
                }
                Op::Called => leases.iter().for_each(|lease| state.called(lease)),
                Op::Finish { nth, outcome } if nth < leases.len() => {
                    let lease = leases[nth].clone();
                    let stands = state.stop(&lease).is_none();
                    let outcome = match outcome {
                        0 | 1 => Outcome::Responded { status: 200, response: Bytes::new() },
                        2 => Outcome::Responded { status: 500, response: Bytes::new() },
                        3 => Outcome::Failed { reason: "why".into() },
                        other => Outcome::Retry {
                            after: Duration::from_secs(u64::from(other) - 4),
                            counts: other == 4,
                        },
                    };
                    prop_assert_eq!(state.finish(&lease, outcome.clone(), now), stands);
                    prop_assert!(!state.finish(&lease, outcome, now));
                }
                Op::Cancel(index) if !ids.is_empty() => {
                    let info = state.cancel(*index.get(&ids), paper.archive(), now).unwrap();
                    prop_assert!(info.is_none_or(|info| info.status.has_ended()));
                }
                Op::Retry(index) if !ids.is_empty() => {
                    let info = state.retry(*index.get(&ids), paper.archive(), now).unwrap();
                    prop_assert!(info.is_none_or(|info| info.status != RequestStatus::Failed));
                }
                Op::Pause { scope: number, seconds } => {
                    let until = (seconds > 3).then(|| now.after(Duration::from_secs(seconds.into())));
                    let pause = Pause {
                        scope: scope(number),
                        reason: String::new(),
                        until: until.map(Time::to_system),
                    };
                    state.pause(pause, now);
                }
                Op::Resume(number) => {
                    state.resume(&scope(number), now);
                }
                Op::Append(nth) if nth < leases.len() => {
                    state.append(&leases[nth], Bytes::new());
                }
                Op::Webhooks => {
                    for due in state.due_webhooks(2, now) {
                        let again = (due.tries == 0).then(|| Duration::from_secs(3));
                        state.settle_webhook(due.info.id, due.retries, again, now);
                    }
                }
                Op::Pass(more) => seconds += u64::from(more),
                Op::Crash => {
                    paper.write(&mut state);
                    let known = |state: &State| {
                        let known = ids.iter().filter_map(|&id| paper.get(state, id, now));
                        known.collect::<Vec<_>>()
                    };
                    let before = known(&state);
                    let version = state.backlog(0);
                    let mut after = paper.read(config.clone(), now);
                    let new = known(&after);
                    prop_assert_eq!(new.len(), before.len());
                    for (new, old) in new.into_iter().zip(before) {
                        match old.status {
                            RequestStatus::Starting | RequestStatus::Processing => {
                                prop_assert!(matches!(new.status, RequestStatus::Queued | RequestStatus::Failed));
                            }
                            _ => prop_assert_eq!(new, old),
                        }
                    }
                    if leases.iter().all(|lease| state.stop(lease).is_some()) {
                        let heads = |backlog: tower_triage_durable::Backlog| {
                            let mut heads: Vec<_> = backlog.queues.iter().map(|head| (head.info.id, head.runnable)).collect();
                            heads.sort();
                            heads
                        };
                        // What a fair order has charged is forgotten, and who was set aside.
                        if discipline != Discipline::Fair && limit == 0 {
                            prop_assert_eq!(heads(after.backlog(0)), heads(version));
                        }
                    }
                    paper.write(&mut after);
                    leases.iter().for_each(|lease| assert!(after.stop(lease).is_some()));
                    state = after;
                }
                _ => {}
            }
            let now = at(seconds);
            state.advance(now);
            state.check(now);
            paper.write(&mut state);
            state.take_news();
            state.take_undo();
            check_lists(&paper, &state, &ids, now);
        }
        // In the end nothing is left behind.
        state.resume(&PauseScope::All, at(seconds));
        (0..6).for_each(|number| { state.resume(&scope(number), at(seconds)); });
        let now = at(seconds);
        for id in ids {
            state.cancel(id, paper.archive(), now).unwrap();
            let slot = state.slot(id);
            let retries = slot.map_or(0, |slot| state.record(slot).extra().retries);
            state.settle_webhook(id, retries, None, now);
        }
        paper.write(&mut state);
        state.advance(at(seconds + 60 + 21));
        paper.write(&mut state);
        prop_assert!(state.requests.is_empty() && state.by_key.is_empty() && state.webhooks.is_empty());
        prop_assert!(state.deadlines.is_empty() && state.delayed.is_empty() && state.listed.is_empty() && state.forgets.is_empty());
        prop_assert_eq!(state.queues.iter().count() + state.tenants.iter().count(), 0);
        prop_assert!(state.segments.is_empty() && paper.0.segments().unwrap().is_empty());
    }
}

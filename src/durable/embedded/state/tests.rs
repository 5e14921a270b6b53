use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::Discipline;
use crate::durable::embedded::row::{PauseRow, RequestRow};
use crate::durable::{
    Enqueued, Lease, Listing, NewRequest, OnCrash, Outcome, PauseScope, RequestStatus,
};

/// The written rows, as a disk keeps them.
#[derive(Default)]
struct Paper {
    requests: BTreeMap<RequestId, (u32, RequestRow)>,
    states: BTreeMap<RequestId, StateRow>,
    chunks: BTreeMap<RequestId, u64>,
    pauses: Vec<PauseRow>,
    dropped: Vec<u32>,
}

impl Paper {
    fn write(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Request {
                    segment, id, row, ..
                } => {
                    self.requests.insert(id, (segment, *row));
                }
                Write::NoRequest { id, .. } => {
                    self.requests.remove(&id);
                }
                Write::State { id, row, .. } => {
                    self.states.insert(id, *row);
                }
                Write::Chunk { id, number, .. } => {
                    self.chunks.insert(id, number);
                }
                Write::Pauses(rows) => self.pauses = rows,
                Write::DropSegment(segment) => {
                    self.requests.retain(|_, (other, _)| *other != segment);
                    self.dropped.push(segment);
                }
                _ => {}
            }
        }
    }

    fn read(&self, config: StoreConfig, now: Time) -> State {
        let mut state = State::new(config, 2);
        let requests = self.requests.iter();
        let requests = requests.map(|(id, (segment, row))| Recovered {
            segment: *segment,
            id: *id,
            row: row.clone(),
            state: self.states.get(id).cloned(),
            chunks: self.chunks.get(id).copied().unwrap_or(0),
        });
        let segments: Vec<u32> = self
            .requests
            .values()
            .map(|(segment, _)| *segment)
            .collect();
        state.recover(requests.collect(), self.pauses.clone(), &segments, now);
        state
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
    let mut state = State::new(StoreConfig::default().max_size(1), 1);
    let mut request = new(1);
    request.cancel_after = Some(Duration::from_secs(5));
    request.idempotency = Some(crate::durable::Idempotency {
        key: "k".into(),
        fingerprint: [0; 32],
    });
    for delay in [None, Some(Duration::from_secs(3)), Some(Duration::ZERO)] {
        request.delay = delay;
        assert!(matches!(
            state.enqueue(request.clone(), at(0)),
            Ok(Enqueued::New(_))
        ));
        let undo = state.take_undo();
        state.undo(undo, at(0));
        assert_eq!(state.get(RequestId::from_bits(1)), None);
        assert_eq!(state.next_event(), None);
        assert!(state.depths(at(0)).is_empty());
        assert!(state.fetch("", 1, at(0)).is_empty());
        assert!(state.by_key.is_empty() && state.by_age.is_empty() && state.by_tenant.is_empty());
    }
    // One that is over at once, too.
    request.cancel_after = Some(Duration::ZERO);
    state.enqueue(request.clone(), at(0)).unwrap();
    let undo = state.take_undo();
    state.undo(undo, at(0));
    assert_eq!((state.live, state.next_event()), (0, None));
    assert!(state.enqueue(new(2), at(0)).is_ok());
}

#[test]
fn a_segment_is_dropped_with_its_last_request() {
    let config = StoreConfig::default().retention(Duration::from_secs(600));
    let mut state = State::new(config, 1);
    let mut paper = Paper::default();
    for (id, second) in [(1, 0), (2, 1), (3, 200), (4, 201)] {
        state.enqueue(new(id), at(second)).unwrap();
    }
    for id in [1, 2, 3] {
        state.cancel(RequestId::from_bits(id), at(300)).unwrap();
    }
    paper.write(state.take_writes());
    assert!(paper.dropped.is_empty());
    state.advance(at(901));
    paper.write(state.take_writes());
    // The first two were alone in theirs; the fourth keeps that of the third.
    assert_eq!(paper.dropped.len(), 1);
    assert!(state.get(RequestId::from_bits(3)).is_none());
    assert!(state.get(RequestId::from_bits(4)).is_some());
    assert!(paper.requests.contains_key(&RequestId::from_bits(4)));
}

#[test]
fn positions_among_many_are_close() {
    let mut state = State::new(StoreConfig::default(), 1);
    let position = |state: &State, id: u128| state.position(RequestId::from_bits(id));
    for id in 1..=5_000 {
        state.enqueue(new(id), at(0)).unwrap();
    }
    assert_eq!(position(&state, 4_000), Some(4_000));
    state.fetch("", 100, at(0));
    state.enqueue(new(5_001), at(0)).unwrap();
    assert_eq!(position(&state, 4_000), Some(3_900));
    assert_eq!(position(&state, 101), Some(1));
    assert_eq!(position(&state, 5_001), Some(4_901));
    for id in 200..=3_000 {
        state.cancel(RequestId::from_bits(id), at(0));
    }
    assert_eq!(position(&state, 4_000), Some(3_900 - 2_801));
    assert_eq!(position(&state, 200), None);
}

#[test]
fn a_reader_of_an_old_attempt_is_told_of_a_gap() {
    let mut state = State::new(StoreConfig::default(), 1);
    let id = RequestId::from_bits(1);
    state.enqueue(new(1), at(0)).unwrap();
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
            assert_eq!(self.by_id[&record.id], slot);
            assert_eq!(self.by_age[&record.seq], slot);
            assert_eq!(self.by_tenant[&(record.tenant, record.seq)], slot);
            let level = &self.queues[record.queue].levels[usize::from(record.level)];
            let waits = matches!(
                record.phase,
                Phase::Ready(_) | Phase::Delayed | Phase::Held | Phase::Aside
            );
            assert_eq!(level.queued.contains(&record.seq), waits);
            assert_eq!(record.ended.is_some(), record.status().has_ended());
            assert!(record.phase != Phase::Outside);
            if record.ended.is_none() {
                live += 1;
                if let Some(deadline) = record.deadline {
                    assert!(deadline > now, "it has not ended at its deadline");
                    assert!(self.deadlines.contains(&(deadline, slot)));
                }
            }
            match record.phase {
                Phase::Ready(_) => {
                    ready += 1;
                    assert!(record.not_before.is_none_or(|begin| begin <= now));
                    assert!(!self.is_held(record.tenant));
                }
                Phase::Delayed => assert!(record.not_before.is_some_and(|begin| begin > now)),
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
        assert_eq!(self.running, counted);
        let by_tenant = self.tenants.iter().map(|(_, tenant)| tenant.running);
        assert_eq!(by_tenant.sum::<u64>(), counted);
        assert!(self.config.max_running == 0 || counted <= self.config.max_running);
        assert!(self.next_event().is_none_or(|next| next > now));
    }
}

fn model_config(discipline: Discipline) -> StoreConfig {
    let order = crate::WaitingRoomConfig::default().discipline(discipline);
    StoreConfig::default()
        .order(order)
        .max_size(30)
        .retention(Duration::from_secs(20))
        .on_crash(OnCrash::Retry { max_attempts: 2 })
}

fn listing() -> Listing {
    Listing {
        limit: 1_000,
        ..Listing::default()
    }
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
        let mut paper = Paper::default();
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
                    request.idempotency = has_key.then(|| crate::durable::Idempotency {
                        key: level.to_string(),
                        fingerprint: [0; 32],
                    });
                    request.webhook = has_key.then(|| "http://example.com".into());
                    ids.push(request.id);
                    let _ = state.enqueue(request, now);
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
                    let info = state.cancel(*index.get(&ids), now);
                    prop_assert!(info.is_none_or(|info| info.status.has_ended()));
                }
                Op::Retry(index) if !ids.is_empty() => {
                    let info = state.retry(*index.get(&ids), now);
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
                        state.settle_webhook(due.info.id, again, now);
                    }
                }
                Op::Pass(more) => seconds += u64::from(more),
                Op::Crash => {
                    paper.write(state.take_writes());
                    let before = state.list(&listing());
                    let version = state.backlog(0);
                    let mut after = paper.read(config.clone(), now);
                    for old in before.requests {
                        let new = after.get(old.id).unwrap();
                        match old.status {
                            RequestStatus::Starting | RequestStatus::Processing => {
                                prop_assert!(matches!(new.status, RequestStatus::Queued | RequestStatus::Failed));
                            }
                            _ => prop_assert_eq!(new, old),
                        }
                    }
                    if leases.iter().all(|lease| state.stop(lease).is_some()) {
                        let heads = |backlog: crate::durable::Backlog| {
                            let mut heads: Vec<_> = backlog.queues.iter().map(|head| (head.info.id, head.runnable)).collect();
                            heads.sort();
                            heads
                        };
                        // What a fair order has charged is forgotten, and who was set aside.
                        if discipline != Discipline::Fair && limit == 0 {
                            prop_assert_eq!(heads(after.backlog(0)), heads(version));
                        }
                    }
                    paper.write(after.take_writes());
                    leases.iter().for_each(|lease| assert!(after.stop(lease).is_some()));
                    state = after;
                }
                _ => {}
            }
            let now = at(seconds);
            state.advance(now);
            state.check(now);
            paper.write(state.take_writes());
            state.take_news();
            state.take_undo();
        }
        // In the end nothing is left behind.
        state.resume(&PauseScope::All, at(seconds));
        (0..6).for_each(|number| { state.resume(&scope(number), at(seconds)); });
        for id in ids {
            state.cancel(id, at(seconds));
        }
        state.advance(at(seconds + 21));
        prop_assert!(state.requests.is_empty() && state.by_key.is_empty() && state.webhooks.is_empty());
        prop_assert!(state.deadlines.is_empty() && state.delayed.is_empty() && state.forgets.is_empty());
        prop_assert_eq!(state.queues.iter().count() + state.tenants.iter().count(), 0);
    }
}

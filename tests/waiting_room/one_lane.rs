//! A queue that needs no lane does what one with a single lane does, whatever it is reconfigured to.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tower_triage::admit::{Pushed, Tenant, WaitQueue, WaiterId};
use tower_triage::{Discipline, Priority, PriorityLevels, RejectReason, Ticket, WaitingRoomConfig};

/// The same queue twice: its lanes have no name, so that it needs none for [`Discipline::Fifo`]; or one name.
struct Both {
    plain: WaitQueue<(), u32>,
    lane: WaitQueue<u8, u32>,
}

#[test]
fn a_queue_without_lanes_is_like_one_with_a_lane() {
    for seed in 0..50 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let begin = Instant::now();
    let first = config(&mut rng);
    let mut both = Both {
        plain: WaitQueue::new(first.clone(), begin),
        lane: WaitQueue::new(first, begin),
    };
    let mut ids: Vec<WaiterId> = Vec::new();
    let mut now = begin + Duration::from_secs(1_000);
    let crowd = if rng.u8(..8) == 0 { 1_500 } else { 30 };
    for step in 0..rng.u32(50..400) {
        both.advance(now);
        match rng.u8(..40) {
            0..14 => ids.extend(both.push(ticket(&mut rng, now), now, step)),
            14..18 => both.pop(),
            18..24 if !ids.is_empty() => {
                let id = ids[rng.usize(..ids.len())];
                assert_eq!(both.plain.remove(id), both.lane.remove(id));
            }
            24..28 => both.skip_and_pop(rng.usize(..6), rng.usize(..4), rng.bool()),
            28..32 => now += Duration::from_millis(rng.u64(..9_000)),
            32 => {
                let config = config(&mut rng);
                both.reconfigure(&config, now);
            }
            33 if rng.u8(..6) == 0 => {
                for nth in 0..crowd {
                    ids.extend(both.push(ticket(&mut rng, now), now, 1_000 * step + nth));
                }
            }
            34 if rng.u8(..4) == 0 => {
                for _ in 0..both.plain.len() {
                    both.pop();
                }
            }
            35 => assert_eq!(both.plain.reserve(), both.lane.reserve()),
            36 if rng.u8(..20) == 0 => both.close(rng.bool()),
            _ => {}
        }
        both.compare(&ids);
    }
}

fn config(rng: &mut Rng) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.levels = match rng.u8(..4) {
        0 => PriorityLevels::new(["c", "a"], "a").unwrap(),
        _ => PriorityLevels::new(["a", "b", "c"], "c").unwrap(),
    };
    config.discipline = match rng.u8(..4) {
        0 => Discipline::Fair,
        1 => Discipline::Deadline,
        _ => Discipline::Fifo,
    };
    let seconds = |rng: &mut Rng, most| Some(Duration::from_secs(rng.u64(..most)));
    config.max_size = rng.choice([0, 3, 10, 40, 10_000, usize::MAX]).unwrap();
    config.max_wait = if rng.bool() { seconds(rng, 60) } else { None };
    config.displace = rng.bool();
    match rng.u8(..4) {
        0 => config = config.level_weight("a", rng.u32(1..5)),
        1 => config.promote_after = seconds(rng, 20),
        _ => {}
    }
    if rng.u8(..4) == 0 {
        config.max_size_per_tenant = Some(rng.usize(1..20));
    }
    config
}

fn ticket(rng: &mut Rng, now: Instant) -> Ticket {
    let arrival =
        now - Duration::from_millis(rng.choice([0, 0, 0, rng.clone().u64(..20_000)]).unwrap());
    let mut ticket = Ticket::new(Priority(rng.u8(..4)), arrival);
    if rng.u8(..4) == 0 {
        ticket.deadline = Some(arrival + Duration::from_millis(rng.u64(..60_000)));
    }
    if rng.u8(..6) == 0 {
        ticket = ticket.requeued();
    }
    if rng.u8(..10) == 0 {
        ticket.client_retry = true;
    }
    ticket.tenant = Tenant::from(*rng.choice(&["", "a", "b"]).unwrap());
    ticket.cost(rng.u32(..5))
}

impl Both {
    fn advance(&mut self, now: Instant) {
        loop {
            let ended = self.plain.advance(now);
            assert_eq!(ended, self.lane.advance(now));
            let Some((id, _)) = ended else {
                return;
            };
            assert_eq!(self.plain.take(id), self.lane.take(id));
        }
    }

    fn push(&mut self, ticket: Ticket, now: Instant, item: u32) -> Option<WaiterId> {
        let pushed = self.plain.push(ticket.clone(), (), now, |_| item);
        assert_eq!(pushed, self.lane.push(ticket, 0, now, |_| item));
        let Pushed { id, displaced } = pushed.ok()?;
        if let Some(displaced) = displaced {
            assert_eq!(self.plain.take(displaced), self.lane.take(displaced));
        }
        Some(id)
    }

    fn pop(&mut self) {
        let next = self.peek();
        if let Some(next) = next {
            assert_eq!(self.plain.pop(next), self.lane.pop(next));
        }
    }

    fn peek(&self) -> Option<WaiterId> {
        let next = self.plain.peek();
        assert_eq!(next, self.lane.peek());
        next
    }

    fn skip_and_pop(&mut self, skip: usize, pop: usize, backwards: bool) {
        let mut skipped = Vec::new();
        for _ in 0..skip {
            if let Some(next) = self.peek() {
                skipped.push((self.plain.skip(next), self.lane.skip(next)));
            }
        }
        for _ in 0..pop {
            self.pop();
        }
        if backwards {
            skipped.reverse();
        }
        for (plain, lane) in skipped {
            self.plain.restore(plain);
            self.lane.restore(lane);
        }
    }

    fn reconfigure(&mut self, config: &WaitingRoomConfig, now: Instant) {
        let ended = self.plain.reconfigure(config.clone(), now);
        assert_eq!(ended, self.lane.reconfigure(config.clone(), now));
        self.take(ended.into_iter().map(|(id, _): (_, RejectReason)| id));
    }

    fn close(&mut self, at_once: bool) {
        if !at_once {
            self.plain.stop_accepting();
            self.lane.stop_accepting();
            return;
        }
        let ended = self.plain.close();
        assert_eq!(ended, self.lane.close());
        self.take(ended.into_iter());
    }

    fn take(&mut self, ids: impl Iterator<Item = WaiterId>) {
        for id in ids {
            assert_eq!(self.plain.take(id), self.lane.take(id));
        }
    }

    fn compare(&self, ids: &[WaiterId]) {
        let Self { plain, lane } = self;
        self.peek();
        assert_eq!(plain.in_order(), lane.in_order());
        assert_eq!(plain.in_order().len(), plain.len());
        assert_eq!((plain.len(), plain.stats()), (lane.len(), lane.stats()));
        assert_eq!(plain.next_timeout(), lane.next_timeout());
        assert_eq!(plain.oldest(), lane.oldest());
        assert_eq!(plain.has_room(), lane.has_room());
        for &id in ids.iter().rev().take(8) {
            assert_eq!(plain.waits(id), lane.waits(id));
            assert_eq!(plain.position(id), lane.position(id));
        }
    }
}

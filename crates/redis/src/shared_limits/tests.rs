//! Gateways, a ledger and a network that delays, repeats and loses messages, in simulated time.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{Ask, Grant, LeaseTimes, Ledger, Need, Share, fallback};

/// Milliseconds.
const LEASE: u64 = 1_000;

#[derive(Clone, Copy)]
struct Faults {
    /// Of 1,000 messages, the number that is lost.
    lost: u32,
    /// The longest time on the way, in milliseconds.
    delay: u64,
    /// Gateways are stopped for a while.
    freezes: bool,
    deaths: bool,
    /// The rates of the gateways' clocks differ from the ledger's by up to 5 %.
    drift: bool,
}

const NONE: Faults = Faults {
    lost: 0,
    delay: 1,
    freezes: false,
    deaths: false,
    drift: false,
};

const ALL: Faults = Faults {
    lost: 50,
    delay: 400,
    freezes: true,
    deaths: true,
    drift: true,
};

struct Gateway {
    share: Share,
    id: u64,
    rate: f64,
    frozen_until: u64,
    dead: bool,
    waiting: u32,
    /// The ends of the requests that run.
    running: Vec<u64>,
    served: u64,
    /// Questions after this time count as failed.
    answer_by: Option<(u64, u64)>,
}

enum Message {
    Ask(u64, Ask),
    Answer(u64, u64, Grant),
    Notice(u64, Grant),
}

struct World {
    rng: Rng,
    start: Instant,
    now: u64,
    slots: u32,
    faults: Faults,
    ledger: Ledger<u64>,
    gateways: Vec<Gateway>,
    /// With their times of arrival.
    network: Vec<(u64, Message)>,
    next_id: u64,
    asks: u64,
}

impl World {
    fn new(seed: u64, gateways: usize, slots: u32, faults: Faults) -> Self {
        let mut world = Self {
            rng: Rng::with_seed(seed),
            start: Instant::now(),
            now: 0,
            slots,
            faults,
            ledger: Ledger::default(),
            gateways: Vec::new(),
            network: Vec::new(),
            next_id: 0,
            asks: 0,
        };
        for _ in 0..gateways {
            let gateway = world.gateway();
            world.gateways.push(gateway);
        }
        world
    }

    fn gateway(&mut self) -> Gateway {
        self.next_id += 1;
        let rate = match self.faults.drift {
            true => 0.95 + 0.1 * self.rng.f64(),
            false => 1.0,
        };
        let times = LeaseTimes::of(Duration::from_millis(LEASE));
        Gateway {
            share: Share::new(times, local(self.start, self.now, rate)),
            id: self.next_id,
            rate,
            frozen_until: 0,
            dead: false,
            waiting: 0,
            running: Vec::new(),
            served: 0,
            answer_by: None,
        }
    }

    fn send(&mut self, message: Message) {
        if self.rng.u32(..1_000) < self.faults.lost {
            return;
        }
        let delay = 1 + self.rng.u64(..self.faults.delay);
        self.network.push((self.now + delay, message));
    }

    /// One millisecond. `arrive` says how many requests come to a gateway in it.
    fn step(&mut self, length: u64, arrive: &mut dyn FnMut(&mut Rng, usize) -> u32) {
        self.now += 1;
        let (due, later) = std::mem::take(&mut self.network)
            .into_iter()
            .partition(|(at, _)| *at <= self.now);
        self.network = later;
        let due: Vec<(u64, Message)> = due;
        for (_, message) in due {
            self.receive(message);
        }
        for nth in 0..self.gateways.len() {
            let waiting = arrive(&mut self.rng, nth);
            self.run(nth, length, waiting);
        }
        self.check();
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Ask(id, ask) => {
                let (grant, notices) = self.ledger.answer(&id, &ask, LEASE, self.now);
                self.send(Message::Answer(id, ask.seq, grant));
                for (id, grant) in notices {
                    self.send(Message::Notice(id, grant));
                }
            }
            Message::Answer(id, ..) | Message::Notice(id, _) => {
                let (start, now) = (self.start, self.now);
                let Some(gateway) = self.gateways.iter_mut().find(|it| it.id == id) else {
                    return;
                };
                if now < gateway.frozen_until {
                    // It reads what has come when it goes on.
                    return self.network.push((gateway.frozen_until, message));
                }
                let at = local(start, now, gateway.rate);
                match message {
                    Message::Answer(_, seq, grant) => gateway.share.on_answer(seq, grant, at),
                    Message::Notice(_, grant) => gateway.share.on_notice(grant, at),
                    Message::Ask(..) => {}
                }
            }
        }
    }

    fn run(&mut self, nth: usize, length: u64, arrived: u32) {
        let (start, now, slots) = (self.start, self.now, self.slots);
        let gateway = &mut self.gateways[nth];
        if gateway.dead || now < gateway.frozen_until {
            return;
        }
        if self.faults.freezes && self.rng.u32(..5_000) == 0 {
            gateway.frozen_until = now + self.rng.u64(..3 * LEASE);
            return;
        }
        if self.faults.deaths && self.rng.u32(..20_000) == 0 {
            gateway.dead = true;
            return;
        }
        let at = local(start, now, gateway.rate);
        gateway.running.retain(|&end| end > now);
        gateway.waiting += arrived;
        while gateway.waiting > 0 && (gateway.running.len() as u32) < gateway.share.cap(at) {
            gateway.waiting -= 1;
            gateway.served += 1;
            gateway.running.push(now + 1 + self.rng.u64(..2 * length));
        }
        let running = gateway.running.len() as u32;
        let need = Need {
            running,
            waiting: gateway.waiting,
            most: slots,
            ahead: 1,
        };
        gateway.share.observe(need, at);
        if let Some((seq, end)) = gateway.answer_by
            && now >= end
        {
            gateway.share.on_failed(seq, at);
            gateway.answer_by = None;
        }
        if gateway.share.is_due(at) {
            gateway.share.offer(at);
            let ask = gateway.share.ask(running, slots, at);
            gateway.answer_by = Some((ask.seq, now + 300));
            let id = gateway.id;
            self.asks += 1;
            self.send(Message::Ask(id, ask));
        }
    }

    fn check(&self) {
        assert!(self.ledger.leased(self.now) <= self.slots);
        let mut usable = 0;
        for gateway in self.gateways.iter().filter(|it| !it.dead) {
            let at = local(self.start, self.now, gateway.rate);
            let cap = gateway.share.cap(at);
            let leased = self.ledger.leased_by(&gateway.id, self.now);
            assert!(
                cap <= leased,
                "{} may use {cap}, and has {leased}: {:?}",
                gateway.id,
                gateway.share
            );
            usable += cap;
        }
        assert!(usable <= self.slots);
    }

    fn running(&self) -> u32 {
        let live = self.gateways.iter().filter(|it| !it.dead);
        let running = live.flat_map(|it| &it.running);
        running.filter(|&&end| end > self.now).count() as u32
    }
}

fn local(start: Instant, now: u64, rate: f64) -> Instant {
    start + Duration::from_secs_f64(now as f64 / 1_000.0 * rate)
}

#[test]
fn no_slot_is_used_beyond_what_is_leased() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let (gateways, slots) = (rng.usize(1..8), rng.u32(1..20));
        let mut world = World::new(seed, gateways, slots, ALL);
        for _ in 0..8_000 {
            world.step(100, &mut |rng, _| u32::from(rng.u32(..50) == 0));
            if world.rng.u32(..4_000) == 0 {
                let gateway = world.gateway();
                world.gateways.push(gateway);
            }
        }
    }
}

#[test]
fn all_slots_are_in_use_if_enough_requests_wait() {
    for (gateways, slots) in [(2, 8), (2, 1), (3, 8), (5, 3), (20, 8), (1, 8)] {
        let mut world = World::new(7, gateways, slots, NONE);
        let (mut used, steps) = (0, 20_000);
        for step in 0..steps + 1_000 {
            world.step(200, &mut |rng, _| u32::from(rng.u32(..20) == 0));
            if step >= 1_000 {
                used += u64::from(world.running());
            }
        }
        let share = used as f64 / (f64::from(slots) * f64::from(steps));
        assert!(share > 0.95, "{gateways} gateways, {slots} slots: {share}");
    }
}

#[test]
fn each_gateway_with_waiters_gets_slots_in_turn() {
    let mut world = World::new(3, 10, 2, NONE);
    for _ in 0..30_000 {
        // The first one alone would keep all slots busy.
        world.step(50, &mut |rng, nth| match nth {
            0 => u32::from(rng.u32(..5) == 0),
            _ => u32::from(rng.u32(..150) == 0),
        });
    }
    let served: Vec<u64> = world.gateways.iter().map(|it| it.served).collect();
    for (nth, gateway) in world.gateways.iter().enumerate().skip(1) {
        assert!(gateway.served > 60, "{nth}: {served:?}");
    }
}

#[test]
fn slots_of_a_dead_gateway_are_back_after_its_lease() {
    let mut world = World::new(1, 2, 8, NONE);
    for _ in 0..1_000 {
        world.step(100, &mut |_, nth| u32::from(nth == 0));
    }
    assert!(world.gateways[0].share.leased() >= 7);
    world.gateways[0].dead = true;
    // The other one asks again each third of the lease.
    let mut most = 0;
    for _ in 0..LEASE + LEASE / 3 + 10 {
        world.step(100, &mut |_, nth| u32::from(nth == 1));
        most = most.max(world.gateways[1].share.leased());
    }
    assert_eq!(most, 8);
}

#[test]
fn idle_slots_go_to_the_gateway_that_needs_them_at_once() {
    let mut world = World::new(1, 2, 8, NONE);
    for step in 0..100 {
        world.step(20, &mut |_, nth| u32::from(nth == 0 && step < 20));
    }
    assert!(world.gateways[0].share.leased() > 4);
    for _ in 0..20 {
        world.step(200, &mut |_, nth| u32::from(nth == 1));
    }
    assert_eq!(world.gateways[1].share.leased(), 8);
}

#[test]
fn a_gateway_without_requests_has_no_slots_and_asks_nothing() {
    let mut world = World::new(1, 2, 8, NONE);
    for step in 0..3 * LEASE {
        world.step(20, &mut |_, _| u32::from(step < 20));
    }
    assert_eq!(world.ledger.leased(world.now), 0);
    assert!(world.gateways.iter().all(|it| it.share.is_idle()));
    let asks = world.asks;
    for _ in 0..3 * LEASE {
        world.step(20, &mut |_, _| 0);
    }
    assert_eq!(world.asks, asks);
}

#[test]
fn the_lowest_configured_number_of_slots_holds() {
    let ask = |seq, slots| Ask {
        seq,
        keep: 0,
        want: 8,
        ahead: 0,
        slots,
    };
    let mut ledger = Ledger::default();
    let (first, _) = ledger.answer(&"a", &ask(1, 8), LEASE, 0);
    assert_eq!((first.slots, first.others), (8, 0));
    let (second, notices) = ledger.answer(&"b", &ask(1, 4), LEASE, 0);
    assert_eq!(second.slots, 0);
    // The 8 that "b" waits for, and the 4 that are too many.
    assert_eq!((notices[0].0, notices[0].1.others), ("a", 12));
    let keep = Ask {
        keep: 1,
        ..ask(2, 8)
    };
    let (first, notices) = ledger.answer(&"a", &keep, LEASE, 0);
    assert_eq!((first.slots, notices[0].1.slots), (2, 2));
}

#[test]
fn a_question_that_comes_late_changes_nothing() {
    let ask = |seq, keep| Ask {
        seq,
        keep,
        want: 8,
        ahead: 0,
        slots: 8,
    };
    let mut ledger = Ledger::default();
    ledger.answer(&1, &ask(2, 8), LEASE, 0);
    let (grant, _) = ledger.answer(
        &1,
        &Ask {
            want: 0,
            ..ask(1, 0)
        },
        LEASE,
        1,
    );
    assert_eq!(grant.slots, 8);
}

#[test]
fn without_a_ledger_gateways_have_an_equal_part_each() {
    let cases = [
        (8, Some(2), 4),
        (8, Some(3), 2),
        (8, Some(100), 1),
        (8, None, 1),
        (0, None, 0),
    ];
    for (slots, gateways, part) in cases {
        assert_eq!(fallback(slots, gateways), part, "{slots} {gateways:?}");
    }
}

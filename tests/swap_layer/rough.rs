//! Random configurations and rooms, other ones while requests wait and run, and launchers that are slow, fail and panic: no
//! instance runs twice, memory is never exceeded, and when all that is over each model can be used.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower_triage::admit::{Discipline, PriorityLevels, ReservedSlots};
use tower_triage::endpoints::{Endpoint, FallbackWhen, Model, Registry};
use tower_triage::route::RoutingConfig;
use tower_triage::swap::{AbandonedLoad, MatrixConfig, SwapConfig, SwapPolicy, Unload};
use tower_triage::{QueueConfig, RouteLayer};

use crate::fake::{Rig, Sent, model};

/// As long as a request may wait at most.
const LONG: Duration = Duration::from_secs(600);

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[tokio::test(start_paused = true)]
async fn all_models_can_be_used_after_any_schedule() {
    let seeds = match std::env::var("SWAP_SEEDS") {
        Ok(seeds) => {
            let (from, to) = seeds.split_once("..").unwrap();
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..60,
    };
    for seed in seeds {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let is_rough = rng.bool();
    let budget = rng.u32(1..4);
    let policy = rng.u32(0..4);
    let memory = (budget, budget == 3 && rng.bool(), policy);
    // In a group, one model of two instances; in the matrix, two.
    let budget = match policy {
        0 => 2,
        1 => 4,
        _ => budget,
    };
    let first = config(memory, rng);
    let longest = if rng.bool() {
        LONG
    } else {
        Duration::from_secs(rng.u64(5..60))
    };
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let rig = Rig::with(
        first,
        route.routing(routing(rng)).queue(queue(longest, rng)),
    );
    *rig.world.times.lock().unwrap() = Some(rng.fork());
    *rig.world.kill.lock().unwrap() = Duration::from_secs(rng.u64(0..4));
    let mut sent: Vec<Sent> = Vec::new();
    for _ in 0..80 {
        step(&rig, (memory, longest, is_rough), rng, &mut sent).await;
    }
    // Nothing panics or fails any more, and all models are there.
    rig.world.be_good();
    let mut last = config(memory, rng);
    last.models = NAMES.map(|name| model(name, 1.0)).to_vec();
    last.models.iter_mut().for_each(|model| model.ttl = None);
    if policy < 2 {
        last.policy = SwapPolicy::Groups(Vec::new());
        last.models.iter_mut().for_each(|model| model.memory = None);
    }
    last.default = None;
    rig.swap.reconfigure(last).unwrap();
    for sent in sent {
        let answered = timeout(Duration::from_secs(3_600), sent).await;
        match answered.unwrap_or_else(|_| panic!("seed {seed}: one is never answered")) {
            Ok((status, body, _)) => {
                assert!(is_known(status, &body), "seed {seed}: {status} {body}")
            }
            Err(error) => assert!(error.is_cancelled(), "seed {seed}: {error}"),
        }
    }
    assert_eq!(rig.router.status().depth, 0, "seed {seed}");
    sleep(Duration::from_secs(61)).await; // the longest backoff
    for name in NAMES {
        if rng.bool() || longest < LONG {
            rig.swap.load(name).unwrap();
            sleep(Duration::from_secs(60)).await;
        }
        let asked = timeout(Duration::from_secs(3_600), rig.ask(name, "normal")).await;
        let (status, body, _) = asked.unwrap_or_else(|_| panic!("seed {seed}: {name} is lost"));
        assert_eq!(status, StatusCode::OK, "seed {seed}: {body}");
    }
    let models = rig.swap.models();
    let waiting: usize = models.iter().map(|model| model.waiting).sum();
    let in_flight: u32 = models.iter().map(|model| model.in_flight).sum();
    assert_eq!((waiting, in_flight), (0, 0), "seed {seed}");
    sleep(Duration::from_secs(60)).await;
    for (name, status) in NAMES.iter().zip(rig.swap.models()) {
        let runs = rig.world.running().contains(&(*name).to_owned());
        let state = status.state.as_str();
        assert_eq!(state == "loaded", runs, "seed {seed}: {name} is {state}");
    }
    let twice = rig.world.twice.load(SeqCst);
    assert_eq!(twice, 0, "seed {seed}: instances ran twice");
    let most = rig.world.most_present.load(SeqCst);
    // What panics as it is stopped may still be there.
    let has_panicked = rig.world.panicked.load(SeqCst) > 0;
    assert!(
        most <= budget || has_panicked,
        "seed {seed}: {most} of {budget}"
    );
    let in_pool = rig
        .world
        .most_in_pool
        .each_ref()
        .map(|most| most.load(SeqCst));
    assert!(
        (in_pool[0] <= 1 && in_pool[1] <= 2) || has_panicked,
        "seed {seed}: {in_pool:?}"
    );
    let astray = rig.world.astray.load(SeqCst);
    assert!(astray == 0 || is_rough, "seed {seed}: {astray} went astray");
    rig.router.close();
    let shutdown = timeout(Duration::from_secs(3_600), rig.swap.shutdown()).await;
    assert!(shutdown.is_ok(), "seed {seed}: no end");
    assert!(rig.world.running().is_empty(), "seed {seed}");
    assert!(rig.world.is_empty(), "seed {seed}");
}

fn is_known(status: StatusCode, body: &str) -> bool {
    let codes = [
        "model_start_failed",
        "model_unloaded",
        "model_crashed",
        "model_not_found",
        "queue_timeout",
        "deadline",
        "overloaded",
        "no_healthy_backend",
        "fallback",
        "capability",
        "queue_full",
        "displaced",
    ];
    status == StatusCode::OK
        || status == StatusCode::BAD_GATEWAY
        || codes.iter().any(|code| body.contains(code))
}

/// How much memory there is, whether in two pools, and by its number what else says which models run together.
type Memory = (u32, bool, u32);

/// Some of the models, in some order.
fn config((budget, has_pools, policy): Memory, rng: &mut Rng) -> SwapConfig {
    let mut config = SwapConfig::memory(f64::from(budget));
    if has_pools {
        config.policy = SwapPolicy::Memory(vec![("g0".into(), 1.0), ("g1".into(), 2.0)]);
    }
    config.swap_after = Duration::from_secs(rng.u64(0..15));
    config.min_loaded = Duration::from_secs(rng.u64(0..10));
    if rng.bool() {
        config.abandoned_load = AbandonedLoad::Finish;
    }
    let mut names = NAMES;
    rng.shuffle(&mut names);
    for name in &names[..rng.usize(2..=NAMES.len())] {
        let mut one = model(name, 1.0).concurrency(rng.u32(1..4));
        one.ttl = rng.bool().then(|| Duration::from_secs(rng.u64(1..40)));
        one.instances = rng.u32(1..3);
        one.preload = rng.u32(0..8) == 0;
        one.pinned = rng.u32(0..12) == 0;
        one.model.vision = Some(rng.bool());
        one.cmd = format!("version {}", rng.u32(0..2));
        if rng.bool() {
            one.sleep_path = Some("/sleep".into());
            one.wake_path = Some("/wake".into());
        }
        config = config.model(one);
    }
    if rng.u32(0..4) == 0 {
        config.default = Some(names[0].into());
    }
    match policy {
        0 => config.policy = SwapPolicy::Groups(Vec::new()),
        1 => {
            let (some, others) = names[..config.models.len()].split_at(config.models.len() / 2);
            let set = format!("({}) & ({})", some.join(" | "), others.join(" | "));
            let mut matrix = MatrixConfig::default();
            matrix.sets = vec![("all".into(), set)];
            config.policy = SwapPolicy::Matrix(matrix);
        }
        _ => {}
    }
    if policy < 2 {
        config.models.iter_mut().for_each(|one| one.memory = None);
    }
    if config.validate().is_err() {
        config.models.iter_mut().for_each(|one| one.pinned = false); // they don't fit together
    }
    config
}

fn queue(longest: Duration, rng: &mut Rng) -> QueueConfig {
    let mut queue = QueueConfig::default().max_size(1_000);
    let room = &mut queue.room;
    room.max_wait = Some(longest);
    room.levels = PriorityLevels::new(["high", "normal", "low"], "normal").unwrap();
    room.discipline = match rng.u32(0..3) {
        0 => Discipline::Fifo,
        1 => Discipline::Fair,
        _ => Discipline::Deadline,
    };
    room.max_concurrent_per_tenant = rng.bool().then(|| rng.usize(1..4));
    room.promote_after = rng.bool().then(|| Duration::from_secs(rng.u64(1..30)));
    if rng.bool() && room.discipline != Discipline::Deadline && room.promote_after.is_none() {
        room.level_weights = [("high".to_owned(), 3), ("normal".to_owned(), 1)].into();
    } else if rng.bool() {
        let kept = ReservedSlots::Slots(rng.u32(1..3));
        room.reserve = [("high".to_owned(), kept)].into();
    }
    room.displace = rng.bool();
    if rng.u32(0..4) == 0 {
        room.max_size = rng.usize(1..6);
    }
    queue
}

fn routing(rng: &mut Rng) -> RoutingConfig {
    let mut routing = RoutingConfig::default().alias("gpt", "b");
    if rng.bool() {
        routing = routing.fallbacks("a", ["b", "c"]);
    }
    if rng.bool() {
        routing = routing.fallback_when(FallbackWhen::Busy);
    }
    routing
}

async fn step(
    rig: &Rig,
    (memory, longest, is_rough): (Memory, Duration, bool),
    rng: &mut Rng,
    sent: &mut Vec<Sent>,
) {
    let name = NAMES[rng.usize(0..NAMES.len())];
    match rng.u32(0..if is_rough { 28 } else { 24 }) {
        0..12 => sent.push(send(rig, name, rng).await),
        12..16 => sleep(Duration::from_millis(rng.u64(0..8_000))).await,
        16 if !sent.is_empty() => sent[rng.usize(0..sent.len())].abort(),
        17 => rig.swap.reconfigure(config(memory, rng)).unwrap(),
        18 => {
            rig.router.reconfigure(self::queue(longest, rng)).unwrap();
        }
        19 => _ = rig.swap.unload(name, Unload::Drain),
        20 => rig.swap.unload_all(Unload::Drain),
        21 => _ = rig.swap.load(name),
        22 => {
            let own = Endpoint::new("own", http::Uri::from_static("http://127.0.0.1:1"));
            let own = own.max_concurrent(rng.u32(1..3)).model(Model::new("f"));
            let changed = rig.router.change_endpoints(|all| *all = vec![own]);
            changed.unwrap();
        }
        23 => rig.swap.reconfigure(config(memory, rng)).unwrap(),
        24 => rig.world.crash(name),
        25 => rig.world.fail_next(name, 1),
        26 => _ = rig.swap.unload(name, Unload::Kill),
        // Where memory is not counted.
        _ if memory.0 == 3 => {
            let call = rng.choice(["start", "stop", "sleep", "kill"]).unwrap();
            rig.world.panic_at(&format!("{call} {name}"));
        }
        _ => {}
    }
}

/// Sends a request in a task of its own.
async fn send(rig: &Rig, name: &'static str, rng: &mut Rng) -> Sent {
    let name = if rng.u32(0..8) == 0 { "gpt" } else { name };
    let priority = rng.choice(["high", "normal", "low"]).unwrap();
    let tenant = rng.choice(["t", "u", "v"]).unwrap();
    let image = r#", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]"#;
    let more = if rng.u32(0..4) == 0 { image } else { "" };
    let rig = rig.clone();
    let task = tokio::spawn(async move {
        let headers = [("x-priority", priority), ("x-tenant-id", tenant)];
        rig.ask_with(name, &headers, more).await
    });
    tokio::task::yield_now().await;
    task
}

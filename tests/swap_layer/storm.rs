//! Threads that send requests as fast as they can while models are stopped whenever they are idle.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use tower_triage::endpoints::Registry;
use tower_triage::swap::SwapConfig;
use tower_triage::{QueueConfig, RouteLayer};

use crate::fake::{Rig, model};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_goes_to_what_is_being_stopped() {
    for seed in 0..2 {
        let rng = &mut Rng::with_seed(seed);
        let budget = rng.u32(1..4);
        let mut config = SwapConfig::memory(f64::from(budget));
        config.swap_after = Duration::from_millis(rng.u64(0..3));
        config.min_loaded = Duration::ZERO;
        for name in NAMES {
            let mut one = model(name, 1.0).concurrency(rng.u32(1..4));
            one.ttl = rng.bool().then(|| Duration::from_micros(rng.u64(1..2_000)));
            one.instances = rng.u32(1..3);
            config = config.model(one);
        }
        let queue = QueueConfig::default()
            .max_wait(Duration::from_secs(30))
            .max_size(1_000);
        let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).queue(queue);
        let mut rig = Rig::timed(config, route, Duration::ZERO, Duration::ZERO);
        rig.answer = Duration::ZERO;
        let tasks = (0..16).map(|nth| {
            let (rig, mut rng) = (rig.clone(), Rng::with_seed(1_000 * seed + nth));
            tokio::spawn(async move {
                for _ in 0..60 {
                    let name = NAMES[rng.usize(0..NAMES.len())];
                    let (status, body, _) = rig.ask(name, "normal").await;
                    assert_eq!(status, StatusCode::OK, "{body}");
                    if rng.u32(0..4) == 0 {
                        tokio::time::sleep(Duration::from_micros(rng.u64(0..3_000))).await;
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let astray = rig.world.astray.load(SeqCst);
        assert_eq!(astray, 0, "seed {seed}: {astray} went astray");
        let most = rig.world.most_present.load(SeqCst);
        assert!(most <= budget, "seed {seed}: {most} of {budget}");
        assert_eq!(rig.world.twice.load(SeqCst), 0, "seed {seed}");
        rig.router.close();
        rig.swap.shutdown().await;
        assert!(rig.world.is_empty(), "seed {seed}");
    }
}

//! Random requests, cancellations, crashes, failing starts and unloads: memory is never exceeded, nothing that serves is
//! stopped, and each request is answered.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use tokio::time::sleep;
use tower_triage::swap::{SwapConfig, Unload};

use crate::fake::{Rig, Sent, model};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[tokio::test(start_paused = true)]
async fn no_schedule_exceeds_the_memory_or_loses_a_request() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let budget = rng.u32(1..4);
        let mut config = SwapConfig::memory(f64::from(budget));
        config.swap_after = Duration::from_secs(rng.u64(0..15));
        config.min_loaded = Duration::from_secs(rng.u64(0..10));
        for name in NAMES {
            let mut one = model(name, 1.0).concurrency(rng.u32(1..4));
            one.ttl = rng.bool().then(|| Duration::from_secs(rng.u64(1..40)));
            one.instances = rng.u32(1..3);
            config = config.model(one);
        }
        let is_rough = seed % 2 == 1;
        let rig = Rig::new(config);
        let mut sent: Vec<Sent> = Vec::new();
        for _ in 0..80 {
            step(&rig, &mut rng, is_rough, &mut sent).await;
        }
        for sent in sent {
            match sent.await {
                Ok((status, body, _)) => {
                    let is_served = status == StatusCode::OK;
                    assert!(is_served || is_rough, "seed {seed}: {status} {body}");
                }
                Err(error) => assert!(error.is_cancelled(), "seed {seed}: {error}"),
            }
        }
        let most = rig.world.most_present.load(SeqCst);
        assert!(most <= budget, "seed {seed}: {most} of {budget}");
        let astray = rig.world.astray.load(SeqCst);
        assert!(astray == 0 || is_rough, "seed {seed}: {astray} went astray");
        assert_eq!(rig.router.status().depth, 0, "seed {seed}");
        rig.router.close();
        rig.swap.shutdown().await;
        assert!(rig.world.running().is_empty(), "seed {seed}");
    }
}

async fn step(rig: &Rig, rng: &mut Rng, is_rough: bool, sent: &mut Vec<Sent>) {
    let name = NAMES[rng.usize(0..NAMES.len())];
    match rng.u32(0..if is_rough { 20 } else { 16 }) {
        0..12 => {
            let priority = rng.choice(["high", "normal"]).unwrap();
            sent.push(rig.send(name, priority).await);
        }
        12..15 => sleep(Duration::from_millis(rng.u64(0..8_000))).await,
        15 => {
            if !sent.is_empty() {
                sent[rng.usize(0..sent.len())].abort();
            }
        }
        16 => rig.world.crash(name),
        17 => rig.world.fail_next(name, 1),
        18 => rig.swap.unload(name, Unload::Drain).unwrap(),
        _ => rig.swap.unload(name, Unload::Kill).unwrap(),
    }
}

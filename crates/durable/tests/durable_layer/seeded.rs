//! Random faults: whatever happens, each request that was accepted ends once, and was started at most once.

use std::collections::HashMap;

use fastrand::Rng;
use tower_triage_durable::StoreConfig;

use super::faulty::Faulty;
use super::support::{Ask, World, post, post_to, queue, store};

/// A request of a random level that ends in a random way.
fn random_request(rng: &mut Rng) -> Ask {
    let level = ["high", "normal", "batch"][rng.usize(..3)];
    let ask = post("stored").level(level);
    match rng.u32(..8) {
        0 => ask.header("x-panic", "yes"),
        1 => ask.header("x-status", "500"),
        2 => ask.header("cancel-after", "0.3"),
        3 => ask.header("not-before", "0.2"),
        _ => ask,
    }
}

async fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let faulty = Faulty::new(store(StoreConfig::default()));
    let world = World::over(faulty.clone(), queue(2), |layer| layer);
    let mut worker = world.work();
    let mut accepted = Vec::new();
    let mut online = Vec::new();
    let mut is_down = false;
    for _ in 0..150 {
        match rng.u32(..12) {
            0..4 => {
                let ask = random_request(&mut rng).header("prefer", "respond-async");
                let receipt = world.send(ask).await;
                if receipt.status == 202 {
                    accepted.push(receipt.json()["id"].as_str().unwrap().to_owned());
                }
            }
            4..6 => world.backend.finish(1),
            6 => online.push(world.spawn(post("online"))),
            7 => {
                if let Some(gone) = online.pop() {
                    gone.abort();
                }
            }
            8 => {
                if let Some(id) = rng.choice(&accepted) {
                    world
                        .send(post_to(&format!("/requests/{id}/cancel"), ""))
                        .await;
                }
            }
            9 => {
                worker.abort();
                worker = world.work();
            }
            10 => {
                is_down = !is_down;
                faulty.set_down(is_down);
            }
            _ => tokio::time::sleep(std::time::Duration::from_millis(rng.u64(..400))).await,
        }
        tokio::task::yield_now().await;
    }
    faulty.set_down(false);
    world.backend.finish(10_000);
    for id in &accepted {
        world
            .send(super::support::get(&format!("/requests/{id}?wait=60")))
            .await;
        let status = world.status(id).await;
        let ends = ["succeeded", "failed", "canceled", "aborted"];
        assert!(ends.contains(&&*status), "seed {seed}: {id} is {status}");
    }
    super::support::until("all slots are free", || world.queue.status().running == 0).await;
    let mut starts: HashMap<String, usize> = HashMap::new();
    for call in 0..world.backend.started().len() {
        if let Some(id) = world.backend.headers(call).get("x-triage-request-id") {
            *starts.entry(id.to_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert!(
        starts.values().all(|starts| *starts == 1),
        "seed {seed}: {starts:?}"
    );
    worker.abort();
}

#[tokio::test(start_paused = true)]
async fn no_fault_loses_or_repeats_a_request() {
    for seed in 0..60 {
        run(seed).await;
    }
}

//! Tests of gateways that share the slots of one backend.

use std::time::Duration;

use crate::backend::{Backend, BackendRequest};
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup};
use crate::redis_server::Server;

/// The slots of the backend.
const SLOTS: u32 = 8;

fn setup(url: &str, lease_seconds: f64, slots: u32, backend: &Backend) -> Setup {
    let section = format!(
        "[durable]\nstore = \"redis\"\nurl = {url:?}\nshared_limits = true\nlease_seconds = {lease_seconds}\n"
    );
    let setup = Setup::new().top("[admin]\nlisten = \"127.0.0.1:0\"\n");
    let setup = setup.queue("max_wait_seconds = 60");
    setup
        .sections(&section)
        .backend("gpu-1", backend, slots, &["m"])
}

async fn gateway(redis: &Server, lease_seconds: f64, backend: &Backend) -> Gateway {
    setup(&redis.url(), lease_seconds, SLOTS, backend)
        .start()
        .await
}

fn send(gateway: &Gateway, requests: u32) -> Vec<PendingResponse> {
    (0..requests).map(|_| gateway.ask("m").send()).collect()
}

async fn next(backend: &Backend, requests: u32) -> Vec<BackendRequest> {
    let mut arrived = Vec::new();
    for _ in 0..requests {
        arrived.push(backend.next().await);
    }
    arrived
}

/// Stops a gateway, and waits until none of its threads runs.
async fn stop(gateway: &Gateway) {
    gateway.signal("STOP");
    let is_stopped = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
        let mut stats = threads.map(|it| std::fs::read_to_string(it.unwrap().path().join("stat")));
        stats.all(|stat| stat.unwrap().contains(") T "))
    };
    while !is_stopped() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn all_are_served(pending: Vec<PendingResponse>) {
    for pending in pending {
        pending.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn two_gateways_together_use_the_slots_of_one() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    let first = gateway(&redis, 30.0, &backend).await;
    let second = gateway(&redis, 30.0, &backend).await;
    let mut pending = send(&first, 20);
    pending.extend(send(&second, 20));
    let mut running = next(&backend, SLOTS).await;
    for _ in SLOTS..40 {
        running.remove(0).answer("fine");
        running.push(backend.next().await);
    }
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(pending).await;
    assert_eq!(backend.counts().peak, SLOTS as usize);
}

#[tokio::test]
async fn slots_of_a_killed_gateway_are_used_after_its_lease() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    let mut killed = gateway(&redis, 3.0, &backend).await;
    let other = gateway(&redis, 3.0, &backend).await;
    let lost = send(&killed, SLOTS);
    let running = next(&backend, SLOTS).await;
    let pending = send(&other, SLOTS);
    other.depth(SLOTS.into()).await;
    killed.signal("KILL");
    killed.exit().await;
    drop((lost, running));
    let running = next(&backend, SLOTS).await;
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(pending).await;
    assert_eq!(backend.counts().peak, SLOTS as usize);
}

#[tokio::test]
async fn a_gateway_that_was_stopped_past_its_lease_sends_nothing_without_slots() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    let stopped = gateway(&redis, 3.0, &backend).await;
    let other = gateway(&redis, 3.0, &backend).await;
    let mut pending = send(&stopped, SLOTS);
    let running = next(&backend, SLOTS).await;
    let waiting = send(&stopped, 4);
    stopped.depth(4).await;
    stop(&stopped).await;
    running.into_iter().for_each(|it| it.answer("fine"));
    let others = send(&other, SLOTS);
    let running = next(&backend, SLOTS).await;
    stopped.signal("CONT");
    // It learns only now that its requests have ended, and has slots by its own count.
    all_are_served(std::mem::take(&mut pending)).await;
    stopped.depth(4).await;
    assert_eq!(backend.more().await, 0);
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(others).await;
    let running = next(&backend, 4).await;
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(waiting).await;
    assert_eq!(backend.counts().peak, SLOTS as usize);
}

#[tokio::test]
async fn slots_are_given_back_when_a_gateway_shuts_down() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    // Without that, the other one would have to wait for the end of the lease.
    let mut ended = gateway(&redis, 600.0, &backend).await;
    let other = gateway(&redis, 600.0, &backend).await;
    let pending = send(&ended, SLOTS);
    let running = next(&backend, SLOTS).await;
    ended.signal("TERM");
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(pending).await;
    assert!(ended.exit().await.success());
    let pending = send(&other, SLOTS);
    let running = next(&backend, SLOTS).await;
    running.into_iter().for_each(|it| it.answer("fine"));
    all_are_served(pending).await;
}

#[tokio::test]
async fn without_redis_requests_go_on_after_the_lease() {
    let (mut redis, backend) = (Server::start(), Backend::replying("fine").await);
    let before = gateway(&redis, 3.0, &backend).await;
    before.ask("m").answer().await.assert_ok("fine");
    redis.kill();
    before
        .logs(&["WARN", "shared limits: Redis can't be reached"])
        .await;
    // It has never reached Redis.
    let after = gateway(&redis, 3.0, &backend).await;
    all_are_served(send(&before, 20)).await;
    all_are_served(send(&after, 20)).await;
    redis.run();
    before
        .logs(&["shared limits: connected to Redis again"])
        .await;
    all_are_served(send(&before, 20)).await;
}

#[tokio::test]
async fn a_full_redis_stops_no_request_that_is_not_stored() {
    let (redis, backend) = (Server::start(), Backend::replying("fine").await);
    let gateway = gateway(&redis, 3.0, &backend).await;
    gateway.ask("m").answer().await.assert_ok("fine");
    redis.ask("CONFIG SET maxmemory 1");
    gateway
        .logs(&["WARN", "shared limits: Redis can't be reached", "OOM"])
        .await;
    all_are_served(send(&gateway, 20)).await;
    redis.ask("CONFIG SET maxmemory 0");
    gateway
        .logs(&["shared limits: connected to Redis again"])
        .await;
    all_are_served(send(&gateway, 20)).await;
}

#[tokio::test]
async fn the_lowest_number_of_slots_holds_for_all_gateways() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    let low = setup(&redis.url(), 600.0, 2, &backend).start().await;
    let held = low.ask("m").send();
    let first = backend.next().await;
    let high = gateway(&redis, 600.0, &backend).await;
    let pending = send(&high, 6);
    // A gateway without requests takes no part, so `low` has one until the end.
    for _ in 0..6 {
        backend.next().await.answer("fine");
    }
    high.logs(&["WARN", "fewer slots", "gpu-1"]).await;
    all_are_served(pending).await;
    first.answer("fine");
    held.answer().await.assert_ok("fine");
    assert_eq!(backend.counts().peak, 2);
}

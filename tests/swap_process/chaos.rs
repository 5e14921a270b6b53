//! Everything at once: requests, crashes, frozen processes, operators without patience, other configurations.

use std::time::Instant;

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_triage::SwapLayer;
use tower_triage::route::{Route, RouteBody};
use tower_triage::swap::{SwapConfig, SwapHandle, Unload};
use tower_triage::upstream::Forward;

use super::*;

type Body = RouteBody<Full<Bytes>>;
type Service = Route<Forward<Body>>;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Models of which two fit, in one of their forms.
fn config(mark: &str, rng: &mut Rng) -> SwapConfig {
    let mut config = SwapConfig::memory(2.0);
    config.swap_after = Duration::from_millis(rng.u64(0..100));
    config.min_loaded = Duration::from_millis(rng.u64(0..100));
    config.health_timeout = Duration::from_secs(10); // for one that is frozen while it starts
    for name in NAMES {
        let mut model = match rng.u32(0..4) {
            0 => script("sleep 3600 & sleep 3600"), // it runs, and listens to nothing
            _ => server(),
        };
        model.model.name = name.to_owned();
        model.memory = Some(1.0);
        model.env.insert("SWAP_MARK".into(), mark.into());
        model.ttl = rng.bool().then(|| Duration::from_millis(rng.u64(1..200)));
        model.health_interval = Some(Duration::from_millis(50));
        model.stop_grace = Duration::from_millis(rng.u64(1..300));
        model.settle = Duration::from_millis(rng.u64(0..20));
        model.pinned = name == "a" && rng.bool();
        config = config.model(model);
    }
    config
}

async fn ask(service: &Service, model: &str, path: &str) -> (StatusCode, String) {
    let body = Full::new(Bytes::from(format!(r#"{{"model": "{model}"}}"#)));
    let request = Request::post(path).body(body).unwrap();
    let response = soon(service.clone().oneshot(request)).await.unwrap();
    let status = response.status();
    match response.into_body().collect().await {
        Ok(body) => (status, String::from_utf8(body.to_bytes().to_vec()).unwrap()),
        // Its process ended in the middle of it.
        Err(_) => (StatusCode::BAD_GATEWAY, String::new()),
    }
}

async fn operate(handle: &SwapHandle, mark: &Mark, value: &str, rng: &mut Rng) {
    let name = NAMES[rng.usize(0..NAMES.len())];
    let how = if rng.bool() {
        Unload::Drain
    } else {
        Unload::Kill
    };
    match rng.u32(0..10) {
        0 | 1 => handle.unload(name, how).unwrap(),
        2 => handle.unload_all(how),
        3 | 4 => handle.load(name).unwrap(),
        5 => handle.reconfigure(config(value, rng)).unwrap(),
        signal @ (6 | 7) => {
            let signal = if signal == 6 {
                Signal::STOP
            } else {
                Signal::KILL
            };
            let pids = mark.pids();
            if !pids.is_empty() {
                let pid = pids[rng.usize(0..pids.len())];
                _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
            }
        }
        _ => {}
    }
    sleep(Duration::from_millis(rng.u64(0..60))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_each_request_is_answered_and_nothing_is_left() {
    let seed = std::env::var("SWAP_SEED").map_or(7, |seed| seed.parse().unwrap());
    let seconds = std::env::var("SWAP_SECONDS").map_or(5, |time| time.parse().unwrap());
    let mut rng = Rng::with_seed(seed);
    let mut marked = script("");
    let mark = Mark::on(&mut marked);
    let value = marked.env["SWAP_MARK"].clone();
    let layer = SwapLayer::builder(config(&value, &mut rng))
        .try_build()
        .unwrap();
    let service: Service = layer.layer(Forward::new());
    let handle = layer.handle();
    let end = Instant::now() + Duration::from_secs(seconds);
    let clients = (0..6).map(|_| {
        let (service, mut rng) = (service.clone(), rng.fork());
        tokio::spawn(async move {
            let mut counts = std::collections::BTreeMap::<String, u32>::new();
            while Instant::now() < end {
                let path = ["/asks", "/slow/20", "/slow/300", "/exit", "/flood/1000000"];
                let path = path[rng.usize(0..path.len())];
                let name = NAMES[rng.usize(0..NAMES.len())];
                let patience = match rng.u32(0..4) {
                    0 => Duration::from_millis(rng.u64(0..50)),
                    _ => HOUR,
                };
                let answer = timeout(patience, ask(&service, name, path)).await;
                let Ok((status, body)) = answer else { continue };
                let code = body.split("\"code\":").nth(1).unwrap_or("").to_owned();
                *counts.entry(format!("{status} {code}")).or_default() += 1;
            }
            counts
        })
    });
    let clients: Vec<_> = clients.collect();
    while Instant::now() < end {
        operate(&handle, &mark, &value, &mut rng).await;
    }
    for client in clients {
        println!("{:?}", client.await.unwrap());
    }
    let mut last = config(&value, &mut rng);
    for model in &mut last.models {
        let program = server();
        model.cmd = program.cmd;
        model.env.extend(program.env);
        model.health_path = program.health_path;
    }
    handle.reconfigure(last).unwrap();
    for name in NAMES {
        let served = async { while ask(&service, name, "/asks").await.0 != StatusCode::OK {} };
        soon(served).await;
    }
    layer.router().close();
    soon(handle.shutdown()).await;
    mark.until_count(0).await;
    for model in handle.models() {
        assert_eq!((model.running, model.in_flight, model.waiting), (0, 0, 0));
    }
}

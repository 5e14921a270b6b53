//! One model at a time: loads, joins, failures, crashes, unloads.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::{Decision, NoResponse, Registry, Requirements};
use tower_triage::swap::{AbandonedLoad, UnknownModel, Unload};
use tower_triage::{Priority, QueueConfig, RouteLayer, Ticket};

use crate::fake::{ANSWER, LOAD, Rig, one_of_three, serve};

#[tokio::test(start_paused = true)]
async fn a_model_is_started_when_it_is_asked_for() {
    let rig = Rig::new(one_of_three());
    assert_eq!(rig.state("a"), "unloaded");
    let sent = rig.send("a", "normal").await;
    rig.settle().await;
    assert_eq!(rig.state("a"), "loading");
    assert_eq!(sent.await.unwrap(), (StatusCode::OK, "a".into(), 11));
    assert_eq!(rig.state("a"), "loaded");
    // It is there now.
    assert_eq!(
        rig.ask("a", "normal").await,
        (StatusCode::OK, "a".into(), 12)
    );
    assert_eq!(rig.world.log(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_acquired_ahead_starts_its_model() {
    let rig = Rig::new(one_of_three());
    let gate = rig.router.gate();
    let demand = |model| gate.capacity().demand(&Requirements::new(model));
    let ticket = || Ticket::from(Priority(1)).patient();
    let mut waiting = gate.acquire(ticket(), demand("a"));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    // Before the driver has seen it, another model is more urgent.
    assert!(waiting.set_ticket(ticket(), demand("b")));
    let permit = waiting.await.unwrap();
    assert_eq!((rig.state("a"), rig.state("b")), ("unloaded", "loaded"));
    let echo = service_fn(|request: Request<_>| async move {
        let decision = request.extensions().get::<Decision>().unwrap();
        let served = Bytes::from(decision.model.to_string());
        Ok::<_, Infallible>(Response::new(Full::new(served)))
    });
    let mut request = Request::new(Full::new(Bytes::from(r#"{"model": "b"}"#)));
    request.extensions_mut().insert(permit.into_extension());
    let response = rig.layer.layer(echo).oneshot(request).await.unwrap();
    assert_eq!(gate.status().running, 1);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "b");
    assert_eq!(gate.status().running, 0);
    assert_eq!(rig.world.log(), ["start b"]);
}

#[tokio::test(start_paused = true)]
async fn requests_for_one_model_join() {
    let rig = Rig::new(one_of_three());
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(rig.send("b", "normal").await);
    }
    rig.settle().await;
    let status = rig.swap.models();
    assert_eq!((status[1].waiting, status[1].in_flight), (5, 0));
    for (nth, sent) in (0..).zip(sent) {
        assert_eq!(sent.await.unwrap(), (StatusCode::OK, "b".into(), 11 + nth));
    }
    assert_eq!(rig.world.log(), ["start b"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_model_makes_room() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(10)).await; // min_loaded is over
    assert_eq!(
        rig.ask("b", "normal").await,
        (StatusCode::OK, "b".into(), 33)
    );
    assert_eq!(rig.world.log(), ["start a", "stop a", "start b"]);
    assert_eq!((rig.state("a"), rig.state("b")), ("unloaded", "loaded"));
    assert_eq!(rig.world.running(), ["b"]);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_cannot_be_started_says_so_and_is_tried_again_later() {
    let rig = Rig::new(one_of_three());
    rig.world.fail_next("a", 1);
    let first = rig.send("a", "normal").await;
    let second = rig.send("a", "normal").await;
    for sent in [first, second] {
        let (status, body, at) = sent.await.unwrap();
        assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 10));
        assert!(body.contains("model_start_failed"), "{body}");
        assert!(!body.contains("does not want"), "{body}");
    }
    assert_eq!(rig.state("a"), "failed");
    // Too early, so at once.
    let (status, _, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 10));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.world.log(), ["start a", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_model_is_started_again_when_it_is_asked_for() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    rig.world.crash("a");
    rig.settle().await;
    assert_eq!(rig.state("a"), "unloaded");
    assert_eq!(
        rig.swap.models()[0].last_error.as_deref(),
        Some("it fell over")
    );
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.world.log(), ["start a", "kill a", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_awaits_a_start_keeps_its_place_in_a_full_room() {
    let queue = QueueConfig::default().max_size(1).max_wait(LOAD * 10);
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let rig = Rig::with(one_of_three(), route.queue(queue));
    rig.ask("a", "normal").await;
    let (world, is_refused) = (rig.world.clone(), Arc::new(AtomicBool::new(false)));
    let engine = rig.in_front_of(service_fn(move |request: Request<_>| {
        let decision = request.extensions().get::<Decision>().unwrap().clone();
        let (world, is_refused) = (world.clone(), is_refused.clone());
        async move {
            if is_refused.swap(true, SeqCst) {
                return serve(world, decision, ANSWER).await;
            }
            sleep(ANSWER).await;
            let mut refused = Response::new(Full::default());
            *refused.status_mut() = StatusCode::BAD_GATEWAY;
            refused.extensions_mut().insert(NoResponse::Unreachable);
            Ok(refused)
        }
    }));
    let request = Request::new(Full::new(Bytes::from(r#"{"model": "a"}"#)));
    let refused = tokio::spawn(engine.oneshot(request));
    rig.settle().await;
    let waits = rig.send("a", "normal").await;
    assert_eq!(rig.ask("a", "normal").await.0, 503, "the room is full");
    rig.world.crash("a");
    assert_eq!(refused.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(waits.await.unwrap().0, StatusCode::OK);
    assert_eq!(rig.world.log(), ["start a", "kill a", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_model_that_is_stopped_is_started_again_once_all_of_it_is_gone() {
    let rig = Rig::new(one_of_three());
    *rig.world.kill.lock().unwrap() = Duration::from_secs(20);
    rig.ask("a", "normal").await;
    rig.world.crash("a");
    rig.settle().await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.settle().await;
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    // There is nothing left that could be asked to stop.
    let log = rig.world.log();
    assert_eq!(log, ["start a", "kill a", "kill a", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_all_have_left_is_given_up_if_so_configured() {
    let mut config = one_of_three();
    config.abandoned_load = AbandonedLoad::Abort;
    let rig = Rig::new(config);
    let sent = rig.send("a", "normal").await;
    rig.settle().await;
    sent.abort();
    rig.settle().await;
    rig.settle().await;
    assert_eq!(rig.state("a"), "unloaded");
    sleep(Duration::from_secs(60)).await;
    assert!(rig.world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_the_load_ends_is_served_when_it_comes_back() {
    let rig = Rig::new(one_of_three());
    for _ in 0..4 {
        let sent = rig.send("a", "normal").await;
        sleep(Duration::from_secs(1)).await;
        sent.abort();
        rig.settle().await;
    }
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.world.log(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn an_unloaded_model_finishes_what_it_serves_and_refuses_what_waits() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let served = rig.send("a", "normal").await;
    let waits = rig.send("a", "normal").await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    let (status, body, at) = waits.await.unwrap();
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 11));
    assert!(body.contains("model_unloaded"), "{body}");
    assert_eq!(served.await.unwrap(), (StatusCode::OK, "a".into(), 12));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.state("a"), "unloaded");
    assert_eq!(rig.world.log(), ["start a", "stop a"]);
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    let unknown = rig.swap.unload("z", Unload::Drain);
    assert_eq!(unknown, Err(UnknownModel("z".into())));
}

#[tokio::test(start_paused = true)]
async fn a_load_is_given_up_when_the_model_is_unloaded() {
    let rig = Rig::new(one_of_three());
    let waits = rig.send("a", "normal").await;
    rig.settle().await;
    rig.swap.unload_all(Unload::Drain);
    let (status, body, _) = waits.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("model_unloaded"), "{body}");
    sleep(Duration::from_secs(60)).await;
    assert!(rig.world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_model_is_stopped_after_a_while() {
    let mut config = one_of_three();
    config.models[0].ttl = Some(Duration::from_secs(30));
    let rig = Rig::new(config);
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(20)).await;
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(29)).await;
    assert_eq!(rig.state("a"), "loaded");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.state("a"), "unloaded");
}

/// However a response ends, 100 s after it began, its model is idle from then on.
#[tokio::test(start_paused = true)]
async fn a_model_is_idle_since_its_last_response_ended() {
    for (status, breaks_off, is_read) in [
        (200, false, true),
        (200, true, true),
        (200, false, false),
        (500, false, true),
    ] {
        let mut config = one_of_three();
        config.models[0].ttl = Some(Duration::from_secs(30));
        let rig = Rig::new(config);
        rig.ask("a", "normal").await;
        let service = rig.in_front_of(tower::service_fn(move |_: Request<_>| async move {
            let begin = stream::iter([Ok(Frame::data(Bytes::from("x")))]);
            let end = stream::once(async move {
                sleep(Duration::from_secs(100)).await;
                match breaks_off {
                    true => Err(std::io::Error::other("broken off")),
                    false => Ok(Frame::data(Bytes::from("y"))),
                }
            });
            let body = StreamBody::new(begin.chain(end).boxed());
            let response = Response::builder().status(status).body(body).unwrap();
            Ok::<_, Infallible>(response)
        }));
        let request = Request::new(Full::new(Bytes::from(r#"{"model": "a"}"#)));
        let mut body = service.oneshot(request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        match is_read {
            true => assert_eq!(body.collect().await.is_err(), breaks_off),
            false => {
                sleep(Duration::from_secs(100)).await;
                drop(body);
            }
        }
        sleep(Duration::from_secs(29)).await;
        assert_eq!(rig.state("a"), "loaded", "{status} {breaks_off} {is_read}");
        sleep(Duration::from_secs(3)).await;
        assert_eq!(rig.state("a"), "unloaded");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_after_a_shutdown() {
    let mut config = one_of_three();
    config.policy = tower_triage::swap::SwapPolicy::Memory(vec![("all".into(), 9.0)]);
    let rig = Rig::new(config);
    tokio::join!(rig.ask("a", "normal"), rig.ask("b", "normal"));
    let waits = rig.send("c", "normal").await;
    rig.settle().await;
    rig.router.close();
    rig.router.closed().await;
    rig.swap.shutdown().await;
    assert!(rig.world.running().is_empty());
    assert!(waits.await.unwrap().1.contains("shutting_down"));
}

#[tokio::test(start_paused = true)]
async fn models_end_with_their_layer() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let world = rig.world.clone();
    drop(rig);
    sleep(Duration::from_millis(1)).await;
    assert!(world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_told_how_far_the_load_has_come() {
    let mut config = one_of_three();
    config.models[0].ttl = Some(Duration::from_secs(1));
    let rig = Rig::new(config);
    // No load has taken any time yet.
    let first = rig.ask_with_status("a").await;
    assert!(
        first.contains(": queue position=1 state=loading\n"),
        "{first}"
    );
    assert!(!first.contains("progress"), "{first}");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.state("a"), "unloaded");
    let second = rig.ask_with_status("a").await;
    let said = ": queue position=1 state=loading progress=0.50\n";
    assert!(second.contains(said), "{second}");
    assert!(second.ends_with("data: a\n\n"), "{second}");
}

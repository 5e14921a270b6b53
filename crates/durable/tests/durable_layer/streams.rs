//! Streams of events: as they come, again from any of them, and their ends.

use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;

use super::support::{Body, World, get, post, post_to};

async fn next(response: &mut Response<Body>) -> Option<String> {
    let frame = response.body_mut().frame().await?.unwrap();
    let data = frame.into_data().unwrap();
    Some(String::from_utf8(data.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_come_as_they_are_made_and_again() {
    let world = World::new(1);
    world.work();
    let events = world.backend.stream();
    let id = world.store(post("a").header("x-stream", "yes")).await;
    let path = format!("/requests/{id}/stream");
    let mut stream = world.open(get(&path)).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    events.send("data: 1\n").unwrap();
    events.send("\ndata: 2").unwrap();
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\nid: 1\n\n");
    events.send("\r\n\r\n").unwrap();
    assert_eq!(next(&mut stream).await.unwrap(), "data: 2\nid: 2\n\n");
    world.until_status(&id, "processing").await;
    drop(events);
    assert_eq!(next(&mut stream).await, None);
    world.until_status(&id, "succeeded").await;

    let again = world.send(get(&path).header("last-event-id", "1")).await;
    assert_eq!(again.text(), "data: 2\nid: 2\n\n");
    let nothing = world.send(get(&path).header("last-event-id", "2")).await;
    assert_eq!(nothing.text(), "");
    let response = world.send(get(&format!("/requests/{id}/response"))).await;
    assert_eq!(response.text(), "data: 1\n\ndata: 2\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_wants_a_stream_gets_it_live() {
    let world = World::new(1);
    world.work();
    let events = world.backend.stream();
    let asked = post("a")
        .header("x-stream", "yes")
        .body(r#"{"stream": true}"#);
    events.send("data: 1\n\n").unwrap();
    let mut stream = world.open(asked.header("idempotency-key", "k")).await;
    assert_eq!(stream.headers()["vary"], "Prefer");
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\nid: 1\n\n");
    events.send("data: 2\n\n").unwrap();
    assert_eq!(next(&mut stream).await.unwrap(), "data: 2\nid: 2\n\n");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cancelled_ends_with_an_error() {
    let world = World::new(1);
    world.work();
    let events = world.backend.stream();
    let id = world.store(post("a").header("x-stream", "yes")).await;
    let mut stream = world.open(get(&format!("/requests/{id}/stream"))).await;
    events.send("data: 1\n\n").unwrap();
    next(&mut stream).await.unwrap();
    world
        .send(post_to(&format!("/requests/{id}/cancel"), ""))
        .await;
    let end = next(&mut stream).await.unwrap();
    assert!(
        end.starts_with("event: error\ndata: {") && end.contains("request_canceled"),
        "{end}"
    );
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_events_is_one_event() {
    let world = World::new(1);
    world.work();
    world.backend.finish(2);
    for (status, expected) in [
        ("200", "data: one\ndata: two\nid: 1\n\n"),
        ("500", "event: error\ndata: one\ndata: two\n\n"),
    ] {
        let asked = post("a").header("x-status", status).body("one\ntwo");
        let id = world.store(asked).await;
        let reply = world.send(get(&format!("/requests/{id}/stream"))).await;
        assert_eq!(reply.text(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_is_kept_alive() {
    let world = World::new(1);
    let id = world.store(post("a")).await;
    let mut stream = world.open(get(&format!("/requests/{id}/stream"))).await;
    assert_eq!(next(&mut stream).await.unwrap(), ": waiting\n\n");
}

#[tokio::test(start_paused = true)]
async fn events_that_are_gone_are_an_error() {
    let world = World::new(1);
    world.work_with(|worker| worker.attempt_timeout(Duration::from_secs(60)));
    let events = world.backend.stream();
    let id = world.store(post("a").header("x-stream", "yes")).await;
    events.send("data: 1\n\ndata: 2\n\n").unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.until_status(&id, "failed").await;
    let events = world.backend.stream();
    let retry = post_to(&format!("/requests/{id}/retry"), "");
    world.admin(retry).await.unwrap();
    events.send("data: again\n\n").unwrap();
    let path = format!("/requests/{id}/stream");
    let mut stream = world.open(get(&path).header("last-event-id", "1")).await;
    let gap = next(&mut stream).await.unwrap();
    assert!(gap.starts_with("event: error\n"), "{gap}");
    assert!(gap.contains("stream_gap"), "{gap}");
    let mut stream = world.open(get(&path)).await;
    assert!(
        next(&mut stream)
            .await
            .unwrap()
            .starts_with("data: again\nid: ")
    );
}

//! Timeouts of an endpoint. The clock is paused once only time has to pass: it then jumps.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, advance, pause, resume, sleep, timeout};
use tower::ServiceExt;
use tower_triage::endpoints::NoResponse;
use tower_triage::upstream::Forward;

use super::bodies::{read_to, upload};

use super::{Failure, OK, SOON, bind, post, send};

#[tokio::test]
async fn a_late_first_byte_is_a_timeout() {
    for (forward, said) in [
        (Forward::new(), "within 600 s"),
        (
            Forward::new().first_byte_timeout(Duration::from_millis(700_500)),
            "within 700.5 s",
        ),
    ] {
        let (upstream, to) = bind().await;
        let answer = tokio::spawn(forward.oneshot(post(&to, "{}")));
        let mut connection = upstream.accept().await;
        connection.request().await;

        pause();
        let response = answer.await.unwrap().unwrap();
        resume();
        let failure = Failure::read(response).await;
        failure.is(504, "upstream_timeout", NoResponse::Timeout);
        assert!(failure.message.contains(said), "{}", failure.message);
        timeout(SOON, connection.closed())
            .await
            .expect("the connection is closed");
    }
}

#[tokio::test]
async fn a_timeout_closes_the_connection_of_a_kept_future() {
    let (upstream, to) = bind().await;
    let mut answer = pin!(Forward::<Full<Bytes>>::new().oneshot(post(&to, "{}")));
    let mut connection = tokio::select! {
        _ = &mut answer => unreachable!("there is no answer yet"),
        connection = upstream.accept() => connection,
    };
    tokio::select! {
        _ = &mut answer => unreachable!("there is no answer yet"),
        _ = connection.request() => {}
    }

    pause();
    let response = answer.as_mut().await.unwrap();
    resume();
    assert_eq!(response.status(), 504);
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn a_body_may_take_longer_than_its_first_byte() {
    let (upstream, to) = bind().await;
    let forward = Forward::new().first_byte_timeout(SOON);
    let serve = async {
        let mut connection = upstream.accept().await;
        let begun = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf";
        connection.answer(begun).await;
        connection
    };
    let (mut connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));

    pause();
    advance(SOON * 1000).await;
    connection.send("half").await;
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "halfhalf");
}

#[tokio::test]
async fn a_stalled_client_does_not_time_the_endpoint_out() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let answer = tokio::spawn(Forward::new().first_byte_timeout(SOON).oneshot(request));
    let mut connection = upstream.accept().await;
    body.send_data("half".into()).await.unwrap();
    read_to(&mut connection, "half").await;

    pause();
    sleep(SOON * 10).await;
    assert!(!answer.is_finished());
    resume();
    drop(body);
    read_to(&mut connection, "0\r\n\r\n").await;
    connection.send(OK).await;
    assert_eq!(answer.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn the_clock_starts_when_the_body_is_sent() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let answer = tokio::spawn(Forward::new().first_byte_timeout(SOON).oneshot(request));
    let mut connection = upstream.accept().await;
    body.send_data("half".into()).await.unwrap();
    read_to(&mut connection, "half").await;

    pause();
    sleep(SOON * 10).await;
    let sent = Instant::now();
    drop(body);
    let response = answer.await.unwrap().unwrap();
    let waited = sent.elapsed();
    resume();
    let failure = Failure::read(response).await;
    failure.is(504, "upstream_timeout", NoResponse::Timeout);
    let grain = Duration::from_millis(1);
    assert!(
        waited >= SOON - grain && waited <= SOON + grain,
        "{waited:?}"
    );
}

#[tokio::test]
async fn an_endpoint_that_stops_reading_times_out() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let answer = tokio::spawn(Forward::new().first_byte_timeout(SOON).oneshot(request));
    let connection = upstream.accept().await;
    let piece = Bytes::from(vec![0; 1 << 20]);
    let write = async move { while body.send_data(piece.clone()).await.is_ok() {} };
    let write = tokio::spawn(write);

    pause(); // the clock jumps once all buffers between are full
    let response = answer.await.unwrap().unwrap();
    resume();
    let failure = Failure::read(response).await;
    failure.is(504, "upstream_timeout", NoResponse::Timeout);
    timeout(SOON, write)
        .await
        .expect("the body is let go")
        .unwrap();
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn the_largest_timeouts_are_no_limit() {
    let (upstream, to) = bind().await;
    let forward = Forward::new()
        .connect_timeout(Duration::MAX)
        .first_byte_timeout(Duration::MAX);
    let ask = async { assert_eq!(send(&forward, post(&to, "{}")).await.status(), 200) };
    upstream.accept_while(ask, OK).await;
}

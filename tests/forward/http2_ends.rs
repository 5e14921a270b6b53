//! Connections of HTTP/2 that an endpoint ends, and streams that it turns away: only what it has not seen is sent again.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::timeout;
use tower::ServiceExt;
use tower_triage::endpoints::{Decision, NoResponse};
use tower_triage::route::AtMostOnce;
use tower_triage::upstream::{Forward, ForwardBody};

use super::http2::http2;
use super::http2_frames::{Frames, INTERNAL_ERROR, REFUSED_STREAM};
use super::upstream::Upstream;
use super::{Failure, SOON, bind, post, text};

async fn begin() -> (Upstream, Decision, Forward<Full<Bytes>>) {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    (upstream, to, Forward::new())
}

async fn accept(upstream: &Upstream) -> Frames {
    let begun = async { Frames::begin(upstream.accept().await.0).await };
    timeout(SOON, begun).await.expect("a connection")
}

/// The answer to a request in a task of its own.
fn ask(
    forward: &Forward<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> tokio::task::JoinHandle<(u16, String)> {
    let answer = forward.clone().oneshot(request);
    tokio::spawn(async {
        let response = answer.await.unwrap();
        (response.status().as_u16(), text(response).await)
    })
}

async fn is_ok(answer: tokio::task::JoinHandle<(u16, String)>, expected: &str) {
    let (status, text) = timeout(SOON, answer).await.expect("an answer").unwrap();
    assert_eq!((status, &*text), (200, expected));
}

type Pending = tokio::task::JoinHandle<Result<Response<ForwardBody>, Infallible>>;

async fn failure(answer: Pending) -> Failure {
    let answer = timeout(SOON, answer).await.expect("an answer in time");
    Failure::read(answer.unwrap().unwrap()).await
}

/// A connection over which one request has been answered.
async fn kept(upstream: &Upstream, forward: &Forward<Full<Bytes>>, to: &Decision) -> Frames {
    let answer = ask(forward, post(to, "first"));
    let mut frames = accept(upstream).await;
    let (stream, _) = frames.request().await;
    frames.answer(stream, "ok").await;
    is_ok(answer, "ok").await;
    frames
}

#[tokio::test]
async fn a_go_away_sends_again_only_what_was_not_seen() {
    let (upstream, to, forward) = begin().await;
    let seen = ask(&forward, post(&to, "seen"));
    let mut old = accept(&upstream).await;
    let (first, _) = old.request().await;
    let unseen = ask(&forward, post(&to, "unseen"));
    let (second, _) = old.request().await;
    assert!(second > first);
    old.go_away(first).await;

    let mut new = accept(&upstream).await;
    let (stream, body) = new.request().await;
    assert_eq!(body, "unseen");
    new.answer(stream, "again").await;
    is_ok(unseen, "again").await;
    old.answer(first, "still").await;
    is_ok(seen, "still").await;
}

#[tokio::test]
async fn a_request_that_may_have_been_seen_is_not_sent_again() {
    let (upstream, to, forward) = begin().await;
    let answer = forward.clone().oneshot(post(&to, "{}"));
    let serve = async {
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.go_away(stream).await;
    };
    let ((), response) = tokio::join!(serve, answer);
    let failure = Failure::read(response.unwrap()).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_go_away_with_an_error_sends_nothing_again() {
    let (upstream, to, forward) = begin().await;
    let answer = tokio::spawn(forward.clone().oneshot(post(&to, "poison")));
    let mut frames = accept(&upstream).await;
    frames.request().await;
    frames.go_away_because(0, INTERNAL_ERROR).await;
    // It would wait for another connection if it was sent again.
    let failure = failure(answer).await;
    failure.is(502, "upstream_failed", NoResponse::BodyNotSent);

    let next = ask(&forward, post(&to, "next"));
    let mut frames = accept(&upstream).await;
    let (stream, body) = frames.request().await;
    assert_eq!(body, "next");
    frames.answer(stream, "ok").await;
    is_ok(next, "ok").await;
}

#[tokio::test]
async fn requests_after_a_go_away_use_another_connection() {
    let (upstream, to, forward) = begin().await;
    let old = ask(&forward, post(&to, "old"));
    let mut leaving = accept(&upstream).await;
    let (stream, _) = leaving.request().await;
    leaving.go_away(stream).await;
    for _ in 0..3 {
        let new = ask(&forward, post(&to, "new"));
        let mut frames = accept(&upstream).await;
        let (stream, _) = frames.request().await;
        frames.answer(stream, "new").await;
        frames.go_away(stream).await;
        is_ok(new, "new").await;
    }
    leaving.answer(stream, "old").await;
    is_ok(old, "old").await;
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_on_the_same_connection() {
    let (upstream, to, forward) = begin().await;
    let answer = ask(&forward, post(&to, "mine"));
    let mut frames = accept(&upstream).await;
    for _ in 0..2 {
        let (stream, body) = frames.request().await;
        assert_eq!(body, "mine");
        frames.reset(stream, REFUSED_STREAM).await;
    }
    let (stream, _) = frames.request().await;
    frames.answer(stream, "ok").await;
    is_ok(answer, "ok").await;
}

#[tokio::test]
async fn an_endpoint_that_always_refuses_has_not_read_the_request() {
    let (upstream, to, forward) = begin().await;
    let answer = tokio::spawn(forward.oneshot(post(&to, "{}")));
    let mut frames = accept(&upstream).await;
    for _ in 0..4 {
        let (stream, _) = frames.request().await;
        frames.reset(stream, REFUSED_STREAM).await;
    }
    let failure = failure(answer).await;
    failure.is(502, "upstream_failed", NoResponse::BodyNotSent);
}

#[tokio::test]
async fn a_reset_stream_is_a_failure_and_leaves_the_others() {
    let (upstream, to, forward) = begin().await;
    let broken = tokio::spawn(forward.clone().oneshot(post(&to, "{}")));
    let mut frames = accept(&upstream).await;
    let (first, _) = frames.request().await;
    let other = ask(&forward, post(&to, "{}"));
    let (second, _) = frames.request().await;
    frames.reset(first, INTERNAL_ERROR).await;
    let failure = failure(broken).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
    frames.answer(second, "ok").await;
    is_ok(other, "ok").await;
}

#[tokio::test]
async fn a_kept_connection_that_ends_at_a_request_loses_none() {
    let (upstream, to, forward) = begin().await;
    let mut old = kept(&upstream, &forward, &to).await;
    let answer = ask(&forward, post(&to, "mine"));
    old.request().await;
    drop(old);
    let mut new = accept(&upstream).await;
    let (stream, body) = new.request().await;
    assert_eq!(body, "mine");
    new.answer(stream, "ok").await;
    is_ok(answer, "ok").await;
}

#[tokio::test]
async fn a_request_is_sent_again_once_without_a_promise() {
    let (upstream, to, forward) = begin().await;
    let mut old = kept(&upstream, &forward, &to).await;
    let answer = tokio::spawn(forward.clone().oneshot(post(&to, "mine")));
    old.request().await;
    let other = ask(&forward, post(&to, "other"));
    old.request().await;
    drop(old);
    // The other request makes the new connection a kept one.
    let mut new = accept(&upstream).await;
    let (first, body) = new.request().await;
    let (second, _) = new.request().await;
    let others = if body == "other" { first } else { second };
    new.answer(others, "ok").await;
    is_ok(other, "ok").await;
    drop(new);
    let failure = failure(answer).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_request_that_may_be_sent_once_is_not_sent_again() {
    let (upstream, to, forward) = begin().await;
    let mut old = kept(&upstream, &forward, &to).await;
    let mut request = post(&to, "mine");
    request.extensions_mut().insert(AtMostOnce);
    let answer = tokio::spawn(forward.oneshot(request));
    old.request().await;
    drop(old);
    let failure = failure(answer).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_request_that_may_be_sent_once_is_sent_again_if_it_was_not_seen() {
    let (upstream, to, forward) = begin().await;
    let mut request = post(&to, "mine");
    request.extensions_mut().insert(AtMostOnce);
    let answer = ask(&forward, request);
    let mut frames = accept(&upstream).await;
    frames.request().await;
    frames.go_away(0).await;
    let mut new = accept(&upstream).await;
    let (stream, _) = new.request().await;
    new.answer(stream, "ok").await;
    is_ok(answer, "ok").await;
}

#[tokio::test]
async fn many_requests_on_a_lost_connection_connect_once_more() {
    let (upstream, to, forward) = begin().await;
    let old = kept(&upstream, &forward, &to).await;
    drop(old);
    let answers: Vec<_> = (0..20).map(|_| ask(&forward, post(&to, "{}"))).collect();
    let mut frames = accept(&upstream).await;
    for _ in 0..20 {
        let (stream, _) = frames.request().await;
        frames.answer(stream, "ok").await;
    }
    for answer in answers {
        is_ok(answer, "ok").await;
    }
    let another = timeout(std::time::Duration::from_millis(50), upstream.accept()).await;
    assert!(another.is_err(), "one connection is enough");
}

//! Connections that are kept for later, and closed by the endpoint meanwhile without a word.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{pause, resume, sleep, timeout};
use tower_triage::endpoints::NoResponse;
use tower_triage::upstream::Forward;

use super::upstream::Connection;
use super::{Failure, OK, SOON, bind, endpoint, post, send, text};
use crate::upstream::Upstream;

/// A way in which an endpoint ends a connection.
#[derive(Debug, Clone, Copy)]
enum End {
    Close,
    Reset,
}

impl End {
    fn end(self, connection: Connection) {
        if let Self::Reset = self {
            let socket = socket2::SockRef::from(&connection.0);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(connection);
    }
}

/// A kept connection: `forward` has it back.
async fn kept(upstream: &Upstream, ask: impl Future) -> Connection {
    let connection = upstream.accept_while(ask, OK).await;
    sleep(Duration::from_millis(50)).await;
    connection
}

async fn both<A, B>(serve: impl Future<Output = A>, ask: impl Future<Output = B>) -> (A, B) {
    let both = timeout(SOON, async { tokio::join!(serve, ask) });
    both.await.expect("a request over a new connection")
}

/// The number of 600 requests of four callers that fail at an endpoint that ends each connection after its first
/// answer, or as the second request comes.
async fn lost(end: End, at_next_request: bool) -> usize {
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("http://{}", upstream.addr()));
    let serve = tokio::spawn(async move {
        loop {
            let mut connection = upstream.accept().await;
            tokio::spawn(async move {
                connection.answer(OK).await;
                if at_next_request {
                    _ = connection.0.readable().await;
                    _ = connection.0.read(&mut [0]).await;
                }
                end.end(connection);
            });
        }
    });
    let forward = Forward::new();
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let (to, forward) = (to.clone(), forward.clone());
        callers.spawn(async move {
            let mut failed = 0;
            for _ in 0..150 {
                let response = send(&forward, post(&to, "{}")).await;
                failed += usize::from(response.status() != StatusCode::OK);
                _ = text(response).await;
            }
            failed
        });
    }
    let lost = callers.join_all().await.into_iter().sum();
    serve.abort();
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_close_after_each_answer_lose_no_request() {
    assert_eq!(lost(End::Close, false).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_at_the_next_request_lose_none() {
    for end in [End::Close, End::Reset] {
        assert_eq!(lost(end, true).await, 0, "{end:?}");
    }
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_sent_again_unchanged() {
    for end in [End::Close, End::Reset] {
        let (upstream, to) = bind().await;
        let forward = Forward::new();
        let ask = || send(&forward, post(&to, "{\"model\":\"m\"}"));
        let mut connection = kept(&upstream, async { text(ask().await).await }).await;
        let serve = async {
            let lost = connection.request().await;
            end.end(connection);
            let mut connection = upstream.accept().await;
            let again = connection.request().await;
            connection.send(OK).await;
            assert_eq!(lost, again);
        };
        let ((), response) = both(serve, ask()).await;
        assert_eq!(text(response).await, "ok", "{end:?}");
    }
}

/// Asserts that a request fails as one that was broken off, if `serve` is what becomes of a kept connection.
async fn assert_broken_off(serve: impl AsyncFnOnce(&Upstream, Connection)) {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let ask = || send(&forward, post(&to, "{}"));
    let connection = kept(&upstream, async { text(ask().await).await }).await;
    let ((), response) = both(serve(&upstream, connection), ask()).await;
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_request_is_sent_again_once() {
    let serve = async |upstream: &Upstream, mut kept: Connection| {
        kept.request().await;
        drop(kept);
        upstream.accept().await.request().await;
    };
    assert_broken_off(serve).await;
}

#[tokio::test]
async fn a_request_with_a_byte_of_an_answer_is_not_sent_again() {
    let serve = async |_: &Upstream, mut kept: Connection| kept.answer("H").await;
    assert_broken_off(serve).await;
}

#[tokio::test]
async fn a_large_body_goes_over_a_connection_of_its_own() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let _kept = kept(&upstream, async {
        text(send(&forward, post(&to, "{}")).await).await
    })
    .await;
    let request = Request::post("/").extension(to.clone());
    let body = Full::from(Bytes::from(vec![b'x'; (1 << 20) + 1]));
    let ask = send(&forward, request.body(body).unwrap());
    let serve = async { upstream.accept().await.answer(OK).await };
    let ((), response) = both(serve, ask).await;
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn idle_connections_are_closed_before_their_server_does() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let ask = async || text(send(&forward, post(&to, "{}")).await).await;
    let mut connection = kept(&upstream, ask()).await;
    pause();
    for _ in 0..3 {
        sleep(Duration::from_millis(2_900)).await;
        resume();
        both(connection.answer(OK), ask()).await; // each request keeps it for longer
        pause();
    }
    sleep(Duration::from_secs(4)).await;
    resume();
    let closed = timeout(SOON, connection.closed()).await;
    closed.expect("the connection is closed");
    kept(&upstream, ask()).await;
}

#[tokio::test]
async fn a_connection_that_is_always_in_use_ends_at_its_maximal_age() {
    let (upstream, to) = bind().await;
    let forward = Forward::new().max_connection_age(Duration::from_secs(20));
    let ask = async || text(send(&forward, post(&to, "{}")).await).await;
    let mut connection = kept(&upstream, ask()).await;
    for _ in 0..7 {
        pause();
        sleep(Duration::from_secs(2)).await;
        resume();
        both(connection.answer(OK), ask()).await;
    }
    for _ in 0..3 {
        pause();
        sleep(Duration::from_secs(2)).await;
        resume();
    }
    let closed = timeout(SOON, connection.closed()).await;
    closed.expect("the connection is closed");
    kept(&upstream, ask()).await;
}

#[tokio::test]
async fn the_connections_of_an_endpoint_that_is_gone_are_closed() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let ask = async || text(send(&forward, post(&to, "{}")).await).await;
    let connection = kept(&upstream, ask()).await;
    let request = post(&to, "{}");
    let (mut busy, response) = tokio::join!(
        async {
            let mut connection = connection;
            let begun = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha";
            connection.answer(begun).await;
            connection
        },
        send(&forward, request)
    );
    let idle = kept(&upstream, ask()).await;
    drop(to);
    let closed = timeout(SOON, idle.closed()).await;
    closed.expect("the idle connection is closed");
    busy.send("lf").await;
    assert_eq!(text(response).await, "half");
    let closed = timeout(SOON, busy.closed()).await;
    closed.expect("the busy connection is closed after its answer");
}

#[tokio::test]
async fn requests_take_turns_on_as_many_connections_as_run_at_a_time() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let accepted = AtomicUsize::new(0);
    let serve = async {
        let mut serving = JoinSet::new();
        loop {
            let mut connection = upstream.accept().await;
            accepted.fetch_add(1, Relaxed);
            serving.spawn(async move {
                loop {
                    connection.answer(OK).await;
                }
            });
        }
    };
    let caller = async || {
        for _ in 0..50 {
            assert_eq!(text(send(&forward, post(&to, "{}")).await).await, "ok");
        }
    };
    tokio::select! {
        () = serve => {}
        _ = async { tokio::join!(caller(), caller(), caller(), caller()) } => {}
    }
    assert!(accepted.load(Relaxed) <= 4, "{accepted:?}");
}

#[tokio::test]
async fn two_clients_share_no_connections() {
    let (upstream, to) = bind().await;
    let (one, other) = (Forward::new(), Forward::new());
    let _one = kept(&upstream, async {
        text(send(&one, post(&to, "{}")).await).await
    })
    .await;
    let _other = kept(&upstream, async {
        text(send(&other, post(&to, "{}")).await).await
    })
    .await;
}

//! The headers of requests: priority, tenant, deadline and retries.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::{Discipline, QueueConfig, QueueLayer};

/// The time after which each request has its answer. It is longer than any wait, because the queue is small.
const ALL_ANSWERED: Duration = Duration::from_secs(600);

#[test]
fn each_request_is_answered_whatever_its_headers() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let (discipline, input) = input.split_first().unwrap_or((&0, b""));
            let discipline = match discipline % 3 {
                0 => Discipline::Fifo,
                1 => Discipline::Fair,
                _ => Discipline::Deadline,
            };
            super::runtime().block_on(serve(discipline, requests(input)));
        });
}

async fn serve(discipline: Discipline, requests: Vec<Request<Empty<Bytes>>>) {
    let config = QueueConfig::new(1)
        .max_size(4)
        .discipline(discipline)
        .displace(true);
    let layer = QueueLayer::new(config);
    let queue = layer.layer(service_fn(async |_| {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    }));
    let answers = requests.into_iter().map(|request| {
        let answer = queue.clone().oneshot(request);
        async {
            let (head, body) = answer.await.expect("rejections are answers").into_parts();
            _ = body.collect().await;
            head.status
        }
    });
    let answers = timeout(ALL_ANSWERED, join_all(answers)).await;
    for status in answers.expect("each request is answered") {
        let refused = [
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        assert!(
            status == StatusCode::OK || refused.contains(&status),
            "{status}"
        );
    }
    let status = layer.handle().status();
    assert_eq!((status.running, status.depth), (0, 0));
}

/// Returns at most eight requests. An empty line separates the headers of one from those of the next.
fn requests(input: &[u8]) -> Vec<Request<Empty<Bytes>>> {
    let mut requests = vec![Request::new(Empty::new())];
    for line in input.split(|&byte| byte == b'\n') {
        if line.is_empty() {
            requests.push(Request::new(Empty::new()));
        } else if let Some((name, value)) = header(line) {
            let last = requests.last_mut().expect("the first one is there");
            last.headers_mut().append(name, value);
        }
    }
    requests.truncate(8);
    requests
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let end = line.iter().position(|&byte| byte == b':')?;
    let name = HeaderName::from_bytes(&line[..end]).ok()?;
    Some((name, HeaderValue::from_bytes(&line[end + 1..]).ok()?))
}

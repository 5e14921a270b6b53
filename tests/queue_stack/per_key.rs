//! A queue for each key of requests.

use std::convert::Infallible;

use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::task::{Unconstrained, unconstrained};
use tokio_util::sync::CancellationToken;
use tower::util::{BoxCloneService, Oneshot};
use tower_triage::queue::{Concurrency, PerKeyHandle, QueueResponseBody};

use super::adaptive::aimd;
use super::*;

type Body = Full<Bytes>;
type Answered = Response<QueueResponseBody<Body>>;
type Keyed = BoxCloneService<Request<Body>, Answered, Infallible>;

/// The number of keys that have queues of their own at a time.
const MAX_KEYS: usize = 1_000;

/// A service whose calls each take a permit to finish, with a queue for each path.
fn by_path(queue: QueueLayer, finish: &Arc<Semaphore>) -> (Keyed, PerKeyHandle) {
    let queue = queue.per_key(|request| request.uri().path());
    let handle = queue.handle();
    let finish = Arc::clone(finish);
    let inner = service_fn(move |_: Request<Body>| {
        let finish = Arc::clone(&finish);
        async move {
            finish.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    (BoxCloneService::new(queue.layer(inner)), handle)
}

/// A request that has arrived, and its answer if it has one.
struct Call(
    ByHand<Unconstrained<Oneshot<Keyed, Request<Body>>>>,
    Poll<StatusCode>,
);

impl Call {
    fn new(service: &Keyed, path: &str) -> Self {
        let request = Request::get(path).body(Body::default()).unwrap();
        let mut call = ByHand::new(unconstrained(service.clone().oneshot(request)));
        let answer = call.poll().map(|answer| answer.unwrap().status());
        Self(call, answer)
    }

    /// Returns the status of an answer that comes by itself.
    fn answer(mut self) -> Option<u16> {
        let status = match self.1 {
            Poll::Pending => self.0.run().map(|answer| answer.unwrap().status()),
            ready => ready,
        };
        match status {
            Poll::Ready(status) => Some(status.as_u16()),
            Poll::Pending => None,
        }
    }

    fn runs(&self) -> bool {
        self.1.is_pending()
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_limit_of_its_own() {
    let finish = Arc::new(Semaphore::new(0));
    let (service, handle) = by_path(QueueLayer::shed(1), &finish);
    let first = ["/b", "/a"].map(|path| Call::new(&service, path));
    assert!(first.iter().all(Call::runs));
    assert_eq!(Call::new(&service, "/a").answer(), Some(503));
    let keys = handle
        .status()
        .into_iter()
        .map(|(key, status)| (key, status.running));
    let expected = [(None, 0), (Some("/a"), 1), (Some("/b"), 1)];
    assert!(keys.eq(expected.map(|(key, running)| (key.map(str::to_owned), running))));
    drop(first);
    assert!(Call::new(&service, "/a").runs());
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_the_bound_share_a_queue_until_others_are_idle() {
    let finish = Arc::new(Semaphore::new(0));
    // Requests that wait keep their queue, as those that run do.
    for config in [QueueConfig::shed(1), QueueConfig::new(0).max_size(1)] {
        let (service, handle) = by_path(QueueLayer::new(config), &finish);
        let mut busy: Vec<_> = (0..MAX_KEYS)
            .map(|n| Call::new(&service, &format!("/{n}")))
            .collect();
        assert!(busy.iter().all(Call::runs));
        assert_eq!(handle.status().len(), MAX_KEYS + 1);
        let shared = Call::new(&service, "/new");
        assert!(shared.runs());
        assert_eq!(Call::new(&service, "/newer").answer(), Some(503));
        assert_eq!(Call::new(&service, "/999").answer(), Some(503));
        assert_eq!(handle.status().len(), MAX_KEYS + 1);

        busy.truncate(MAX_KEYS - 2);
        advance(Duration::from_millis(100)).await; // until idle queues are looked for again
        let own = ["/newer", "/new"].map(|path| Call::new(&service, path));
        assert!(own.iter().all(Call::runs));
        let depth =
            |(_, status): &(_, tower_triage::gate::GateStatus)| status.running + status.depth;
        assert!(handle.status().iter().all(|of| depth(of) == 1));
        assert_eq!(Call::new(&service, "/newest").answer(), Some(503));
    }
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_and_long_keys_have_no_queue_of_their_own() {
    let layer = QueueLayer::shed(0)
        .exempt(|request: &Request<Body>| request.uri().path() == "/health")
        .per_key(|request| request.uri().path());
    let handle = layer.handle();
    let inner =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default())));
    let service = layer.layer(inner);
    let (longest, too_long) = (
        format!("/{}", "a".repeat(255)),
        format!("/{}", "a".repeat(256)),
    );
    for (path, status, queues) in [
        ("/health", 200, 1),
        (&*too_long, 503, 1),
        (&*longest, 503, 2),
    ] {
        let request = Request::get(path).body(Body::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(handle.status().len(), queues, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconfiguration_holds_for_all_keys() {
    let finish = Arc::new(Semaphore::new(0));
    let (service, handle) = by_path(QueueLayer::new(QueueConfig::new(1)), &finish);
    let [_running, waiting] = [(); 2].map(|()| Call::new(&service, "/a"));
    assert!(handle.reconfigure(QueueConfig::inner()).is_err());
    assert_eq!(handle.config(), QueueConfig::new(1));
    handle
        .reconfigure(handle.config().concurrency(Concurrency::Limit(2)))
        .unwrap();
    assert!(waiting.0.is_woken());
    let _later = Call::new(&service, "/b");
    assert!(handle.status().iter().all(|(_, status)| status.limit == 2));
}

#[tokio::test(start_paused = true)]
async fn a_token_closes_the_queues_of_all_keys() {
    let finish = Arc::new(Semaphore::new(0));
    let token = CancellationToken::new();
    let queue = QueueLayer::new(QueueConfig::new(1)).shutdown(token.clone());
    let (service, handle) = by_path(queue, &finish);
    let running = ["/a", "/b"].map(|path| Call::new(&service, path));
    let waiting = ["/a", "/b"].map(|path| Call::new(&service, path));
    let mut closed = ByHand::new(handle.closed());
    assert!(closed.poll().is_pending());
    token.cancel();
    assert_eq!(waiting.map(Call::answer), [Some(503); 2]);
    assert_eq!(Call::new(&service, "/b").answer(), Some(503));
    assert_eq!(Call::new(&service, "/c").answer(), Some(503));
    for call in running {
        assert!(closed.run().is_pending());
        assert!(closed.poll().is_pending());
        finish.add_permits(1);
        assert_eq!(call.answer(), Some(200));
    }
    assert!(closed.run().is_ready());

    let queue = QueueLayer::new(QueueConfig::new(1)).shutdown(token);
    let (service, _) = by_path(queue, &finish);
    assert_eq!(Call::new(&service, "/a").answer(), Some(503));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_each_key_adapts_by_its_own_answers() {
    let queue = QueueLayer::new(aimd(10)).per_key(|request| request.uri().path());
    let handle = queue.handle();
    let service = queue.layer(service_fn(|request: Request<Body>| {
        let mut response = Response::new(Body::default());
        if request.uri().path() == "/busy" {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    for path in ["/busy", "/fine"] {
        let request = Request::get(path).body(Body::default()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    }
    let limits = handle.status().into_iter().map(|(_, status)| status.limit);
    let limits: Vec<_> = limits.collect();
    assert!(limits[1] < 10 && limits[2] >= 10, "{limits:?}");
}

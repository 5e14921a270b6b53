//! Limits of two around three routes: tower's two layers and the queue. `REPLACES.md` has the numbers.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use tower::limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer};

use super::*;

/// The streams that a handler began. Each goes on until it is ended.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<Vec<mpsc::UnboundedSender<&'static str>>>>);

impl Streams {
    fn begin(self) -> axum::body::Body {
        let (parts, body) = mpsc::unbounded_channel();
        self.0.lock().unwrap().push(parts);
        stream(body)
    }

    /// Sends a part on each stream and returns the number of streams that took it.
    fn write(&self, part: &'static str) -> usize {
        let streams = self.0.lock().unwrap();
        streams.iter().filter(|s| s.send(part).is_ok()).count()
    }

    fn end(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Three routes behind `limit`, and a counter of the requests that have reached it.
async fn start(
    limit: impl FnOnce(Router) -> Router,
    jobs: &Jobs,
    streams: &Streams,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let streams = streams.clone();
    let routes = router(jobs).route("/stream", on_get(|| async { streams.begin() }));
    let arrived = Arc::new(AtomicUsize::new(0));
    let arrivals = Arc::clone(&arrived);
    let count = from_fn(move |request: Request, next: Next| {
        arrivals.fetch_add(1, SeqCst);
        next.run(request)
    });
    (serve(limit(routes).layer(count)).await, arrived)
}

/// Returns the number of requests that run at the same time behind `limit`, of six: two answers that stream, and four
/// handlers that work.
async fn running_of_six(limit: impl FnOnce(Router) -> Router) -> usize {
    let (jobs, streams) = (Jobs::new(), Streams::default());
    let (addr, arrived) = start(limit, &jobs, &streams).await;
    let mut streamed = [
        get(addr, "/stream").send().await,
        get(addr, "/stream").send().await,
    ];
    let worked = ["/", "/", "/other", "/other"].map(|path| get(addr, path).spawn());
    // The runtime has one thread, so a request that has arrived runs or waits by the time that this task sees it.
    until("all have arrived", || arrived.load(SeqCst) == 6).await;
    let running = streams.write("part") + jobs.running();
    for reply in &mut streamed {
        assert_eq!(reply.next().await.unwrap(), "part");
    }
    streams.end();
    jobs.finish(4);
    for reply in worked {
        assert_eq!(reply.await.unwrap().text().await, "served");
    }
    running
}

#[tokio::test]
async fn a_limit_of_two_holds_only_with_the_queue() {
    let of_each = running_of_six(|app| app.layer(ConcurrencyLimitLayer::new(2))).await;
    let of_all = running_of_six(|app| app.layer(GlobalConcurrencyLimitLayer::new(2))).await;
    let queued = running_of_six(|app| app.layer(QueueLayer::limit(2))).await;
    assert_eq!((of_each, of_all, queued), (6, 4, 2));
}

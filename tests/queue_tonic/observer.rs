//! Events of the calls of a single service of a server.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tower_triage::queue::{Observer, RequestEnd, RequestHead};

use super::optional::one_runs;
use super::*;

/// Counts the calls that were served.
#[derive(Default)]
struct Served(AtomicUsize);

impl Observer for Served {
    type Request = ();

    fn on_arrived(&self, _: &RequestHead<'_>) {}

    fn on_finished(&self, _: &mut (), end: RequestEnd, _: Duration) {
        assert_eq!(end, RequestEnd::Complete(http::StatusCode::OK));
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test]
async fn an_observed_queue_may_stand_around_a_single_service() {
    let served = Arc::new(Served::default());
    let queue = QueueLayer::new(QueueConfig::new(1).max_size(0)).observe(Arc::clone(&served));
    let app = App::serve(queue.handle(), |notes, incoming| {
        let server = Server::builder().add_service(queue.layer(notes));
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    one_runs(app).await;
    // A stream and a call that succeed, and one that fails in the trailers.
    assert_eq!(served.0.load(SeqCst), 3);
}

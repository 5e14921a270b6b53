//! Events of the requests of an app.

use axum::body::Body;
use axum::extract::MatchedPath;
use tower::util::option_layer;
use tower_triage::queue::{Observer, RequestEnd, RequestHead};

use super::*;

/// Writes down how the requests of each route ended.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    async fn next(&self) -> String {
        until("a request has ended", || !self.0.lock().unwrap().is_empty()).await;
        self.0.lock().unwrap().remove(0)
    }
}

impl Observer for Ends {
    type Request = Option<MatchedPath>;

    fn on_arrived(&self, head: &RequestHead<'_>) -> Option<MatchedPath> {
        head.extensions().get().cloned()
    }

    fn on_rejected(
        &self,
        route: &mut Option<MatchedPath>,
        reason: &RejectReason,
        status: StatusCode,
        _: Duration,
    ) {
        let route = route.as_ref().map_or("none", MatchedPath::as_str);
        let end = format!("{route} {reason:?} {status}");
        self.0.lock().unwrap().push(end);
    }

    fn on_finished(&self, route: &mut Option<MatchedPath>, end: RequestEnd, _: Duration) {
        let route = route.as_ref().map_or("none", MatchedPath::as_str);
        let end = format!("{route} {end:?}");
        self.0.lock().unwrap().push(end);
    }
}

/// Serves an app whose second route streams what the test sends.
async fn serve_app<L>(jobs: &Jobs, layer: L) -> (SocketAddr, mpsc::UnboundedSender<&'static str>)
where
    L: tower::Layer<axum::routing::Route> + Clone + Send + Sync + 'static,
    L::Service: tower::Service<
            axum::extract::Request,
            Response: IntoResponse,
            Error: Into<std::convert::Infallible>,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let (parts, body) = mpsc::unbounded_channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let run = |State(jobs): State<Jobs>, headers: HeaderMap| jobs.run(headers);
    let router = Router::new()
        .route("/jobs/{id}", on_get(run))
        .route(
            "/events",
            on_get(|| async move { stream(body.lock().unwrap().take().unwrap()) }),
        )
        .layer(layer)
        .with_state(jobs.clone());
    (serve(router).await, parts)
}

#[tokio::test]
async fn the_end_of_each_request_is_reported_with_its_route() {
    for is_mapped in [false, true] {
        let (jobs, ends) = (Jobs::new(), Ends::default());
        let queue = QueueLayer::shed(1).observe(ends.clone());
        let (addr, parts) = match is_mapped {
            false => serve_app(&jobs, queue).await,
            true => {
                let queue = Some(queue.map_response_body(Body::new));
                assert_eq!(queue.as_ref().unwrap().handle().status().limit, 1);
                serve_app(&jobs, option_layer(queue)).await
            }
        };
        let running = get(addr, "/jobs/1").spawn();
        until("it runs", || jobs.running() == 1).await;
        assert_eq!(get(addr, "/jobs/2").send().await.code().await, "overloaded");
        assert_eq!(ends.next().await, "/jobs/{id} Shed 503 Service Unavailable");
        jobs.finish(1);
        assert_eq!(running.await.unwrap().text().await, "served");
        assert_eq!(ends.next().await, "/jobs/{id} Complete(200)");

        let mut events = get(addr, "/events").send().await;
        parts.send("part").unwrap();
        assert_eq!(events.next().await.unwrap(), "part");
        drop(events);
        assert_eq!(ends.next().await, "/events BodyDropped(200)");
        assert_eq!(get(addr, "/unknown").send().await.status, 404);
        assert_eq!(ends.next().await, "none Complete(404)");
    }
}

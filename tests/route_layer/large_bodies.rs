//! Large request bodies, which are turned away before they are read if they would be for nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::Registry;
use tower_triage::route::{RouteBody, RouteLayerBuilder};
use tower_triage::{QueueConfig, RouteHandle, RouteLayer};

use super::support::{endpoint, settle};

const CHAT: &str = r#"{"model":"m"}"#;

/// A body that the test sends piece by piece, and a flag that is set once it was read.
struct Upload {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    announced: Option<u64>,
    is_read: Arc<AtomicBool>,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.is_read.store(true, Ordering::Relaxed);
        let piece = std::task::ready!(self.pieces.poll_recv(cx));
        let length = piece.as_ref().map_or(0, Bytes::len) as u64;
        self.announced = self.announced.map(|announced| announced - length);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.announced
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// An upload as its client sees it.
struct Client {
    send: mpsc::UnboundedSender<Bytes>,
    is_read: Arc<AtomicBool>,
}

impl Client {
    fn send(&self, piece: impl Into<Bytes>) {
        let _ = self.send.send(piece.into()); // the router may have turned it away
    }

    fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }
}

fn upload(announced: Option<u64>) -> (Client, Request<Upload>) {
    let (send, pieces) = mpsc::unbounded_channel();
    let is_read = Arc::<AtomicBool>::default();
    let client = Client {
        send,
        is_read: is_read.clone(),
    };
    let upload = Upload {
        pieces,
        announced,
        is_read,
    };
    (client, Request::new(upload))
}

type Inner = BoxCloneSyncService<Request<RouteBody<Upload>>, Response<Full<Bytes>>, Infallible>;

/// A router whose endpoint `a` has one slot for `m`, and never answers.
struct Router {
    layer: RouteLayer,
    inner: Inner,
}

/// The status of an answer, its code and its `retry-after`.
type Told = (u16, String, bool);

impl Router {
    fn new(build: impl FnOnce(RouteLayerBuilder) -> RouteLayerBuilder) -> Self {
        let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["other"])];
        let registry = Registry::new(endpoints.into_iter().collect::<Vec<_>>()).unwrap();
        let inner = service_fn(|_request| std::future::pending());
        Self {
            layer: build(RouteLayer::builder(registry)).build(),
            inner: BoxCloneSyncService::new(inner),
        }
    }

    fn handle(&self) -> RouteHandle {
        self.layer.handle()
    }

    fn send(&self, request: Request<Upload>) -> tokio::task::JoinHandle<Told> {
        let route = self.layer.layer(self.inner.clone());
        tokio::spawn(async move {
            let (head, body) = route.oneshot(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let code = body["error"]["code"].as_str().unwrap().to_owned();
            let has_retry_after = head.headers.contains_key("retry-after");
            (head.status.as_u16(), code, has_retry_after)
        })
    }

    /// Sends a small request for `model`, which runs or waits from now on.
    async fn ask(&self, model: &str) -> tokio::task::JoinHandle<Told> {
        let (client, request) = upload(None);
        client.send(CHAT.replace("\"m\"", &format!("\"{model}\"")));
        drop(client);
        let asked = self.send(request);
        settle().await;
        asked
    }

    /// Fills all slots, and a waiting room of one.
    async fn fill(&self) {
        for model in ["m", "other", "m"] {
            self.ask(model).await;
        }
        assert_eq!(self.handle().status().depth, 1);
    }
}

fn small_room(builder: RouteLayerBuilder) -> RouteLayerBuilder {
    builder.queue(QueueConfig::default().max_size(1).max_wait(None))
}

fn queue_full() -> Told {
    (503, "queue_full".to_owned(), true)
}

#[tokio::test]
async fn a_full_room_turns_a_large_upload_away_unread() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, request) = upload(Some(9 << 20));
    assert_eq!(router.send(request).await.unwrap(), queue_full());
    assert_eq!(router.handle().rejected()["queue_full"], 1);
    drop(client);
}

#[tokio::test]
async fn a_full_room_turns_a_client_that_asks_first_away_unread() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, mut request) = upload(Some(9 << 20));
    let asks = http::HeaderValue::from_static("100-continue");
    request.headers_mut().insert("expect", asks);
    assert_eq!(router.send(request).await.unwrap(), queue_full());
    settle().await;
    assert!(!client.is_read());
}

#[tokio::test]
async fn the_rest_of_a_refused_upload_is_drained() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, request) = upload(Some(9 << 20));
    assert_eq!(router.send(request).await.unwrap(), queue_full());
    for _ in 0..9 {
        assert!(!client.send.is_closed());
        client.send(vec![b' '; 1 << 20]);
        settle().await;
    }
    let Client { send, .. } = client;
    let gone = send.clone();
    drop(send);
    assert!(!gone.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_stalled_refused_upload_is_let_go() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, request) = upload(Some(9 << 20));
    assert_eq!(router.send(request).await.unwrap(), queue_full());
    client.send.closed().await; // the paused clock jumps
}

#[tokio::test]
async fn a_full_room_turns_a_body_of_unknown_length_away_once_it_is_large() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, request) = upload(None);
    let asked = router.send(request);
    client.send(vec![b' '; 60 << 10]);
    settle().await;
    assert!(!asked.is_finished());
    client.send(vec![b' '; 5 << 10]);
    assert_eq!(asked.await.unwrap(), queue_full());
}

#[tokio::test]
async fn a_large_upload_is_read_while_any_slot_is_free() {
    let router = Router::new(small_room);
    router.ask("m").await;
    router.ask("m").await;
    assert_eq!(router.handle().status().depth, 1);
    let (client, request) = upload(Some(9 << 20));
    let asked = router.send(request);
    settle().await;
    assert!(client.is_read());
    assert!(!asked.is_finished());
}

#[tokio::test]
async fn free_slots_of_an_endpoint_out_of_service_read_no_upload() {
    let router = Router::new(small_room);
    let other = router.handle().endpoints();
    let other = other.iter().find(|it| it.name() == "b").unwrap();
    router.handle().set_healthy(other, false);
    router.ask("m").await;
    router.ask("m").await;
    let (client, request) = upload(Some(9 << 20));
    assert_eq!(router.send(request).await.unwrap(), queue_full());
    drop(client);
}

#[tokio::test]
async fn a_large_upload_of_a_patient_request_is_read() {
    let router = Router::new(|builder| {
        small_room(builder).classify(|request, context| {
            let ticket = context.ticket_from_headers(request.headers());
            match request.headers().contains_key("x-patient") {
                true => ticket.patient(),
                false => ticket,
            }
        })
    });
    router.fill().await;
    let (client, mut request) = upload(Some(9 << 20));
    let patient = http::HeaderValue::from_static("1");
    request.headers_mut().insert("x-patient", patient);
    let asked = router.send(request);
    settle().await;
    assert!(client.is_read());
    assert!(!asked.is_finished());
}

#[tokio::test]
async fn a_large_upload_that_may_displace_a_waiter_is_read() {
    let router = Router::new(small_room);
    router.fill().await;
    let (client, mut request) = upload(Some(9 << 20));
    let high = http::HeaderValue::from_static("high");
    request.headers_mut().insert("x-priority", high);
    let asked = router.send(request);
    settle().await;
    assert!(client.is_read());
    assert!(!asked.is_finished());
}

#[tokio::test]
async fn bodies_beyond_the_memory_are_refused_unread_until_others_are_gone() {
    let router = Router::new(|builder| builder.body_memory(100 << 10));
    let (first, request) = upload(Some(90 << 10));
    let reading = router.send(request);
    first.send(vec![b' '; 80 << 10]);
    settle().await;
    let handle = router.handle();
    let memory = handle.body_memory().unwrap();
    assert_eq!(memory.used(), 80 << 10);

    let (second, request) = upload(Some(70 << 10));
    let told = (503, "body_memory_full".to_owned(), true);
    assert_eq!(router.send(request).await.unwrap(), told);
    drop(second);

    reading.abort();
    let _ = reading.await;
    assert_eq!(memory.used(), 0);
    let (third, request) = upload(Some(70 << 10));
    let asked = router.send(request);
    settle().await;
    assert!(third.is_read());
    assert!(!asked.is_finished());
}

#[tokio::test]
async fn a_waiting_request_keeps_its_memory_until_it_leaves() {
    let router = Router::new(|builder| builder.body_memory(1000));
    router.ask("m").await;
    let waits = router.ask("m").await;
    let handle = router.handle();
    let memory = handle.body_memory().unwrap();
    assert_eq!(memory.used(), 2 * CHAT.len()); // the first one is kept in case that the endpoint refuses it
    waits.abort();
    let _ = waits.await;
    assert_eq!(memory.used(), CHAT.len());
}

#[tokio::test]
async fn an_edited_body_counts_beside_the_one_that_is_kept_for_a_retry() {
    const SENT: &str = r#"{"model":"m","user":"u"}"#;
    for names in [&["a"][..], &["a", "b"]] {
        let endpoints = names.iter().map(|name| {
            let mut edits = endpoint(name, 1, &["m"]);
            edits.models[0] = edits.models[0].clone().strip_params(["user"]);
            edits
        });
        let registry = Registry::new(endpoints.collect()).unwrap();
        let layer = RouteLayer::builder(registry).body_memory(1000).build();
        let handle = layer.handle();
        let memory = handle.body_memory().unwrap();
        let (taken, mut bodies) = mpsc::unbounded_channel();
        let counted = memory.clone();
        // It answers while the body is still on its way.
        let inner = service_fn(move |request: Request<RouteBody<Full<Bytes>>>| {
            let (taken, counted) = (taken.clone(), counted.clone());
            async move {
                let mut body = request.into_body();
                let piece = body.frame().await.unwrap().unwrap();
                let piece = piece.into_data().unwrap();
                taken.send((piece, counted.used())).unwrap();
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        let sent = Request::new(Full::from(SENT));
        drop(layer.layer(inner).oneshot(sent).await.unwrap());

        let (edited, used) = bodies.recv().await.unwrap();
        assert_eq!(edited, CHAT);
        assert_eq!(used, CHAT.len() + SENT.len(), "{names:?}");
        assert_eq!(memory.used(), CHAT.len());
        drop(edited);
        assert_eq!(memory.used(), 0);
    }
}

//! A test backend: the test controls each response. Its `/health` always answers 200, and is not counted.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::process::TIMEOUT;

type Reply = Result<Response<UnsyncBoxBody<Bytes, Aborted>>, Aborted>;

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("aborted")]
pub(crate) struct Aborted;

pub(crate) struct Backend {
    addr: SocketAddr,
    arrivals: tokio::sync::Mutex<mpsc::UnboundedReceiver<BackendRequest>>,
    counts: Arc<Mutex<Counts>>,
    serving: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    pub(crate) arrived: usize,
    pub(crate) in_flight: usize,
    pub(crate) peak: usize,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        Self::start_with(None, false).await
    }

    /// A backend that speaks only HTTP/2, with prior knowledge.
    pub(crate) async fn start_http2() -> Self {
        Self::start_with(None, true).await
    }

    /// A backend at `https://localhost` with a self-signed certificate, which is returned as PEM.
    pub(crate) async fn start_tls() -> (Self, String) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key.into())
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        (Self::start_with(Some(tls), false).await, own.cert.pem())
    }

    async fn start_with(tls: Option<TlsAcceptor>, is_http2: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (arrive, arrivals) = mpsc::unbounded_channel();
        let counts = Arc::<Mutex<Counts>>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, tls, is_http2, arrive, counts.clone()));
        Self {
            addr,
            arrivals: arrivals.into(),
            counts,
            serving,
        }
    }

    /// A backend that passes each request to `answer`.
    pub(crate) async fn answering(mut answer: impl FnMut(BackendRequest) + Send + 'static) -> Self {
        let mut backend = Self::start().await;
        let unused = mpsc::unbounded_channel().1;
        let mut arrivals = std::mem::replace(backend.arrivals.get_mut(), unused);
        backend.serving.spawn(async move {
            while let Some(arrived) = arrivals.recv().await {
                answer(arrived);
            }
        });
        backend
    }

    /// A backend that answers every request with `text`.
    pub(crate) async fn replying(text: &'static str) -> Self {
        Self::answering(move |arrived| arrived.answer(text)).await
    }

    /// A backend that answers every request with this status.
    pub(crate) async fn failing(code: u16) -> Self {
        Self::answering(move |arrived| arrived.respond(status(code))).await
    }

    /// Returns the URL of a port that refuses connections until the tests end.
    pub(crate) fn unreachable() -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        // A port that is bound but not listened on refuses, and no other test is given it.
        std::mem::forget(socket);
        url
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    /// Waits for the next request to arrive.
    pub(crate) async fn next(&self) -> BackendRequest {
        let mut arrivals = self.arrivals.lock().await;
        let next = timeout(TIMEOUT, arrivals.recv()).await;
        next.expect("no request arrives").unwrap()
    }

    /// Number of requests that have arrived and were not taken by [`next`](Self::next).
    pub(crate) async fn more(&self) -> usize {
        self.arrivals.lock().await.len()
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    is_http2: bool,
    arrive: mpsc::UnboundedSender<BackendRequest>,
    counts: Arc<Mutex<Counts>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        counts.lock().unwrap().connections += 1;
        let (arrive, counts) = (arrive.clone(), counts.clone());
        let answer = service_fn(move |request| answer(request, arrive.clone(), counts.clone()));
        let tls = tls.clone();
        connections.spawn(async move {
            // The test sees at the client how the connection ended.
            let _ = match tls {
                None if is_http2 => {
                    let protocol = http2::Builder::new(TokioExecutor::new());
                    protocol
                        .serve_connection(TokioIo::new(socket), answer)
                        .await
                }
                None => serve_connection(socket, answer).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => serve_connection(socket, answer).await,
                    Err(_) => return,
                },
            };
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection<F>(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl HttpService<
        Incoming,
        Future = F,
        ResBody = UnsyncBoxBody<Bytes, Aborted>,
        Error = Aborted,
    >,
) -> hyper::Result<()>
where
    F: Future<Output = Reply>,
{
    let serving = http1::Builder::new().serve_connection(TokioIo::new(socket), answer);
    serving.await
}

async fn answer(
    request: Request<Incoming>,
    arrive: mpsc::UnboundedSender<BackendRequest>,
    counts: Arc<Mutex<Counts>>,
) -> Reply {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/health" {
        let empty = Full::default().map_err(|never| match never {});
        return Ok(Response::new(empty.boxed_unsync()));
    }
    let body = body.collect().await.map_err(|_| Aborted)?.to_bytes();
    let (listening, gone) = oneshot::channel();
    let serving = Serving::new(counts, listening);
    let (reply, replied) = oneshot::channel();
    let arrived = BackendRequest {
        head,
        body,
        reply,
        gone,
    };
    if arrive.send(arrived).is_err() {
        return Err(Aborted);
    }
    let response = replied.await.map_err(|_| Aborted)??;
    Ok(response.map(|body| {
        body.map_frame(move |frame| {
            let _held_until_the_body_ends = &serving;
            frame
        })
        .boxed_unsync()
    }))
}

/// Guard that counts a request as in flight.
struct Serving {
    counts: Arc<Mutex<Counts>>,
    _listening: oneshot::Sender<Infallible>,
}

impl Serving {
    fn new(counts: Arc<Mutex<Counts>>, listening: oneshot::Sender<Infallible>) -> Self {
        let mut now = counts.lock().unwrap();
        now.arrived += 1;
        now.in_flight += 1;
        now.peak = now.peak.max(now.in_flight);
        drop(now);
        Self {
            counts,
            _listening: listening,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.counts.lock().unwrap().in_flight -= 1;
    }
}

/// A request that has arrived at a backend. Dropping it resets the connection.
pub(crate) struct BackendRequest {
    pub(crate) head: request::Parts,
    pub(crate) body: Bytes,
    reply: oneshot::Sender<Reply>,
    gone: oneshot::Receiver<Infallible>,
}

impl BackendRequest {
    pub(crate) fn label(&self) -> &str {
        self.header("x-label").unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.head.headers.get(name)?;
        Some(value.to_str().unwrap())
    }

    /// The `model` in the body.
    pub(crate) fn model(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["model"].as_str().unwrap().to_owned()
    }

    pub(crate) fn answer(self, text: &str) {
        self.respond(Response::new(text.to_owned()));
    }

    pub(crate) fn respond(self, response: Response<impl Into<Bytes>>) {
        let response = response.map(|text| {
            let body = Full::new(text.into());
            body.map_err(|never| match never {}).boxed_unsync()
        });
        let _ = self.reply.send(Ok(response)); // the gateway may be gone
    }

    /// Sends the response headers at once. The test then sends the body.
    pub(crate) fn stream(self) -> ResponseStream {
        let (chunks, rest) = mpsc::unbounded_channel();
        let frames = stream::unfold(rest, async |mut rest| Some((rest.recv().await?, rest)));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert("content-type", "text/event-stream".parse().unwrap());
        let _ = self.reply.send(Ok(response)); // the gateway may be gone
        ResponseStream {
            chunks,
            gone: self.gone,
        }
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn disconnected(self) {
        let Self { reply, gone, .. } = self;
        wait_for_disconnect(gone).await;
        drop(reply);
    }
}

/// A response that is being streamed. Dropping it ends the body normally.
pub(crate) struct ResponseStream {
    chunks: mpsc::UnboundedSender<Result<Frame<Bytes>, Aborted>>,
    gone: oneshot::Receiver<Infallible>,
}

impl ResponseStream {
    pub(crate) fn send(&self, chunk: &str) {
        let chunk = Bytes::from(chunk.to_owned());
        let _ = self.chunks.send(Ok(Frame::data(chunk))); // the gateway may be gone
    }

    pub(crate) fn end(self) {}

    pub(crate) fn abort(self) {
        let _ = self.chunks.send(Err(Aborted)); // the gateway may be gone
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn disconnected(self) {
        let Self { chunks, gone } = self;
        wait_for_disconnect(gone).await;
        drop(chunks);
    }
}

async fn wait_for_disconnect(gone: oneshot::Receiver<Infallible>) {
    let gone = timeout(TIMEOUT, gone).await;
    assert!(gone.expect("the client is still connected").is_err());
}

/// A response with this status and no body.
pub(crate) fn status(status: u16) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

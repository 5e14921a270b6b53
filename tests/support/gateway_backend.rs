//! A backend that answers when, what and how the test says. At `/health` it says that it is well, and that
//! is no arrival.

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
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::process::PATIENCE;

type Reply = Result<Response<UnsyncBoxBody<Bytes, BrokenOff>>, BrokenOff>;

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("broken off")]
pub(crate) struct BrokenOff;

pub(crate) struct Backend {
    addr: SocketAddr,
    arrivals: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arrived>>,
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
        Self::start_with(None).await
    }

    /// One at `localhost` that vouches for itself, and its certificate in PEM.
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
        (Self::start_with(Some(tls)).await, own.cert.pem())
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (arrive, arrivals) = mpsc::unbounded_channel();
        let counts = Arc::<Mutex<Counts>>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, tls, arrive, counts.clone()));
        Self {
            addr,
            arrivals: arrivals.into(),
            counts,
            serving,
        }
    }

    /// One that answers by itself, for as long as it is kept.
    pub(crate) async fn answering(mut answer: impl FnMut(Arrived) + Send + 'static) -> Self {
        let mut backend = Self::start().await;
        let nobody = mpsc::unbounded_channel().1;
        let mut arrivals = std::mem::replace(backend.arrivals.get_mut(), nobody);
        backend.serving.spawn(async move {
            while let Some(arrived) = arrivals.recv().await {
                answer(arrived);
            }
        });
        backend
    }

    /// One that says the same to everybody.
    pub(crate) async fn saying(text: &'static str) -> Self {
        Self::answering(move |arrived| arrived.answer(text)).await
    }

    /// One that answers everybody with the same status.
    pub(crate) async fn failing(code: u16) -> Self {
        Self::answering(move |arrived| arrived.respond(status(code))).await
    }

    /// Where a backend was and is no more: connections are refused.
    pub(crate) async fn gone() -> String {
        Self::start().await.url()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    /// The next request to arrive.
    pub(crate) async fn next(&self) -> Arrived {
        let mut arrivals = self.arrivals.lock().await;
        let next = timeout(PATIENCE, arrivals.recv()).await;
        next.expect("nobody arrives").unwrap()
    }

    /// The requests that have arrived and that [`next`](Self::next) did not return.
    pub(crate) async fn more(&self) -> usize {
        self.arrivals.lock().await.len()
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    arrive: mpsc::UnboundedSender<Arrived>,
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
            // How it ends is for the test to see at the other side.
            let _ = match tls {
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
        ResBody = UnsyncBoxBody<Bytes, BrokenOff>,
        Error = BrokenOff,
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
    arrive: mpsc::UnboundedSender<Arrived>,
    counts: Arc<Mutex<Counts>>,
) -> Reply {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/health" {
        let well = Full::default().map_err(|never| match never {});
        return Ok(Response::new(well.boxed_unsync()));
    }
    let body = body.collect().await.map_err(|_| BrokenOff)?.to_bytes();
    let (listening, gone) = oneshot::channel();
    let serving = Serving::new(counts, listening);
    let (reply, replied) = oneshot::channel();
    let arrived = Arrived {
        head,
        body,
        reply,
        gone,
    };
    if arrive.send(arrived).is_err() {
        return Err(BrokenOff);
    }
    let response = replied.await.map_err(|_| BrokenOff)??;
    Ok(response.map(|body| {
        body.map_frame(move |frame| {
            let _held_as_long_as_the_body = &serving;
            frame
        })
        .boxed_unsync()
    }))
}

/// As long as a request is being served.
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

/// A request that has arrived at a backend. Dropped, its connection breaks off.
pub(crate) struct Arrived {
    pub(crate) head: request::Parts,
    pub(crate) body: Bytes,
    reply: oneshot::Sender<Reply>,
    gone: oneshot::Receiver<Infallible>,
}

impl Arrived {
    pub(crate) fn label(&self) -> &str {
        self.header("x-label").unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.head.headers.get(name)?;
        Some(value.to_str().unwrap())
    }

    /// The model that its body names.
    pub(crate) fn model(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["model"].as_str().unwrap().to_owned()
    }

    pub(crate) fn answer(self, text: &str) {
        self.respond(Response::new(text.to_owned()));
    }

    pub(crate) fn respond(self, response: Response<String>) {
        let response = response.map(|text| {
            let body = Full::new(Bytes::from(text));
            body.map_err(|never| match never {}).boxed_unsync()
        });
        let _ = self.reply.send(Ok(response)); // the gateway may be gone
    }

    /// Answers with the head at once, and with the body as the test says.
    pub(crate) fn stream(self) -> Streaming {
        let (chunks, rest) = mpsc::unbounded_channel();
        let frames = stream::unfold(rest, async |mut rest| Some((rest.recv().await?, rest)));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert("content-type", "text/event-stream".parse().unwrap());
        let _ = self.reply.send(Ok(response)); // the gateway may be gone
        Streaming {
            chunks,
            gone: self.gone,
        }
    }

    /// Returns when nobody listens any more.
    pub(crate) async fn hung_up(self) {
        let Self { reply, gone, .. } = self;
        gone_within(gone).await;
        drop(reply);
    }
}

/// An answer that is being streamed. Dropped, it has ended well.
pub(crate) struct Streaming {
    chunks: mpsc::UnboundedSender<Result<Frame<Bytes>, BrokenOff>>,
    gone: oneshot::Receiver<Infallible>,
}

impl Streaming {
    pub(crate) fn send(&self, chunk: &str) {
        let chunk = Bytes::from(chunk.to_owned());
        let _ = self.chunks.send(Ok(Frame::data(chunk))); // the gateway may be gone
    }

    pub(crate) fn end(self) {}

    pub(crate) fn break_off(self) {
        let _ = self.chunks.send(Err(BrokenOff)); // the gateway may be gone
    }

    /// Returns when nobody listens any more.
    pub(crate) async fn hung_up(self) {
        let Self { chunks, gone } = self;
        gone_within(gone).await;
        drop(chunks);
    }
}

async fn gone_within(gone: oneshot::Receiver<Infallible>) {
    let gone = timeout(PATIENCE, gone).await;
    assert!(gone.expect("somebody still listens").is_err());
}

/// An empty answer of this status.
pub(crate) fn status(status: u16) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

//! A receiver of webhooks on a real socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub(crate) struct Receiver {
    address: SocketAddr,
    told: mpsc::UnboundedReceiver<Told>,
    connections: Arc<AtomicUsize>,
}

/// A webhook that arrived.
pub(crate) struct Told {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

impl Receiver {
    /// Starts a receiver that responds with a status by the number of the request, from 1.
    pub(crate) async fn start(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Self {
        Self::start_with(status, "0").await
    }

    /// Starts a receiver that responds with a status and this `Retry-After`.
    pub(crate) async fn start_with(
        status: impl Fn(usize) -> u16 + Send + Sync + 'static,
        retry_after: &'static str,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, told) = mpsc::unbounded_channel();
        let (status, count) = (Arc::new(status), Arc::new(AtomicUsize::new(0)));
        let service = service_fn(move |request: Request<Incoming>| {
            let (sender, status, count) = (sender.clone(), Arc::clone(&status), Arc::clone(&count));
            async move {
                let (head, body) = request.into_parts();
                let told = Told {
                    path: head.uri.path_and_query().unwrap().to_string(),
                    headers: head.headers,
                    body: body.collect().await.unwrap().to_bytes(),
                    at: Instant::now(),
                };
                let response = Response::builder()
                    .status(status(count.fetch_add(1, SeqCst) + 1))
                    .header("retry-after", retry_after)
                    .header("location", format!("http://{address}/elsewhere"));
                let _ = sender.send(told);
                Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
            }
        });
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
                tokio::spawn(connection);
            }
        });
        Self {
            address,
            told,
            connections: Arc::default(),
        }
    }

    /// Starts a receiver that takes connections and never responds.
    pub(crate) async fn start_silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, told) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            let mut streams = Vec::new();
            loop {
                streams.push(listener.accept().await.unwrap());
                count.fetch_add(1, SeqCst);
                if sender.is_closed() {
                    break;
                }
            }
        });
        Self {
            address,
            told,
            connections,
        }
    }

    /// Returns the number of connections to a silent receiver so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the next webhook.
    pub(crate) async fn next(&mut self) -> Told {
        self.told.recv().await.unwrap()
    }

    pub(crate) fn try_next(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }
}

//! A connection that carries many requests at the same time, and the task that drives it.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
// All numbers are `Relaxed`, because each is read by itself and guards no other memory.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, Connection as Driver, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::upstream::connect::{ConnectError, Connector, peer_of};
use crate::upstream::connection::{Connection, ConnectionState};
use crate::upstream::pool::Release;
use crate::upstream::tls::Stream as Socket;
use crate::upstream::upkeep::{Kept, Upkeep};

/// A connection to an endpoint, over which requests with a body of type `B` are sent. Clones share the connection.
///
/// Once all clones are dropped, the connection closes as soon as its last stream has ended.
pub(in crate::upstream) struct Http2Connection<B> {
    sender: SendRequest<B>,
    state: ConnectionState,
    usage: Arc<Usage>,
    kept: Arc<Kept>,
}

/// The use of a connection, which its clones, its streams and its driver share.
#[derive(Debug, Default)]
struct Usage {
    /// The number of streams that have not ended.
    open: AtomicU32,
    /// The number of streams that the endpoint allows at a time. `None` until it has told its limit.
    limit: watch::Sender<Option<u32>>,
    /// Is notified once something was written after the first bytes of the endpoint. Those are its settings, and hyper has taken
    /// them in when it confirms them.
    has_replied: Arc<Notify>,
    /// The number of streams that have begun. It wraps around.
    begun: AtomicU32,
    /// `true` once the head of an answer has come.
    has_answered: AtomicBool,
    /// `true` once the endpoint was silent for all the time of a request that was given up.
    is_silent: AtomicBool,
}

/// The part of an answer that may be unread while its client does not read it, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;

/// The largest window of a connection. The windows of its streams are the bound, because clients that do not read their
/// answers would otherwise use up the window of all others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// The number of streams that may begin before the endpoint has told its limit. Streams above the limit would be refused.
const FIRST_STREAMS: usize = 1;

/// The number of reset streams that are remembered for a second, so that the rest of their answers is dropped silently.
const RESET_STREAMS: usize = 1024;

/// The largest headers of an answer, in bytes by HTTP/2's count. Over HTTP/1.1 they may be about as large.
const LARGEST_HEADERS: u32 = 256 << 10;

/// The least time of a request after whose end a silent connection gets no further one, if the request did not time out.
const SILENCE: Duration = Duration::from_secs(10);

/// The time between two looks at an idle connection.
const TICK: Duration = Duration::from_secs(15);

/// The number of ticks after which an idle connection is closed, so it is kept for 45 s to 60 s. Load balancers commonly
/// forget silent connections after 60 s. A server that closes earlier announces it, so that no request is lost.
const IDLE_TICKS: u32 = 3;

impl<B> Http2Connection<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Connects to the host of `to`, and starts the task that drives the connection.
    pub(in crate::upstream) async fn open(
        connector: &Connector,
        to: Uri,
        upkeep: &Arc<Upkeep>,
    ) -> Result<Self, ConnectError> {
        let stream = connector.connect_http2(to).await?;
        let kept = Arc::new(upkeep.begin(peer_of(&stream)));
        let usage = Arc::<Usage>::default();
        let connection = Connection::new(stream)
            .replying(&usage.has_replied)
            .limiting_heads_of_streams();
        let state = connection.state();
        let connected = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(FIRST_STREAMS)
            .max_header_list_size(LARGEST_HEADERS)
            .max_concurrent_reset_streams(RESET_STREAMS)
            // The limit protects servers. Here, it would end all requests after enough clients have hung up.
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(connection))
            .await;
        let (sender, driver) = connected.map_err(ConnectError::failed)?;
        let of_driver = Arc::clone(&usage);
        let limit = move |driver: &Driver<TokioIo<Connection<Socket>>, B, TokioExecutor>| {
            of_driver.set_limit(driver.current_max_send_streams());
        };
        tokio::spawn(driven(driver, limit, Arc::clone(&usage)));
        Ok(Self {
            sender,
            state,
            usage,
            kept,
        })
    }

    /// Sends a request. The error has the request if hyper had not begun to write it.
    #[allow(clippy::type_complexity)]
    pub(in crate::upstream) fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<B>>>> + use<B> {
        self.sender.try_send_request(request)
    }
}

impl<B> Http2Connection<B> {
    /// Returns `true` if no request should be sent any more: the connection is closed or too old, the endpoint has announced its
    /// end or has moved, or nothing has come over it for too long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        // A connection takes one request at least, so that a tiny age does not keep all requests from being sent.
        let was_begun = self.usage.begun.load(Relaxed) > 0;
        self.sender.is_closed()
            || self.usage.is_silent.load(Relaxed)
            || (was_begun && self.kept.is_over(now))
    }

    /// Begins the stream of a request.
    pub(in crate::upstream) fn begin(&self) -> Stream {
        let was_open = self.usage.open.fetch_add(1, Relaxed);
        self.begun(was_open)
    }

    /// Begins the stream of a request, unless the endpoint allows no further one. Before it has told its limit, one may begin.
    pub(super) fn try_begin(&self) -> Option<Stream> {
        // A connection without a stream takes one even if the endpoint allows none, because no other connection would be better.
        let limit = self.usage.limit.borrow().unwrap_or(1).max(1);
        let more = |open: u32| (open < limit).then(|| open + 1);
        let was_open = self.usage.open.fetch_update(Relaxed, Relaxed, more);
        Some(self.begun(was_open.ok()?))
    }

    /// Returns the stream of a request that was just counted.
    fn begun(&self, was_open: u32) -> Stream {
        self.usage.begun.fetch_add(1, Relaxed);
        if was_open == 0 {
            self.state.begin();
        }
        Stream {
            usage: Arc::clone(&self.usage),
            silent_since: Some((Instant::now(), self.state.reads())),
            state: self.state.clone(),
            is_late: None,
            body: None,
        }
    }

    /// Returns `true` if the endpoint has not told its limit of streams.
    pub(super) fn has_no_limit_yet(&self) -> bool {
        self.usage.limit.borrow().is_none()
    }

    /// Waits until the endpoint has told its limit of streams, or the connection has ended.
    pub(super) async fn limit_known(&self) {
        let mut limit = self.usage.limit.subscribe();
        _ = limit.wait_for(Option::is_some).await;
    }

    /// Returns `true` if the endpoint has answered a request over this connection.
    pub(super) fn was_used(&self) -> bool {
        self.usage.has_answered.load(Relaxed)
    }

    /// Returns `true` if a byte has come since the connection last began to carry requests.
    pub(super) fn has_received(&self) -> bool {
        self.state.has_answered()
    }
}

impl<B> Clone for Http2Connection<B> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            state: self.state.clone(),
            usage: Arc::clone(&self.usage),
            kept: Arc::clone(&self.kept),
        }
    }
}

/// The stream of one request, from its begin to the end of its answer.
pub(in crate::upstream) struct Stream {
    usage: Arc<Usage>,
    state: ConnectionState,
    /// The begin of the stream, with the number of reads then. `None` once the head of the answer has come.
    silent_since: Option<(Instant, u32)>,
    /// `true` if the stream ends because the endpoint has not answered in time.
    is_late: Option<Arc<AtomicBool>>,
    /// It is dropped with the stream, which ends a body that is still being sent.
    body: Option<Box<dyn Send + Sync>>,
}

impl Stream {
    /// Sets what tells that the endpoint has not answered in time, and what ends the body together with the stream.
    pub(super) fn set(&mut self, is_late: &Arc<AtomicBool>, body: Option<Box<dyn Send + Sync>>) {
        self.is_late = Some(Arc::clone(is_late));
        self.body = body;
    }

    /// Records that the head of the answer has come.
    pub(super) fn on_answer(&mut self) {
        self.silent_since = None;
        self.usage.has_answered.store(true, Relaxed);
    }
}

impl Release for Stream {
    fn release(self: Box<Self>) {}
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.usage.open.fetch_sub(1, Relaxed);
        let is_late = self.is_late.as_ref().is_some_and(|it| it.load(Relaxed));
        if let Some((begin, reads)) = self.silent_since
            && self.state.reads() == reads
            && (is_late || begin.elapsed() >= SILENCE)
        {
            self.usage.is_silent.store(true, Relaxed);
        }
    }
}

/// Drives a connection to its end, or until it has been idle for too long. A request that comes at that very moment is
/// returned to its sender. `limit` looks at the limit of streams.
async fn driven<D>(driver: D, limit: impl Fn(&D), usage: Arc<Usage>)
where
    D: Future<Output = hyper::Result<()>> + Unpin,
{
    let mut driver = driver;
    let mut idle = pin!(usage.until_idle());
    let (mut replied, mut has_replied) = (pin!(usage.has_replied.notified()), false);
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut driver).poll(cx);
        has_replied = has_replied || replied.as_mut().poll(cx).is_ready();
        if has_replied {
            limit(&driver);
        }
        match polled {
            Poll::Pending => idle.as_mut().poll(cx).map(Ok),
            ended => ended,
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection to an endpoint has ended");
    }
    // Wakes the requests that wait for the limit, each of which finds the connection closed.
    drop(driver);
    usage.set_limit(usize::MAX);
}

impl Usage {
    fn set_limit(&self, streams: usize) {
        let new = Some(u32::try_from(streams).unwrap_or(u32::MAX));
        self.limit
            .send_if_modified(|limit| std::mem::replace(limit, new) != new);
    }

    /// Waits until there has been no stream for [`IDLE_TICKS`].
    async fn until_idle(&self) {
        let (mut idle_ticks, mut seen) = (0, self.begun.load(Relaxed));
        while idle_ticks < IDLE_TICKS {
            sleep(TICK).await;
            let begun = self.begun.load(Relaxed);
            let is_idle = begun == seen && self.open.load(Relaxed) == 0;
            idle_ticks = if is_idle { idle_ticks + 1 } else { 0 };
            seen = begun;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_silent_for_a_long_request_gets_no_other() {
        let usage = Arc::<Usage>::default();
        let state = Connection::new(()).state();
        let begin = || Stream {
            usage: Arc::clone(&usage),
            state: state.clone(),
            silent_since: Some((Instant::now(), state.reads())),
            is_late: None,
            body: None,
        };
        let mut answered = begin();
        answered.on_answer();
        let given_up = begin();
        advance(SILENCE - Duration::from_millis(1)).await;
        drop((answered, given_up));
        assert!(!usage.is_silent.load(Relaxed));
        let given_up = begin();
        advance(SILENCE).await;
        drop(given_up);
        assert!(usage.is_silent.load(Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_silent_for_a_late_request_gets_no_other() {
        let usage = Arc::<Usage>::default();
        let state = Connection::new(()).state();
        let mut stream = Stream {
            usage: Arc::clone(&usage),
            state: state.clone(),
            silent_since: Some((Instant::now(), state.reads())),
            is_late: None,
            body: None,
        };
        stream.set(&Arc::new(AtomicBool::new(true)), None);
        drop(stream);
        assert!(usage.is_silent.load(Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_three_ticks_after_its_last_stream() {
        let usage = Arc::<Usage>::default();
        let start = Instant::now();
        let idle = tokio::spawn({
            let usage = Arc::clone(&usage);
            async move { usage.until_idle().await }
        });
        usage.begun.store(1, Relaxed);
        usage.open.store(1, Relaxed);
        advance(TICK * 100).await;
        assert!(!idle.is_finished());
        usage.open.store(0, Relaxed);
        idle.await.unwrap();
        let idle = start.elapsed() - TICK * 100;
        assert!(idle >= TICK * 2 && idle <= TICK * 4, "{idle:?}");
    }
}

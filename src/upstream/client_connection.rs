//! A connection that carries one request at a time, and the task that drives it.

use std::error::Error;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tower_service::Service;

use super::connect::{ConnectError, Connector, peer_of};
use super::connection::{Connection, ConnectionState};
use super::upkeep::{Kept, Upkeep};
use super::upload::Progress;

/// A connection to an endpoint, over which requests with a body of type `B` are sent one after another.
///
/// Dropping it closes the connection. If a request is on its way, the connection is closed at once, so that the endpoint
/// gets nothing more of it.
pub(super) struct ClientConnection<B> {
    sender: SendRequest<B>,
    state: ConnectionState,
    /// The task that reads and writes. Aborting it closes the connection.
    driver: AbortHandle,
    phase: Phase,
    clock: Arc<IdleClock>,
    /// The tick at which the connection was made, or its last answer ended.
    idle_since: u32,
    /// The tick at which the connection was made.
    opened: u32,
    /// `None` for a connection of one request.
    kept: Option<Kept>,
}

/// The outcome of a request with a body of type `B` that was sent.
pub(super) type Sent<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

#[derive(Debug)]
enum Phase {
    Unused,
    /// A request is on its way, or its answer is. A part of its body may be unsent if the request has one.
    Busy(Option<Progress>),
    Idle,
}

/// The time between two looks at the idle connections, by which their clock moves.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The clock by which connections age. It only moves while connections are watched.
#[derive(Debug, Default)]
pub(super) struct IdleClock(AtomicU32);

impl IdleClock {
    /// Moves the clock by one tick, and returns the tick that begins.
    pub(super) fn tick(&self) -> u32 {
        // Relaxed is enough, because the tick is a number that guards no other memory.
        self.0.fetch_add(1, Relaxed).wrapping_add(1)
    }

    pub(super) fn now(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

impl<B> ClientConnection<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Connects to the host of `to`, and starts the task that drives the connection. If it `may_upgrade`, it can change its
    /// protocol. A connection that is kept has an `upkeep`.
    pub(super) async fn open(
        connector: &Connector,
        to: Uri,
        clock: Arc<IdleClock>,
        upkeep: Option<&Arc<Upkeep>>,
        may_upgrade: bool,
    ) -> Result<Self, ConnectError> {
        let stream = connector.connect(to).await?;
        let kept = upkeep.map(|upkeep| upkeep.begin(peer_of(&stream)));
        let connection = Connection::new(stream).limiting_heads();
        let state = connection.state();
        let connected = handshake(TokioIo::new(connection)).await;
        let (sender, driver) = connected.map_err(ConnectError::failed)?;
        let driver = match may_upgrade {
            true => tokio::spawn(driven(driver.with_upgrades())),
            false => tokio::spawn(driven(driver)),
        };
        Ok(Self {
            sender,
            state,
            driver: driver.abort_handle(),
            phase: Phase::Unused,
            idle_since: clock.now(),
            opened: clock.now(),
            clock,
            kept,
        })
    }

    /// Sends a request, of which `progress` tells how much of the body is sent. The error has the request if hyper had
    /// not begun to write it. The future is boxed, because it has room for a request, and is moved several times.
    pub(super) fn send(
        &mut self,
        request: Request<B>,
        progress: Option<Progress>,
    ) -> Pin<Box<impl Future<Output = Sent<B>> + use<B>>> {
        self.state.begin();
        self.phase = Phase::Busy(progress);
        let state = self.state.clone();
        let sent = self.sender.try_send_request(request);
        Box::pin(async move {
            let sent = sent.await;
            state.on_head();
            sent
        })
    }
}

/// Drives a connection to its end.
async fn driven(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to an endpoint has ended");
    }
}

impl<B> ClientConnection<B> {
    /// Returns `true` if a request has been sent over this connection.
    pub(super) fn was_used(&self) -> bool {
        !matches!(self.phase, Phase::Unused)
    }

    /// Returns the state of the connection.
    pub(super) fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// Returns `true` if the connection takes a request now. Otherwise it is given up, so that it does not go back to its
    /// pool. The endpoint may have closed a connection that takes a request, and hyper does not know it yet.
    pub(super) fn check(&mut self) -> bool {
        let is_ready = match self.phase {
            Phase::Unused => !self.sender.is_closed(),
            Phase::Busy(_) => false,
            Phase::Idle if self.is_over() => return false,
            Phase::Idle => self.sender.is_ready(),
        };
        if !is_ready {
            self.phase = Phase::Busy(None);
        }
        is_ready
    }

    /// Returns `true` if the connection is too old for another request, or its endpoint has moved.
    fn is_over(&self) -> bool {
        let Some(kept) = &self.kept else {
            return false;
        };
        // By the ticks, so that a request does not read the clock.
        let age = TICK * self.clock.now().wrapping_sub(self.opened);
        age >= kept.max_age() || kept.has_moved()
    }

    /// Returns `true` if the connection carries no request, is open and may take another one.
    fn is_idle(&self) -> bool {
        !matches!(self.phase, Phase::Busy(_)) && !self.sender.is_closed() && !self.is_over()
    }

    /// Returns `true` if the connection is open, and has been idle for less than `limit` ticks at the tick `now`.
    pub(super) fn is_fresh(&self, now: u32, limit: u32) -> bool {
        self.is_idle() && now.wrapping_sub(self.idle_since) < limit
    }

    /// Records that the answer has ended. The connection is idle from now on, unless a part of the request's body is
    /// still unsent.
    pub(super) fn end_answer(&mut self) {
        if let Phase::Busy(progress) = &self.phase
            && progress.as_ref().is_none_or(Progress::has_ended)
            && self.state.is_flushed()
        {
            self.phase = Phase::Idle;
            self.idle_since = self.clock.now();
        }
    }
}

/// The service by which the cache asks if a connection may go back to it. An error means that it may not.
impl<B> Service<()> for ClientConnection<B> {
    type Response = ();
    type Error = ();
    type Future = Ready<Result<(), ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(self.is_idle().then_some(()).ok_or(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

impl<B> Drop for ClientConnection<B> {
    fn drop(&mut self) {
        // hyper would go on to write the request. An idle connection is closed by hyper, which ends TLS as well.
        if let Phase::Busy(_) = self.phase {
            self.driver.abort();
        }
    }
}

//! The connections to one endpoint that are kept between requests.
//!
//! The types of hyper-util's cache have no names outside of its crate, so a [`Pool`] is a trait object. The methods that
//! only these types have come as pointers from the function that creates the cache.

use std::error::Error;
use std::future::ready;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use http::Uri;
use http_body::Body;
use hyper_util::client::pool::cache;
use hyper_util::rt::TokioExecutor;
use tokio::time::sleep;
use tower_service::Service;

use super::client_connection::{ClientConnection, IdleClock, TICK};
use super::connect::{ConnectError, Connector};
use super::upkeep::{LOOK_EVERY, Upkeep};

/// The connections to one endpoint. A request takes one that is idle, or else opens a new one.
pub(super) trait Pool<B>: Send + Sync {
    /// Takes a connection. While a new one is being opened, one that becomes idle is taken instead, and the new one is
    /// kept for later.
    fn take(self: Arc<Self>) -> Taken<B>;

    /// Closes all connections that are idle.
    fn close_all_idle(&self);
}

/// A connection of a pool, or an attempt to get one.
pub(super) enum Taken<B> {
    Idle(Box<dyn InUse<B>>),
    Opening(Opening<B>),
}

/// An attempt to get a connection. It is `None` if the connection was closed meanwhile.
pub(super) type Opening<B> =
    Pin<Box<dyn Future<Output = Result<Option<Box<dyn InUse<B>>>, ConnectError>> + Send>>;

/// A connection while a request uses it. Dropping it before the answer has ended closes the connection.
pub(super) trait InUse<B>: Release {
    fn connection(&mut self) -> &mut ClientConnection<B>;
}

/// A connection that carries an answer.
pub(super) trait Release: Send + Sync {
    /// Gives the connection back, because the answer has ended.
    fn release(self: Box<Self>);
}

/// The number of ticks after which an idle connection is closed, so it is kept for 3 s to 4 s. Servers commonly close
/// after 5 s (uvicorn, Node.js). Closing earlier avoids a request on a connection that the server is closing.
const IDLE_TICKS: u32 = 4;

/// The number of ticks between two look-ups of the endpoint's name.
const LOOK_TICKS: u32 = (LOOK_EVERY.as_secs() / TICK.as_secs()) as u32;

/// Creates a pool of connections to the host of `to`.
pub(super) fn pool<B>(connector: Connector, to: Uri) -> Arc<dyn Pool<B>>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let clock = Arc::new(IdleClock::default());
    let upkeep = Upkeep::new(connector.clone(), to.clone());
    let opener = Opener {
        connector,
        to,
        clock: Arc::clone(&clock),
        upkeep: Arc::clone(&upkeep),
        body: PhantomData,
    };
    let cache = cache::builder()
        .executor(TokioExecutor::new())
        .build(opener);
    Arc::new(CachePool::new(
        cache,
        clock,
        upkeep,
        |cache, now| cache.retain(|connection| connection.is_fresh(now, IDLE_TICKS)),
        |cached| cached.inner_mut(),
    ))
}

/// A service that opens connections to one endpoint.
struct Opener<B> {
    connector: Connector,
    to: Uri,
    clock: Arc<IdleClock>,
    upkeep: Arc<Upkeep>,
    body: PhantomData<fn(B)>,
}

impl<B> Service<()> for Opener<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = ClientConnection<B>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<ClientConnection<B>, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        let (connector, to) = (self.connector.clone(), self.to.clone());
        // The clone counts as a connection from here on, so that the pool is watched.
        let clock = Arc::clone(&self.clock);
        let upkeep = Arc::clone(&self.upkeep);
        Box::pin(async move {
            ClientConnection::open(&connector, to, clock, Some(&upkeep), false).await
        })
    }
}

/// A pool on a cache of type `C`, which hands out connections of type `L`.
struct CachePool<C, L, B> {
    state: Mutex<State<C>>,
    /// The clock of the connections. The pool, its opener and each connection hold it, so the count of its holders tells
    /// if there are connections.
    clock: Arc<IdleClock>,
    upkeep: Arc<Upkeep>,
    /// Closes the idle connections that are not fresh at a tick.
    retain: fn(&mut C, u32),
    get: fn(&mut L) -> &mut ClientConnection<B>,
}

struct State<C> {
    cache: C,
    /// `true` while a [`Watch`] closes idle connections.
    is_watched: bool,
}

impl<C, L, B> CachePool<C, L, B> {
    fn new(
        cache: C,
        clock: Arc<IdleClock>,
        upkeep: Arc<Upkeep>,
        retain: fn(&mut C, u32),
        get: fn(&mut L) -> &mut ClientConnection<B>,
    ) -> Self
    where
        C: Service<(), Response = L>,
    {
        let state = Mutex::new(State {
            cache,
            is_watched: false,
        });
        Self {
            state,
            clock,
            upkeep,
            retain,
            get,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the clock, and closes the connections that have been idle for too long or take no request any more. Returns
    /// `false` if no connection is left, so that the pool need not be watched.
    fn close_idle(&self) -> bool {
        let mut state = self.lock();
        let now = self.clock.tick();
        if now.is_multiple_of(LOOK_TICKS) {
            self.upkeep.look_up();
        }
        (self.retain)(&mut state.cache, now);
        // The pool and its opener are two holders. A connection that is about to be opened counts before the pool asks
        // for a watch, under the same lock.
        state.is_watched = Arc::strong_count(&self.clock) > 2;
        state.is_watched
    }
}

impl<C, L, B> Pool<B> for CachePool<C, L, B>
where
    C: Service<(), Response = L, Error = ConnectError> + Send + 'static,
    C::Future: Unpin + Send + 'static,
    L: Service<()> + Send + Sync + 'static,
    B: 'static,
{
    fn take(self: Arc<Self>) -> Taken<B> {
        let cx = &mut Context::from_waker(Waker::noop());
        let get = self.get;
        loop {
            let (mut taking, is_watched) = {
                let mut state = self.lock();
                _ = state.cache.poll_ready(cx); // an opener is always ready
                (state.cache.call(()), state.is_watched)
            };
            if !is_watched {
                Watch::start(&self); // the runtime of the last one may have shut down
            }
            // An idle connection is there at once. In other cases, the future is polled again by the request's task.
            match Pin::new(&mut taking).poll(cx) {
                Poll::Ready(Ok(cached)) => {
                    if let Some(in_use) = checked(cached, get) {
                        return Taken::Idle(in_use);
                    }
                }
                Poll::Ready(Err(error)) => {
                    return Taken::Opening(Box::pin(ready(Err(error))));
                }
                Poll::Pending => {
                    let opening = async move { taking.await.map(|cached| checked(cached, get)) };
                    return Taken::Opening(Box::pin(opening));
                }
            }
        }
    }

    fn close_all_idle(&self) {
        // At a tick at which no connection is fresh any more.
        let late = self.clock.now().wrapping_add(IDLE_TICKS);
        (self.retain)(&mut self.lock().cache, late);
    }
}

/// Returns a connection that came from a cache for use, or drops it if it takes no request any more.
fn checked<L, B>(
    cached: L,
    get: fn(&mut L) -> &mut ClientConnection<B>,
) -> Option<Box<dyn InUse<B>>>
where
    L: Service<()> + Send + Sync + 'static,
    B: 'static,
{
    let mut pooled = Pooled { cached, get };
    pooled
        .connection()
        .check()
        .then(|| Box::new(pooled) as Box<dyn InUse<B>>)
}

/// A connection of a cache, which goes back to the cache when it is dropped if it is idle then.
struct Pooled<L: Service<()>, B> {
    cached: L,
    get: fn(&mut L) -> &mut ClientConnection<B>,
}

impl<L: Service<()> + Send + Sync, B> InUse<B> for Pooled<L, B> {
    fn connection(&mut self) -> &mut ClientConnection<B> {
        (self.get)(&mut self.cached)
    }
}

impl<L: Service<()> + Send + Sync, B> Release for Pooled<L, B> {
    fn release(mut self: Box<Self>) {
        (self.get)(&mut self.cached).end_answer();
    }
}

impl<L: Service<()>, B> Drop for Pooled<L, B> {
    fn drop(&mut self) {
        // The cache takes a connection back, unless the connection has reported an error.
        _ = self
            .cached
            .poll_ready(&mut Context::from_waker(Waker::noop()));
    }
}

/// A connection of its own for one request.
pub(super) struct Unpooled<B>(pub(super) ClientConnection<B>);

impl<B: Send + 'static> InUse<B> for Unpooled<B> {
    fn connection(&mut self) -> &mut ClientConnection<B> {
        &mut self.0
    }
}

impl<B: Send + 'static> Release for Unpooled<B> {
    fn release(mut self: Box<Self>) {
        self.0.end_answer();
    }
}

/// A task that closes the idle connections of a pool while the pool has connections.
struct Watch<C, L, B>(Weak<CachePool<C, L, B>>);

impl<C, L, B> Watch<C, L, B>
where
    C: Send + 'static,
    L: 'static,
    B: 'static,
{
    /// Starts the task, unless it runs.
    fn start(pool: &Arc<CachePool<C, L, B>>) {
        let was_watched = std::mem::replace(&mut pool.lock().is_watched, true);
        if !was_watched {
            tokio::spawn(Self(Arc::downgrade(pool)).run());
        }
    }

    async fn run(mut self) {
        loop {
            sleep(TICK).await;
            match self.0.upgrade() {
                Some(pool) if pool.close_idle() => {}
                // Another watch may have started by now, and this one has nothing to reset.
                _ => {
                    self.0 = Weak::new();
                    return;
                }
            }
        }
    }
}

impl<C, L, B> Drop for Watch<C, L, B> {
    /// Lets the next request start another watch, because the runtime of this one may shut down before its pool is gone.
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.lock().is_watched = false;
        }
    }
}

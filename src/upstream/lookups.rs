//! DNS lookups that all connections to one name share.
//!
//! The system's lookup blocks a thread, and goes on after the request that needed it has timed out. If each connection
//! made its own, those of one slow name would take the threads of all other names.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tower_service::Service;

/// A TCP connector with shared lookups.
pub(super) type Tcp = HttpConnector<Lookups>;

/// Looks names up. Connections to the same name share one lookup, and its result for [`FRESH`].
#[derive(Clone)]
pub(super) struct Lookups(Arc<Shared>);

struct Shared {
    resolve: Box<Resolve>,
    names: Mutex<HashMap<Name, Lookup>>,
    /// Bounds how many lookups run at a time.
    limit: Semaphore,
}

/// Blocks until the addresses of a name are known.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A lookup: its answer, once it has ended.
type Lookup = watch::Receiver<Option<Answer>>;

/// The addresses of a name, and until when they are used.
type Answer = Result<(Vec<SocketAddr>, Instant), Arc<io::Error>>;

/// How long addresses are used. Failures are not kept.
const FRESH: Duration = Duration::from_secs(5);

/// How many lookups run at a time. Tokio has 512 blocking threads by default; the others are for the rest of the
/// program.
const AT_A_TIME: usize = 64;

impl Default for Lookups {
    /// Asks the system.
    fn default() -> Self {
        Self::by(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }
}

impl Lookups {
    pub(super) fn by(
        resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            resolve: Box::new(resolve),
            names: Mutex::default(),
            limit: Semaphore::new(AT_A_TIME),
        }))
    }

    async fn addresses(self, name: Name) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let mut lookup = self.lookup(name);
        match lookup.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok((addresses, _)))) => Ok(addresses.clone().into_iter()),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), Arc::clone(error))),
            // The lookup's runtime has shut down.
            Ok(None) | Err(_) => Err(io::Error::other("the lookup was abandoned")),
        }
    }

    /// The last lookup of `name`, or a new one.
    fn lookup(&self, name: Name) -> Lookup {
        let mut names = self.0.lock();
        if let Some(lookup) = names.get(&name)
            && is_usable(lookup)
        {
            return lookup.clone();
        }
        let lookup = self.start(name.clone());
        names.insert(name, lookup.clone());
        lookup
    }

    /// Looks `name` up in a task of its own: a lookup that blocks cannot be cancelled with the request that began it.
    fn start(&self, name: Name) -> Lookup {
        let (answer, lookup) = watch::channel(None);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _running = shared.limit.acquire().await; // held to the end of the task
            let asked = Arc::clone(&shared);
            let found = spawn_blocking(move || (asked.resolve)(name.as_str())).await;
            let found = found.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
            // So that the map does not grow with names that are gone.
            shared.lock().retain(|_, lookup| is_usable(lookup));
            let found = found.map(|addresses| (addresses, Instant::now() + FRESH));
            answer.send_replace(Some(found.map_err(Arc::new)));
        });
        lookup
    }
}

/// Whether a lookup is running, or has found addresses that are still used.
fn is_usable(lookup: &Lookup) -> bool {
    match &*lookup.borrow() {
        // If its runtime has shut down, a lookup never ends: its sender is gone.
        None => lookup.has_changed().is_ok(),
        Some(Ok((_, until))) => *until > Instant::now(),
        Some(Err(_)) => false,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Lookup>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Name> for Lookups {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(self.clone().addresses(name))
    }
}

#[cfg(test)]
mod tests;

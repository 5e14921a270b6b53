//! DNS lookups that all connections to one name share.
//!
//! The system's lookup blocks a thread, and it goes on after the request that needed it has timed out. If each
//! connection made its own lookup, the lookups of one slow name would take all the threads from other names.

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

/// A DNS resolver that shares its lookups. All connections to a name use one lookup, and its result is kept for
/// [`FRESH`].
#[derive(Clone)]
pub(super) struct Lookups(Arc<Shared>);

struct Shared {
    resolve: Box<Resolve>,
    names: Mutex<HashMap<Name, Lookup>>,
    /// The limit on the number of lookups that run at a time.
    limit: Semaphore,
}

/// A function that blocks until the addresses of a name are known.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A receiver of a lookup's answer, which is set once the lookup has ended.
type Lookup = watch::Receiver<Option<Answer>>;

/// The addresses of a name with the time until which they are used, or the error of the lookup.
type Answer = Result<(Vec<SocketAddr>, Instant), Arc<io::Error>>;

/// The time for which addresses are used. Failures are not kept.
const FRESH: Duration = Duration::from_secs(5);

/// The number of lookups that run at a time. Tokio has 512 blocking threads by default, and the others are left to the
/// rest of the program.
const AT_A_TIME: usize = 64;

impl Default for Lookups {
    /// Creates a resolver that asks the operating system.
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

    /// Returns the addresses of `name`.
    pub(super) async fn addresses(self, name: Name) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let mut lookup = self.lookup(name);
        match lookup.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok((addresses, _)))) => Ok(addresses.clone().into_iter()),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), Arc::clone(error))),
            // The runtime of the lookup has shut down.
            Ok(None) | Err(_) => Err(io::Error::other("the lookup was abandoned")),
        }
    }

    /// Returns the last lookup of `name` if it is still usable, or starts a new one.
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

    /// Looks up `name` in a task of its own, because a blocking lookup cannot be cancelled with the request that began
    /// it.
    fn start(&self, name: Name) -> Lookup {
        let (answer, lookup) = watch::channel(None);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _running = shared.limit.acquire().await; // held to the end of the task
            let asked = Arc::clone(&shared);
            let found = spawn_blocking(move || (asked.resolve)(name.as_str())).await;
            let found = found.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
            // Outdated entries are removed here, so that the map does not grow with names that are gone.
            shared.lock().retain(|_, lookup| is_usable(lookup));
            let found = found.map(|addresses| (addresses, Instant::now() + FRESH));
            answer.send_replace(Some(found.map_err(Arc::new)));
        });
        lookup
    }
}

/// Returns `true` if a lookup is running, or has found addresses that are still in use.
fn is_usable(lookup: &Lookup) -> bool {
    match &*lookup.borrow() {
        // If the runtime has shut down, the lookup never ends. Its sender is gone then, which is an error here.
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

//! DNS lookups that all connections to one name share.
//!
//! The system's lookup blocks a thread, and goes on after the request that needed it has timed out. If each connection
//! made its own, those of one slow name would take the threads of all other names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    names: Mutex<HashMap<Name, Known>>,
    /// Bounds how many lookups run at a time.
    limit: Semaphore,
}

/// Blocks until the addresses of a name are known.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What is known of a name.
enum Known {
    /// A lookup is running, and sends its result.
    Soon(watch::Receiver<Option<Answer>>),
    /// Its addresses, and until when they are used.
    Until(Instant, Vec<SocketAddr>),
}

type Answer = Result<Vec<SocketAddr>, Arc<io::Error>>;

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
        let mut soon = match self.ask(name) {
            Known::Until(_, addresses) => return Ok(addresses.into_iter()),
            Known::Soon(soon) => soon,
        };
        let answer = match soon.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None, // the lookup's runtime has shut down
        };
        match answer {
            Some(Ok(addresses)) => Ok(addresses.into_iter()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error)),
            None => Err(io::Error::other("the lookup was abandoned")),
        }
    }

    /// What is known of `name`. Starts a lookup if there is none.
    fn ask(&self, name: Name) -> Known {
        let mut names = self.0.lock();
        match names.entry(name) {
            Entry::Occupied(mut known) => match known.get() {
                Known::Until(until, addresses) if *until > Instant::now() => {
                    Known::Until(*until, addresses.clone())
                }
                // If its runtime has shut down, a lookup never ends: its sender is gone.
                Known::Soon(soon) if soon.has_changed().is_ok() => Known::Soon(soon.clone()),
                Known::Until(..) | Known::Soon(_) => {
                    let soon = self.start(known.key().clone());
                    known.insert(Known::Soon(soon.clone()));
                    Known::Soon(soon)
                }
            },
            Entry::Vacant(unknown) => {
                let soon = self.start(unknown.key().clone());
                unknown.insert(Known::Soon(soon.clone()));
                Known::Soon(soon)
            }
        }
    }

    /// Looks `name` up in a task of its own: a lookup that blocks cannot be cancelled with the request that began it.
    fn start(&self, name: Name) -> watch::Receiver<Option<Answer>> {
        let (answer, soon) = watch::channel(None);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _running = shared.limit.acquire().await; // held to the end of the task
            let (asked, host) = (Arc::clone(&shared), name.clone());
            let found = spawn_blocking(move || (asked.resolve)(host.as_str())).await;
            let found = found.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
            answer.send_replace(Some(shared.learn(&name, found)));
        });
        soon
    }
}

impl Shared {
    /// Stores what was found, before it is sent to the connections that wait for it.
    fn learn(&self, name: &Name, found: io::Result<Vec<SocketAddr>>) -> Answer {
        let (mut names, now) = (self.lock(), Instant::now());
        // What is out of date goes, so that the map does not grow with names that are gone.
        names.retain(|_, known| !matches!(known, Known::Until(until, _) if *until <= now));
        match found {
            Ok(addresses) => {
                let known = Known::Until(now + FRESH, addresses.clone());
                names.insert(name.clone(), known);
                Ok(addresses)
            }
            Err(error) => {
                names.remove(name);
                Err(Arc::new(error))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
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

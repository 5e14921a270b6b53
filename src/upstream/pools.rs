//! The pools of an endpoint, which are kept with the endpoint.
//!
//! A change of the endpoint's configuration makes a new endpoint without pools, so a request never goes over a connection
//! to an old URL or to an old process. The pools go with the endpoint, and close their idle connections then.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http_body::Body;

use super::connect::Connector;
use super::pool::{Pool, pool};
use super::upload::Upload;
use crate::endpoints::EndpointRef;

/// The pools of one endpoint, for request bodies of type `B`. Each connector has a pool of its own. Most endpoints have one
/// pool, because a program has one [`Forward`](super::Forward).
struct Pools<B>(Mutex<Vec<(Weak<Connector>, SharedPool<B>)>>);

/// A pool of connections that requests with bodies of type `B` share.
pub(super) type SharedPool<B> = Arc<dyn Pool<Upload<B>>>;

/// Returns the pool of connections to `endpoint` that `connector` makes.
pub(super) fn pool_of<B>(endpoint: &EndpointRef, connector: &Arc<Connector>) -> SharedPool<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let pools = endpoint.extension(|_| Pools::<B>(Mutex::default()));
    let mut pools = pools.0.lock().unwrap_or_else(PoisonError::into_inner);
    let of_this = |(of, _): &&(Weak<Connector>, _)| of.as_ptr() == Arc::as_ptr(connector);
    if let Some((_, pool)) = pools.iter().find(of_this) {
        return Arc::clone(pool);
    }
    pools.retain(|(of, _)| of.strong_count() > 0);
    let pool = pool(Connector::clone(connector), endpoint.url().clone());
    pools.push((Arc::downgrade(connector), Arc::clone(&pool)));
    pool
}

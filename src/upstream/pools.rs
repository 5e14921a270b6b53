//! The connections of an endpoint, which are kept with the endpoint.
//!
//! A change of the endpoint's configuration makes a new endpoint without connections, so a request never goes over one to an
//! old URL or to an old process. The connections go with the endpoint, and idle ones are closed then.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::Uri;
use http_body::Body;

use super::connect::Connector;
use super::http2::SharedConnection;
use super::pool::{Pool, pool};
use super::upload::Upload;
use crate::endpoints::EndpointRef;

/// The values of type `T` that the connectors keep at one endpoint, one each. Most endpoints have one value, because a
/// program has one [`Forward`](super::Forward).
struct PerConnector<T>(Mutex<Vec<(Weak<Connector>, T)>>);

/// A pool of connections that requests with bodies of type `B` share.
pub(super) type SharedPool<B> = Arc<dyn Pool<Upload<B>>>;

/// A connection of HTTP/2 that requests with bodies of type `B` share.
pub(super) type Shared<B> = Arc<SharedConnection<B>>;

/// Returns the pool of connections to `endpoint` that `connector` makes.
pub(super) fn pool_of<B>(endpoint: &EndpointRef, connector: &Arc<Connector>) -> SharedPool<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    kept(endpoint, connector, |connector, to| {
        let pool = pool(connector, to);
        if let Some(on_demand) = endpoint.on_demand() {
            let pool = Arc::downgrade(&pool);
            on_demand.add_pool(Box::new(move || {
                let pool = pool.upgrade();
                pool.inspect(|pool| pool.close_all_idle()).is_some()
            }));
        }
        pool
    })
}

/// Returns the connection of HTTP/2 to `endpoint` that `connector` makes.
pub(super) fn shared_of<B>(endpoint: &EndpointRef, connector: &Arc<Connector>) -> Shared<B>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    kept(endpoint, connector, |connector, to| {
        Arc::new(SharedConnection::new(connector, to))
    })
}

/// Returns the value that `connector` keeps at `endpoint`. The first call makes it.
fn kept<T>(
    endpoint: &EndpointRef,
    connector: &Arc<Connector>,
    make: impl FnOnce(Connector, Uri) -> T,
) -> T
where
    T: Clone + Send + 'static,
{
    let kept = endpoint.extension(|_| PerConnector::<T>(Mutex::default()));
    let mut kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
    let of_this = |(of, _): &&(Weak<Connector>, _)| of.as_ptr() == Arc::as_ptr(connector);
    if let Some((_, value)) = kept.iter().find(of_this) {
        return value.clone();
    }
    kept.retain(|(of, _)| of.strong_count() > 0);
    let value = make(Connector::clone(connector), endpoint.url().clone());
    kept.push((Arc::downgrade(connector), value.clone()));
    value
}

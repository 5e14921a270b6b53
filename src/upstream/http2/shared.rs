//! The connection that all requests to one endpoint share.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use http_body::Body;
use hyper_util::client::pool::singleton::Singleton;
use tower_service::Service;

use super::connection::Http2Connection;
use super::request_body::RequestBody;
use crate::upstream::connect::{ConnectError, Connector};
use crate::upstream::target::{authority, set_authority};

/// The connection to one endpoint. The first request opens it, and requests that come meanwhile wait for the same one.
/// Once it is closed, the next request opens another one in the same way.
pub(in crate::upstream) struct SharedConnection<B> {
    connection: Mutex<Singleton<Opener<B>, ()>>,
    scheme: Option<Scheme>,
    authority: Authority,
}

impl<B> SharedConnection<B>
where
    B: Body + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Creates the shared connection to the host of `to`, which is not opened yet.
    pub(in crate::upstream) fn new(connector: Connector, to: Uri) -> Self {
        Self {
            scheme: to.scheme().cloned(),
            authority: authority(&to),
            connection: Mutex::new(Singleton::new(Opener(Box::new(move || {
                let (connector, to) = (connector.clone(), to.clone());
                Box::pin(async move { Http2Connection::open(&connector, to).await })
            })))),
        }
    }

    /// Returns the open connection, or opens one together with all requests that wait for it. If the request that opens it
    /// is dropped, one of the others goes on.
    pub(super) async fn get(&self) -> Result<Http2Connection<RequestBody<B>>, ConnectError> {
        let opening = {
            let locked = self.connection.lock();
            let mut connection = locked.unwrap_or_else(PoisonError::into_inner);
            connection.retain(|connection| !connection.is_closed());
            connection.call(())
        };
        match opening.await {
            Ok(mut opened) => Ok(opened.call(()).await.unwrap_or_else(|never| match never {})),
            Err(error) => Err(match error.source().and_then(<dyn Error>::downcast_ref) {
                Some(error) => ConnectError::clone(error),
                None => ConnectError::failed(error),
            }),
        }
    }

    /// Names the endpoint in a request for an origin-form target.
    pub(super) fn address<T>(&self, request: &mut Request<T>) {
        set_authority(request, self.scheme.as_ref(), &self.authority);
    }
}

/// A service that opens connections to one endpoint. It knows no more of `B` than its name, because the types of its
/// singleton would otherwise need the bounds of a request's body everywhere.
struct Opener<B>(Box<dyn Fn() -> Opening<B> + Send + Sync>);

type Opening<B> =
    Pin<Box<dyn Future<Output = Result<Http2Connection<RequestBody<B>>, ConnectError>> + Send>>;

impl<B> Service<()> for Opener<B> {
    type Response = Http2Connection<RequestBody<B>>;
    type Error = ConnectError;
    type Future = Opening<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Opening<B> {
        (self.0)()
    }
}

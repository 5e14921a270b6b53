//! The connection that all requests to one endpoint share.

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use http_body::Body;
use tokio::sync::watch;

use super::connection::Http2Connection;
use super::request_body::RequestBody;
use crate::upstream::connect::{ConnectError, Connector};
use crate::upstream::target::{authority, set_authority};

/// The connection to one endpoint. The first request opens it, and requests that come meanwhile wait for the same one.
/// Once it is closed, the next request opens another one in the same way.
pub(in crate::upstream) struct SharedConnection<B> {
    connector: Connector,
    to: Uri,
    scheme: Option<Scheme>,
    authority: Authority,
    /// The last connection, which may still be opening. `None` before the first request.
    last: Mutex<Option<Opening<B>>>,
}

/// A receiver of a connection, which is set once it is open or could not be opened.
type Opening<B> = watch::Receiver<Option<Opened<B>>>;

type Opened<B> = Result<Http2Connection<RequestBody<B>>, ConnectError>;

impl<B> SharedConnection<B>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Creates the shared connection to the host of `to`, which is not opened yet.
    pub(in crate::upstream) fn new(connector: Connector, to: Uri) -> Self {
        Self {
            scheme: to.scheme().cloned(),
            authority: authority(&to),
            connector,
            to,
            last: Mutex::new(None),
        }
    }

    /// Returns the open connection, or opens one together with all requests that wait for it. It goes on to open if a request
    /// leaves.
    pub(super) async fn get(&self) -> Opened<B> {
        let mut opening = self.last();
        match opening.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(connection))) => Ok(connection.clone()),
            Ok(Some(Err(error))) => Err(error.clone()),
            // The runtime of the task that opens it has shut down.
            Ok(None) | Err(_) => Err(ConnectError::failed("the connection was abandoned")),
        }
    }

    /// Returns the last connection if it can still be used, or begins to open another one.
    fn last(&self) -> Opening<B> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && is_usable(last)
        {
            return last.clone();
        }
        last.insert(self.open()).clone()
    }

    /// Opens a connection in a task of its own.
    fn open(&self) -> Opening<B> {
        let (opened, opening) = watch::channel(None);
        let (connector, to) = (self.connector.clone(), self.to.clone());
        tokio::spawn(async move {
            let connection = Http2Connection::open(&connector, to).await;
            opened.send_replace(Some(connection));
        });
        opening
    }

    /// Names the endpoint in a request for an origin-form target.
    pub(super) fn address<T>(&self, request: &mut Request<T>) {
        set_authority(request, self.scheme.as_ref(), &self.authority);
    }
}

/// Returns `true` if a connection is opening, or can take requests.
fn is_usable<B>(opening: &Opening<B>) -> bool {
    match &*opening.borrow() {
        // If the runtime has shut down, it never opens. Its sender is gone then, which is an error here.
        None => opening.has_changed().is_ok(),
        Some(Ok(connection)) => !connection.is_closed(),
        Some(Err(_)) => false,
    }
}

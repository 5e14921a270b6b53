//! The connections that all requests to one endpoint share: one, as long as the endpoint's limit of streams allows it.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use http_body::Body;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::{Http2Connection, Stream};
use super::request_body::RequestBody;
use crate::upstream::connect::{ConnectError, Connector};
use crate::upstream::target::{authority, set_authority};
use crate::upstream::upkeep::{LOOK_EVERY, Upkeep};

/// The connections to one endpoint. The first request opens one, and requests that come meanwhile wait for it. Once it is
/// closed, or has as many streams as the endpoint allows, the next request opens another one in the same way.
///
/// So a request never waits for a stream. Such a wait would be by arrival, while the request holds a slot, so a request of a
/// higher priority would be served last.
pub(in crate::upstream) struct SharedConnection<B> {
    connector: Connector,
    to: Uri,
    scheme: Option<Scheme>,
    authority: Authority,
    upkeep: Arc<Upkeep>,
    open: Mutex<Connections<B>>,
}

struct Connections<B> {
    /// The connections that can still be used, in the order in which they were opened. One of them may still be opening.
    all: Vec<Opening<B>>,
    /// The time at which the endpoint's name was last looked up for them.
    looked_up: Instant,
}

/// A receiver of a connection, which is set once it is open or could not be opened.
type Opening<B> = watch::Receiver<Option<Opened<B>>>;

type Opened<B> = Result<Http2Connection<RequestBody<B>>, ConnectError>;

/// A stream of a connection, or the connection to wait for.
enum Found<B> {
    Stream(Http2Connection<RequestBody<B>>, Stream),
    /// A connection that is opening.
    Opening(Opening<B>),
    /// A connection whose limit of streams is not known yet.
    NewlyOpened(Http2Connection<RequestBody<B>>),
}

impl<B> SharedConnection<B>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Creates the connections to the host of `to`, of which none is opened yet.
    pub(in crate::upstream) fn new(connector: Connector, to: Uri) -> Self {
        let open = Connections {
            all: Vec::new(),
            looked_up: Instant::now(),
        };
        Self {
            scheme: to.scheme().cloned(),
            authority: authority(&to),
            upkeep: Upkeep::new(connector.clone(), to.clone()),
            connector,
            to,
            open: Mutex::new(open),
        }
    }

    /// Returns an open connection with a stream for a request, or opens one together with all requests that wait for it. It goes
    /// on to open if a request leaves.
    pub(super) async fn get(
        &self,
    ) -> Result<(Http2Connection<RequestBody<B>>, Stream), ConnectError> {
        loop {
            let connection = match self.find() {
                Found::Stream(connection, stream) => return Ok((connection, stream)),
                Found::Opening(opening) => opened(opening).await?,
                Found::NewlyOpened(connection) => {
                    connection.limit_known().await;
                    connection
                }
            };
            // It is used even if it has been closed meanwhile, so that an endpoint which closes each connection at once is found to
            // be at fault.
            if let Some(stream) = connection.try_begin() {
                return Ok((connection, stream));
            }
        }
    }

    /// Begins a stream on the first connection that allows it. If none does, returns the one to wait for, which may have to be
    /// opened.
    fn find(&self) -> Found<B> {
        let now = Instant::now();
        let mut open = self.lock();
        open.all.retain(|opening| is_usable(opening, now));
        if now.saturating_duration_since(open.looked_up) >= LOOK_EVERY && !open.all.is_empty() {
            open.looked_up = now;
            self.upkeep.look_up();
        }
        let mut newest = None;
        for opening in &open.all {
            let opened = opening.borrow();
            let Some(Ok(connection)) = &*opened else {
                newest = Some(Found::Opening(opening.clone()));
                continue;
            };
            if let Some(stream) = connection.try_begin() {
                return Found::Stream(connection.clone(), stream);
            }
            if connection.has_no_limit_yet() {
                newest = Some(Found::NewlyOpened(connection.clone()));
            }
        }
        newest.unwrap_or_else(|| {
            let opening = self.open();
            open.all.push(opening.clone());
            Found::Opening(opening)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connections<B>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection in a task of its own.
    fn open(&self) -> Opening<B> {
        let (opened, opening) = watch::channel(None);
        let (connector, to) = (self.connector.clone(), self.to.clone());
        let upkeep = Arc::clone(&self.upkeep);
        tokio::spawn(async move {
            let connection = Http2Connection::open(&connector, to, &upkeep).await;
            opened.send_replace(Some(connection));
        });
        opening
    }

    /// Names the endpoint in a request for an origin-form target.
    pub(super) fn address<T>(&self, request: &mut Request<T>) {
        set_authority(request, self.scheme.as_ref(), &self.authority);
    }
}

/// Waits until a connection is open.
async fn opened<B>(mut opening: Opening<B>) -> Opened<B> {
    match opening.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(opened)) => opened.clone(),
        // The runtime of the task that opens it has shut down.
        Ok(None) | Err(_) => Err(ConnectError::failed("the connection was abandoned")),
    }
}

/// Returns `true` if a connection is opening, or can take requests at `now`.
fn is_usable<B>(opening: &Opening<B>, now: Instant) -> bool {
    match &*opening.borrow() {
        // If the runtime has shut down, it never opens. Its sender is gone then, which is an error here.
        None => opening.has_changed().is_ok(),
        Some(Ok(connection)) => !connection.is_over(now),
        Some(Err(_)) => false,
    }
}

//! A single health check, which is a `GET` that needs a response up to its end. A backend without workers may still
//! accept connections, and even begin to respond.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(all(feature = "swap", unix))]
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;

use crate::endpoints::EndpointRef;
use crate::endpoints::health_check::DEFAULT_PATH;
use crate::upstream::client_connection::ClientConnection;
#[cfg(all(feature = "swap", unix))]
use crate::upstream::connect::connect_refused;
use crate::upstream::connect::{ConnectError, Connector, out_of_files};
use crate::upstream::future::Causes;
use crate::upstream::headers::own;
use crate::upstream::http2::Http2Connection;
#[cfg(all(feature = "swap", unix))]
use crate::upstream::lookups::Lookups;
#[cfg(all(feature = "swap", unix))]
use crate::upstream::target::host;
use crate::upstream::target::{authority, origin_form, set_authority};
use crate::upstream::upkeep::Upkeep;

/// A client that sends health checks.
#[derive(Debug, Clone)]
pub(crate) struct Prober(Connector);

/// A response with the connection that it comes over, which is closed with this value. Each check has a connection of its
/// own, because a new one tells whether the endpoint still accepts them.
struct Answer {
    response: Response<Incoming>,
    _connection: Box<dyn Any + Send>,
}

/// The largest part of a response to a check that is read, in bytes.
const READ_LIMIT: usize = 8 << 10;

impl Prober {
    pub(super) fn new(connector: Connector) -> Self {
        Self(connector)
    }

    /// Creates a client for requests to this machine.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) fn local() -> Self {
        Self::new(Connector::new(Lookups::default()))
    }

    /// Sends a `GET` for `path` to `endpoint` and reads the response. At the default path, a response without that page
    /// also counts as success.
    pub(super) async fn probe(&self, endpoint: &EndpointRef, path: &str) -> Result<(), CheckError> {
        let answer = self.get(endpoint, path).await?;
        let status = answer.response.status();
        let says_it_is_there = path == DEFAULT_PATH && is_no_such_page(status);
        if !status.is_success() && !says_it_is_there {
            return Err(CheckError::Status(status));
        }
        read(answer, READ_LIMIT).await.map(drop)
    }

    /// Returns the body of a successful `GET` for `path` to `endpoint`, up to about `limit` bytes.
    pub(in crate::upstream) async fn read(
        &self,
        endpoint: &EndpointRef,
        path: &str,
        limit: usize,
    ) -> Result<Vec<u8>, CheckError> {
        read_success(self.get(endpoint, path).await?, limit).await
    }

    async fn get(&self, endpoint: &EndpointRef, path: &str) -> Result<Answer, CheckError> {
        let to = endpoint.url();
        let path = Uri::try_from(path).map_err(http::Error::from)?;
        let target = origin_form(to, path).map_err(http::Error::from)?;
        let headers = own(endpoint).clone();
        let request = request(Method::GET, target, headers);
        match endpoint.config().http2 {
            true => self.send_http2(to, request).await,
            false => self.send(to, request).await,
        }
    }

    /// Sends a request to the host of `to`.
    async fn send(&self, to: &Uri, request: Request<Empty<Bytes>>) -> Result<Answer, CheckError> {
        let mut connection =
            ClientConnection::open(&self.0, to.clone(), Arc::default(), None, false).await?;
        let sent = connection.send(request, None).await;
        Ok(Answer {
            response: sent.map_err(|error| CheckError::NoAnswer(error.into_error()))?,
            _connection: Box::new(connection),
        })
    }

    /// Sends a request to the host of `to` over HTTP/2.
    async fn send_http2(
        &self,
        to: &Uri,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<Answer, CheckError> {
        set_authority(&mut request, to.scheme(), &authority(to));
        let upkeep = Upkeep::new(self.0.clone(), to.clone());
        let mut connection = Http2Connection::open(&self.0, to.clone(), &upkeep).await?;
        let stream = connection.begin();
        let sent = connection.send(request).await;
        Ok(Answer {
            response: sent.map_err(|error| CheckError::NoAnswer(error.into_error()))?,
            _connection: Box::new((stream, connection)),
        })
    }

    /// Sends a request to this machine.
    #[cfg(all(feature = "swap", unix))]
    async fn send_local(&self, method: Method, uri: Uri) -> Result<Answer, CheckError> {
        let headers = HeaderMap::from_iter([(HOST, host(&uri))]);
        let target = origin_form(&Uri::from_static("/"), uri.clone());
        let target = target.map_err(http::Error::from)?;
        self.send(&uri, request(method, target, headers)).await
    }

    /// Sends a `GET` to this machine and passes the answer to `on_piece`, piece by piece, until its end.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) async fn stream(
        &self,
        uri: Uri,
        mut on_piece: impl FnMut(&[u8]),
    ) -> Result<(), CheckError> {
        let mut answer = self.send_local(Method::GET, uri).await?;
        while let Some(frame) = answer.response.frame().await {
            frame?.data_ref().inspect(|piece| on_piece(piece));
        }
        Ok(())
    }

    /// Sends a request without a body to this machine. The call succeeds if the answer is 2xx and comes to its end.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) async fn ask(&self, method: Method, uri: Uri) -> Result<(), CheckError> {
        let answer = self.send_local(method, uri).await?;
        read_success(answer, READ_LIMIT).await.map(drop)
    }
}

fn request(method: Method, target: Uri, headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    request
}

/// Reads the body of a response of status 2xx, as [`read`] does.
async fn read_success(answer: Answer, limit: usize) -> Result<Vec<u8>, CheckError> {
    match answer.response.status() {
        status if status.is_success() => read(answer, limit).await,
        status => Err(CheckError::Status(status)),
    }
}

/// Reads a body to its end, or until `limit` bytes are reached.
async fn read(mut answer: Answer, limit: usize) -> Result<Vec<u8>, CheckError> {
    let mut read = Vec::new();
    while read.len() < limit
        && let Some(frame) = answer.response.frame().await
    {
        read.extend_from_slice(frame?.data_ref().map_or(&[], |data| &data[..]));
    }
    Ok(read)
}

/// Returns `true` if a response only says that the page is missing, forbidden or elsewhere. That is enough at the
/// default path, because an endpoint need not have that page.
fn is_no_such_page(status: StatusCode) -> bool {
    let denied = matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
    );
    denied || status.is_redirection()
}

impl CheckError {
    /// Returns `true` if the response or the connection did not come in time.
    pub(crate) fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Late(_) | Self::NoConnection(ConnectError::TimedOut(_))
        )
    }

    /// Returns `true` if the endpoint refused the connection, because no program listens there.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::NoConnection(error) if connect_refused(error))
    }

    /// Returns `true` if the check could not be sent for a reason within this process.
    pub(crate) fn is_our_own(&self) -> bool {
        matches!(self, Self::NoConnection(error) if out_of_files(error))
    }
}

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("no whole answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    #[error("there is no connection: {}", Causes(.0))]
    NoConnection(#[from] ConnectError),
    #[error("there is no answer: {}", Causes(.0))]
    NoAnswer(hyper::Error),
    #[error("the answer broke off: {0}")]
    Reset(#[from] hyper::Error),
    #[error("the path of the check cannot be joined to that of the endpoint: {0}")]
    Target(#[from] http::Error),
}

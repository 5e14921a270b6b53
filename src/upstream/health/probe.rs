//! A single health check, which is a `GET` that needs a response up to its end. A backend without workers may still
//! accept connections, and even begin to respond.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;

use crate::endpoints::EndpointRef;
use crate::endpoints::health_check::DEFAULT_PATH;
#[cfg(all(feature = "swap", unix))]
use crate::upstream::connect::connect_refused;
use crate::upstream::connect::{Connector, connect_timed_out, out_of_files};
use crate::upstream::future::Causes;
use crate::upstream::headers::own;
#[cfg(all(feature = "swap", unix))]
use crate::upstream::lookups::Lookups;
use crate::upstream::target::join;

/// A client that sends health checks.
#[derive(Debug, Clone)]
pub(crate) struct Prober(Client<Connector, Empty<Bytes>>);

/// The largest part of a response to a check that is read, in bytes.
const READ_LIMIT: usize = 8 << 10;

impl Prober {
    pub(super) fn new(connector: Connector) -> Self {
        // Idle connections are not kept, because a new connection tells whether the endpoint still accepts them.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Self(client)
    }

    /// Creates a client for requests to this machine.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) fn local() -> Self {
        Self::new(Connector::new(Lookups::default()))
    }

    /// Sends a `GET` for `path` to `endpoint` and reads the response. At the default path, a response without that page
    /// also counts as success.
    pub(super) async fn probe(&self, endpoint: &EndpointRef, path: &str) -> Result<(), CheckError> {
        let response = self.get(endpoint, path).await?;
        let status = response.status();
        let says_it_is_there = path == DEFAULT_PATH && is_no_such_page(status);
        if !status.is_success() && !says_it_is_there {
            return Err(CheckError::Status(status));
        }
        read(response.into_body(), READ_LIMIT).await.map(drop)
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

    async fn get(
        &self,
        endpoint: &EndpointRef,
        path: &str,
    ) -> Result<Response<Incoming>, CheckError> {
        let uri = join(
            endpoint.url(),
            &Uri::try_from(path).map_err(http::Error::from)?,
        )?;
        self.send(Method::GET, uri, own(endpoint).clone()).await
    }

    async fn send(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, CheckError> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(self.0.request(request).await?)
    }

    /// Sends a `GET` to this machine and passes the answer to `on_piece`, piece by piece, until its end.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) async fn stream(
        &self,
        uri: Uri,
        mut on_piece: impl FnMut(&[u8]),
    ) -> Result<(), CheckError> {
        let response = self.send(Method::GET, uri, HeaderMap::new()).await?;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?.data_ref().inspect(|piece| on_piece(piece));
        }
        Ok(())
    }

    /// Sends a request without a body to this machine. The call succeeds if the answer is 2xx and comes to its end.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) async fn ask(&self, method: Method, uri: Uri) -> Result<(), CheckError> {
        let response = self.send(method, uri, HeaderMap::new()).await?;
        read_success(response, READ_LIMIT).await.map(drop)
    }
}

/// Reads the body of a response of status 2xx, as [`read`] does.
async fn read_success(response: Response<Incoming>, limit: usize) -> Result<Vec<u8>, CheckError> {
    match response.status() {
        status if status.is_success() => read(response.into_body(), limit).await,
        status => Err(CheckError::Status(status)),
    }
}

/// Reads a body to its end, or until `limit` bytes are reached.
async fn read(mut body: Incoming, limit: usize) -> Result<Vec<u8>, CheckError> {
    let mut read = Vec::new();
    while read.len() < limit
        && let Some(frame) = body.frame().await
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
        match self {
            Self::Late(_) => true,
            Self::NoAnswer(error) => connect_timed_out(error),
            _ => false,
        }
    }

    /// Returns `true` if the endpoint refused the connection, because no program listens there.
    #[cfg(all(feature = "swap", unix))]
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::NoAnswer(error) if connect_refused(error))
    }

    /// Returns `true` if the check could not be sent for a reason within this process.
    pub(crate) fn is_our_own(&self) -> bool {
        matches!(self, Self::NoAnswer(error) if out_of_files(error))
    }
}

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("no whole answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    #[error("{}", Causes(.0))]
    NoAnswer(#[from] Error),
    #[error("the answer broke off: {0}")]
    Reset(#[from] hyper::Error),
    #[error("the path of the check cannot be joined to that of the endpoint: {0}")]
    Target(#[from] http::Error),
}

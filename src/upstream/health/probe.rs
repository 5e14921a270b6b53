//! A backend whose listener lives and whose workers are gone takes connections, and may even begin to answer.
//! Only an answer that comes to its end says that somebody is there.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;

use crate::endpoints::EndpointRef;
use crate::endpoints::health_check::DEFAULT_PATH;
use crate::upstream::connect::{Connector, connect_timed_out, out_of_files};
use crate::upstream::future::Causes;
use crate::upstream::headers::own;
use crate::upstream::target::{InvalidTarget, join};

/// Sends checks.
#[derive(Clone)]
pub(super) struct Getter(Client<Connector, Empty<Bytes>>);

/// No more than this is read of an answer.
const ENOUGH: usize = 8 << 10;

impl Getter {
    pub(super) fn new(connector: Connector) -> Self {
        // A connection that was made before does not tell whether another can be.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Self(client)
    }

    /// Query `endpoint` for `path`, and reads the answer.
    pub(super) async fn get(&self, endpoint: &EndpointRef, path: &str) -> Result<(), CheckError> {
        let target = target(endpoint.url(), path)?;
        let response = self.0.request(request(target, own(endpoint))).await?;
        let status = response.status();
        let says_it_is_there = path == DEFAULT_PATH && is_no_such_page(status);
        if !status.is_success() && !says_it_is_there {
            return Err(CheckError::Status(status));
        }
        let (mut body, mut read) = (response.into_body(), 0);
        while read < ENOUGH
            && let Some(frame) = body.frame().await
        {
            read += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(())
    }
}

/// Whether an answer says no more than that the page is not there, or not for strangers, or elsewhere. Where no
/// page was promised, it is enough that there is an answer.
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

fn target(base: &Uri, path: &str) -> Result<Uri, InvalidTarget> {
    join(base, &Uri::try_from(path)?)
}

fn request(target: Uri, headers: &HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = target;
    *request.headers_mut() = headers.clone();
    request
}

impl CheckError {
    /// Whether there was no answer in time, or no connection.
    pub(super) fn is_late(&self) -> bool {
        match self {
            Self::Late(_) => true,
            Self::NoAnswer(error) => connect_timed_out(error),
            _ => false,
        }
    }

    /// Whether the endpoint was not asked, for a reason of this process.
    pub(super) fn is_our_own(&self) -> bool {
        matches!(self, Self::NoAnswer(error) if out_of_files(error))
    }
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("no whole answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    #[error("{}", Causes(.0))]
    NoAnswer(#[from] Error),
    #[error("the answer broke off: {0}")]
    Reset(#[from] hyper::Error),
    #[error("the path of the check cannot be joined to that of the endpoint: {0}")]
    Target(#[from] InvalidTarget),
}

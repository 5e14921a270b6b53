//! Requests that are not stored, in a gateway that stores requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Service, ServiceExt};
use tower_triage::openai::ReadBody;
use tower_triage::rejection::ToRejection;

use crate::server::ClientBody;
use crate::service::StoredRoute;

/// A mark of an answer that a backend gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromBackend;

/// Routes a request with a body of limited length. The router's own limit is that of stored requests.
#[derive(Clone)]
pub(crate) struct Straight {
    routed: StoredRoute,
    body_limit: usize,
}

impl Straight {
    pub(super) fn new(routed: StoredRoute, body_limit: usize) -> Self {
        Self { routed, body_limit }
    }
}

impl Service<Request<ClientBody>> for Straight {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        let Self { routed, body_limit } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut read = ReadBody::new(body, body_limit);
            let router = routed.handle();
            if let Some(memory) = router.body_memory() {
                read = read.counted_in(memory); // until the router counts it
            }
            match read.await {
                Ok(body) => {
                    let request = Request::from_parts(head, Full::new(body));
                    let mut answer = routed.oneshot(request).await?.map(Body::new);
                    answer.extensions_mut().insert(FromBackend);
                    Ok(answer)
                }
                Err(error) => {
                    let rejection = error.to_rejection();
                    let response = rejection.into_response_to(&head.headers);
                    Ok(response.map(|text: Bytes| Body::from(text)))
                }
            }
        })
    }
}

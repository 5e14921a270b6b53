//! The service that runs stored requests, and tracks each run as the requests of clients are tracked.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::Full;
use tower::Service;

use super::counters;
use crate::error_shape::{is_to_reshape, reshaped};
use crate::paths::Api;
use crate::service::StoredRoute;
use crate::track::{Tracked, TrackedBody, Tracker};

/// Runs stored requests.
#[derive(Clone)]
pub(super) struct Runs {
    routed: StoredRoute,
    tracker: Arc<Tracker>,
}

impl Runs {
    pub(super) fn new(routed: StoredRoute, tracker: Tracker) -> Self {
        let tracker = Arc::new(tracker);
        Self { routed, tracker }
    }
}

impl Service<Request<Full<Bytes>>> for Runs {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Full<Bytes>>>::poll_ready(&mut self.routed, cx)
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let api = Api::of(request.uri().path());
        let mut request = counters::count_start(request);
        let tracked = self.tracker.begin_run(&mut request);
        let response = tracked.in_scope(|| self.routed.call(request));
        Box::pin(run(response, tracked, api))
    }
}

async fn run<B>(
    response: impl Future<Output = Result<Response<B>, Infallible>>,
    mut tracked: Box<Tracked>,
    api: Api,
) -> Result<Response<Body>, Infallible>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut response = pin!(response);
    let answer = poll_fn(|cx| tracked.poll(cx, |cx| response.as_mut().poll(cx))).await;
    match answer.transpose()? {
        Some(response) => {
            tracked.ran(&response);
            let response = response.map(|body| TrackedBody::new(body, tracked));
            Ok(match is_to_reshape(&response, api) {
                true => reshaped(response, api).await,
                false => response.map(Body::new),
            })
        }
        None => {
            let page = tracked.cancelled();
            tracked.ran(&page);
            Ok(page)
        }
    }
}

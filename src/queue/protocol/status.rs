//! Responses that begin while their request waits.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::mode::{HttpMode, UntilBodyEnds};
use super::{Http, sealed};
use crate::admit::RejectReason;
use crate::gate::BodyPermit;
use crate::http::wants_stream;
use crate::queue::classify::Classify;
use crate::queue::exempt::Exempt;
use crate::queue::request_head::RequestHead;
use crate::queue::response_body::QueueResponseBody;
use crate::service::{StatusStream, ask_for_identity, asks_for_status, status_response};

/// A mode that holds slots as [`UntilBodyEnds`] does, and answers clients [while their requests
/// wait](crate::QueueLayer#status-while-waiting) if they ask for it. So the inner service, its future and error, the request
/// and the bodies have to be `Send` and must not borrow.
///
/// Responses have the extensions of [`QueueResponseBody::with_extensions`].
#[derive(Debug, Clone, Default)]
pub struct WithStatus(pub(in crate::queue) UntilBodyEnds);

impl sealed::Sealed for WithStatus {}

impl<K, B, R, S> HttpMode<K, B, R, S> for WithStatus
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    K: Classify<Request<B>> + Clone + Send + 'static,
{
    type Body = QueueResponseBody<R>;

    fn on_queued<E>(
        sealed::Queued(mut queued): sealed::Queued<'_, S, Request<B>, Http<K, Self, E>>,
    ) -> Option<Response<Self::Body>>
    where
        S: Clone,
        E: Exempt<Request<B>> + Clone + Send + 'static,
    {
        let (handler, request) = queued.parts()?;
        if !asks_for_status(request)
            || !wants_stream(request.headers())
            || !handler.state.settings().config.status_stream
        {
            return None;
        }
        ask_for_identity(request.headers_mut());
        let stream = StatusStream::new(queued.take());
        let delayed = stream.delayed_head();
        Some(status_response(QueueResponseBody::status(stream), delayed))
    }

    fn reject(
        &self,
        request: &RequestHead<'_>,
        rejected: sealed::Rejected<'_>,
    ) -> Response<Self::Body> {
        let response = HttpMode::<K, B, R, S>::reject(&self.0, request, rejected);
        QueueResponseBody::with_extensions(response)
    }

    fn reason(response: &Response<Self::Body>) -> Option<&RejectReason> {
        response.body().reason()
    }

    fn respond(
        response: Response<R>,
        permit: Option<BodyPermit>,
        waited: Duration,
    ) -> Response<Self::Body> {
        let response = <UntilBodyEnds as HttpMode<K, B, R, S>>::respond(response, permit, waited);
        QueueResponseBody::with_extensions(response)
    }

    fn respond_limited(
        response: Response<R>,
        permit: BodyPermit,
        waited: Duration,
        hold: sealed::CallHold,
    ) -> Response<Self::Body> {
        let held = <UntilBodyEnds as HttpMode<K, B, R, S>>::respond_limited;
        QueueResponseBody::with_extensions(held(response, permit, waited, hold))
    }
}

//! Stores a request, and answers its caller with a receipt or with the answer.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::VARY;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;

use super::answer;
use super::body::OwnBody;
use super::event_body::Events;
use super::object;
use super::read_body::read_body;
use super::request_options::RequestOptions;
use super::shared::Front;
use crate::durable::{
    Idempotency, NewRequest, RequestId, RequestInfo, encode_request, fingerprint, headers,
    rejections,
};
use crate::http::wants_stream as accepts_stream;
use crate::rejection::{Rejection, ToRejection};

/// Stores a request, and answers its caller.
pub(super) async fn accept<B>(front: Arc<Front>, head: Parts, body: B) -> Response<OwnBody>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let headers = head.headers.clone();
    let mut response = match store_and_answer(&front, head, body).await {
        Ok(response) => response,
        Err(rejection) => rejection.into_response_to(&headers).map(OwnBody::from),
    };
    let prefer = HeaderValue::from_static("Prefer");
    response.headers_mut().append(VARY, prefer);
    response
}

async fn store_and_answer<B>(
    front: &Arc<Front>,
    head: Parts,
    body: B,
) -> Result<Response<OwnBody>, Rejection>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let options = RequestOptions::read(&head.headers, front)?;
    let body = read_body(body, front.body_limit).await?;
    let tenant = front.classifier.tenant(&head);
    let classified = front.classifier.classify(&head, &body)?;
    let id = RequestId::random().map_err(|_| {
        let message = "the system has no random bytes";
        Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "no_random_bytes", message)
    })?;
    let streams = wants_stream(&head, &body);
    let request = Request::from_parts(head, body);
    let idempotency = options.idempotency_key.clone().map(|key| Idempotency {
        key,
        fingerprint: fingerprint(&request),
    });
    let new = NewRequest {
        queue: classified.queue,
        level: classified.level,
        tenant,
        cost: classified.cost,
        cancel_after: options.cancel_after,
        delay: options.delay,
        idempotency,
        webhook: options.webhook.clone(),
        ..NewRequest::new(id, encode_request(&request))
    };
    drop(request); // a caller may wait for long
    // Before it is stored: the caller may leave meanwhile.
    let guard = options
        .cancels_on_disconnect
        .then(|| front.cancel_on_drop(id));
    let waits = !options.prefer.respond_async || options.prefer.wait.is_some();
    let reads_events = waits && streams && options.prefer.wait.is_none();
    let ended = (waits && !reads_events).then(|| front.store.ended(id));
    let stored = match front.store.enqueue(new).await {
        Ok(stored) => stored,
        Err(error) => {
            if let Some(guard) = guard {
                guard.defuse();
            }
            front.health.on_error(&error);
            return Err(error.to_rejection());
        }
    };
    front.health.on_success();
    let info = stored.info().clone();
    let mut guard = match guard {
        Some(guard) if info.id != id => {
            guard.defuse();
            Some(front.cancel_on_drop(info.id))
        }
        guard => guard,
    };
    let now = if reads_events {
        let events = Events::of_answer(Arc::clone(front), info.id, guard.take());
        match events.answer().await? {
            Some(response) => return Ok(response),
            None => Some(info.into()), // the front shuts down
        }
    } else if waits {
        let ended = ended.filter(|_| info.id == id);
        let wait = options.prefer.wait;
        let now = front.ended_within(info.id, wait, ended).await;
        // It is stored, whether or not the store can be asked now.
        now.unwrap_or(Some(info.into()))
    } else {
        Some(info.into())
    };
    if let Some(guard) = guard {
        guard.defuse();
    }
    // Forgotten meanwhile.
    let found = now.ok_or_else(rejections::not_found)?;
    let is_receipt = !waits || !found.info.status.has_ended();
    let mut response = match is_receipt {
        true => receipt(front, &found.info),
        false => answer::of_ended(front, found).await?,
    };
    if let Some(applied) = options.applied(is_receipt) {
        let applied = HeaderValue::from_str(&applied);
        let applied = applied.unwrap_or_else(|_| unreachable!("digits and words"));
        let headers = response.headers_mut();
        headers.insert(headers::PREFERENCE_APPLIED, applied);
    }
    Ok(response)
}

/// Returns a receipt: where to look for the answer.
fn receipt(front: &Front, info: &RequestInfo) -> Response<OwnBody> {
    let mut response = object::response(front, StatusCode::ACCEPTED, info, None);
    let location = HeaderValue::from_str(&format!("/requests/{}", info.id));
    let location = location.unwrap_or_else(|_| unreachable!("hexadecimal digits"));
    let headers = response.headers_mut();
    headers.insert(http::header::LOCATION, location);
    response
}

/// Returns `true` if the caller asks for a stream of events.
fn wants_stream(head: &Parts, body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Asked {
        #[serde(default)]
        stream: bool,
    }
    accepts_stream(&head.headers)
        || serde_json::from_slice(body).is_ok_and(|asked: Asked| asked.stream)
}

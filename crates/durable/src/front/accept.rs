//! Stores a request and answers its caller, either with a receipt or with the response.

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
use crate::storage_quota::QuotaError;
use crate::{
    Idempotency, NewRequest, RequestId, RequestInfo, StoreError, encode_request, fingerprint,
    headers, rejections,
};
use tower_triage::queue::wants_stream as accepts_stream;
use tower_triage::rejection::{Rejection, ToRejection};

/// Stores a request and answers its caller, either with a receipt or with the response.
pub(super) async fn accept<B>(front: Arc<Front>, head: Parts, body: B) -> Response<OwnBody>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
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
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let options = RequestOptions::read(&head.headers, front)?;
    if options.webhook.is_some() && front.store.webhooks().is_none() {
        return Err(StoreError::Unsupported("webhooks").to_rejection());
    }
    let (body, memory) = read_body(body, &head.headers, front).await?;
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
        cancel_after: options.cancel_after.or_else(|| {
            let delay = options.delay.unwrap_or_default();
            front.cancel_after.map(|time| time.saturating_add(delay))
        }),
        delay: options.delay,
        idempotency,
        webhook: options.webhook.clone(),
        ..NewRequest::new(id, encode_request(&request))
    };
    take_room(front, &new).await?;
    drop(request); // frees the body early, because the caller may wait for a long time
    // The guard comes before the store is called, because the caller may disconnect during that call.
    let guard = options
        .cancels_on_disconnect
        .then(|| front.cancel_on_drop(id));
    let has_key = new.idempotency.is_some();
    let waits = !options.prefer.respond_async || options.prefer.wait.is_some();
    // A store without streams has the whole response at its end.
    let reads_events =
        waits && streams && options.prefer.wait.is_none() && front.store.streams().is_some();
    // The wait for the end also begins before the request is stored, so the store can keep the outcome at hand.
    let ended = (waits && !reads_events).then(|| front.store.ended(id));
    let stored = match front.store.enqueue(new).await {
        Ok(stored) => stored,
        Err(error) => {
            if let Some(guard) = guard {
                guard.defuse();
            }
            front.health.on_error(&error);
            return Err(match rejections::may_be_stored(&error) {
                false => error.to_rejection(),
                true if has_key => rejections::with_key(&error, id),
                // Nobody repeats this request under its identifier, so it would only run in addition to the repetition.
                true => {
                    front.cancel_refused(id);
                    rejections::without_key(&error, id)
                }
            });
        }
    };
    front.health.on_success();
    drop(memory); // the caller may wait for a long time
    let info = stored.info().clone();
    // A repeated request has the identifier of the first one, so the guard moves over to that one.
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
        // The request is stored, so its caller gets a receipt even while the store can't be asked.
        now.unwrap_or(Some(info.into()))
    } else {
        Some(info.into())
    };
    if let Some(guard) = guard {
        guard.defuse();
    }
    // The store may have forgotten the request since, if its retention is short.
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

/// Checks that the tenant of a request may store it, unless the store has it already.
async fn take_room(front: &Front, new: &NewRequest) -> Result<(), Rejection> {
    let Some(quota) = &front.quota else {
        return Ok(());
    };
    match quota.take(&new.tenant, new.request.len() as u64).await {
        Ok(()) => Ok(()),
        Err(QuotaError::Store(error)) => Err(error.to_rejection()),
        Err(QuotaError::Full(rejection)) => match front.store.known(new).await {
            Ok(Some(_)) => Ok(()),
            _ => Err(rejection),
        },
    }
}

/// Returns a receipt, which names the place where the caller can ask for the response.
fn receipt(front: &Front, info: &RequestInfo) -> Response<OwnBody> {
    let mut response = object::response(front, StatusCode::ACCEPTED, info, None);
    let location = HeaderValue::from_str(&format!("/requests/{}", info.id));
    let location = location.unwrap_or_else(|_| unreachable!("hexadecimal digits"));
    let headers = response.headers_mut();
    headers.insert(http::header::LOCATION, location);
    response
}

/// Returns `true` if the caller asks for a stream of events, either by its `Accept` header or by `"stream": true` in
/// the body.
fn wants_stream(head: &Parts, body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Asked {
        #[serde(default)]
        stream: bool,
    }
    accepts_stream(&head.headers)
        || serde_json::from_slice(body).is_ok_and(|asked: Asked| asked.stream)
}

//! The JSON object that describes a stored request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

use super::body::OwnBody;
use super::shared::Front;
use crate::{RequestInfo, rejections};

/// A stored request as its caller sees it, with all times in seconds since 1970.
#[derive(Serialize)]
pub(super) struct RequestObject<'a> {
    id: String,
    object: &'static str,
    status: &'static str,
    queue: &'a str,
    level: u8,
    /// The name of the level, if the classifier has one for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate_seconds: Option<u64>,
    attempts: u32,
    created_at: u64,
    started_at: Option<u64>,
    ended_at: Option<u64>,
    deadline: Option<u64>,
    not_before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    response_status: Option<u16>,
    urls: Urls,
}

#[derive(Serialize)]
struct Urls {
    get: String,
    cancel: String,
    response: String,
    stream: String,
}

/// The place of a waiting request in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePlace {
    /// The position in the queue, where 1 is the next request.
    pub(super) position: u64,
    /// The time that the request will probably still wait, if the queue has served requests to learn from.
    pub(super) estimate: Option<Duration>,
}

impl<'a> RequestObject<'a> {
    pub(super) fn new(info: &'a RequestInfo, place: Option<QueuePlace>) -> Self {
        let (id, seconds) = (info.id, |time: Option<SystemTime>| time.map(unix_seconds));
        let estimate = place.and_then(|place| place.estimate);
        Self {
            id: id.to_string(),
            object: "request",
            status: info.status.as_str(),
            queue: &info.queue,
            level: info.level,
            priority: None,
            tenant: String::from_utf8_lossy(&info.tenant).into_owned(),
            position: place.map(|place| place.position),
            estimate_seconds: estimate.map(whole_seconds),
            attempts: info.attempts,
            created_at: unix_seconds(info.created),
            started_at: seconds(info.started),
            ended_at: seconds(info.ended),
            deadline: seconds(info.deadline),
            not_before: seconds(info.not_before),
            reason: rejections::reason(info),
            response_status: info.response_status,
            urls: Urls {
                get: format!("/requests/{id}"),
                cancel: format!("/requests/{id}/cancel"),
                response: format!("/requests/{id}/response"),
                stream: format!("/requests/{id}/stream"),
            },
        }
    }

    /// Adds the name of the level, if the classifier has one for it.
    pub(super) fn named_by(mut self, front: &Front) -> Self {
        self.priority = front.classifier.level_name(self.level);
        self
    }
}

/// Returns a response with the JSON object of a request. It has a `Retry-After` header as long as the request has not
/// ended.
pub(super) fn response(
    front: &Front,
    status: StatusCode,
    info: &RequestInfo,
    place: Option<QueuePlace>,
) -> Response<OwnBody> {
    let object = RequestObject::new(info, place).named_by(front);
    let mut response = json(status, &object);
    if !info.status.has_ended() {
        let estimate = place.and_then(|place| place.estimate);
        let seconds = estimate.map_or(1, whole_seconds).clamp(1, 60);
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a request that has ended as JSON, for its webhook.
#[cfg(feature = "webhooks")]
pub(crate) fn to_json(info: &RequestInfo) -> Bytes {
    let json = serde_json::to_vec(&RequestObject::new(info, None));
    json.unwrap_or_else(|_| unreachable!("its keys are strings"))
        .into()
}

/// Returns a response with a JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<OwnBody> {
    let body = serde_json::to_vec(body);
    let body = body.unwrap_or_else(|_| unreachable!("its keys are strings"));
    let mut response = Response::new(OwnBody::from(Bytes::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(super) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Rounds a time up to whole seconds.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

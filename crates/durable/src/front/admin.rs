//! The pages through which an operator sees, pauses and resumes stored requests.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::body::OwnBody;
use super::object::{json, unix_seconds};
use super::pages::{PagePath, Viewer, page};
use super::shared::Front;
use crate::{Pause, PauseScope, QueueDepth};
use tower_triage::rejection::{Rejection, ToRejection};

/// Answers a request of an operator. Returns `None` if the path belongs to another handler.
pub(super) async fn answer(
    front: &Arc<Front>,
    request: Request<Bytes>,
) -> Option<Response<OwnBody>> {
    let (head, body) = request.into_parts();
    if let Some(path) = PagePath::of(head.uri.path()) {
        return Some(page(Arc::clone(front), path, Viewer::Operator, head).await);
    }
    let answer = match (&head.method, head.uri.path()) {
        (&Method::GET, "/durable") => show(front).await,
        (&Method::POST, "/durable/pause") => pause(front, &body).await,
        (&Method::POST, "/durable/resume") => resume(front, &body).await,
        _ => return None,
    };
    Some(answer.unwrap_or_else(|rejection| rejection.into_response().map(OwnBody::from)))
}

/// The scope of the requests that an operator asks to pause or to resume.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    queue: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    reason: String,
    /// The end of the pause in seconds since 1970, or `None` for a pause without an end.
    until: Option<u64>,
}

impl Asked {
    /// Reads the scope from a JSON body. An empty body stands for all requests.
    fn read(body: &[u8]) -> Result<Self, Rejection> {
        let body = if body.is_empty() { b"{}" } else { body };
        let invalid = |message| Rejection::new(StatusCode::BAD_REQUEST, "invalid_pause", message);
        let asked: Self = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body can't be read: {error}")))?;
        match (&asked.queue, &asked.tenant) {
            (Some(_), Some(_)) => Err(invalid(
                "name a `queue` or a `tenant`, and not both".to_owned(),
            )),
            _ => Ok(asked),
        }
    }

    fn scope(&self) -> PauseScope {
        match (&self.queue, &self.tenant) {
            (Some(queue), _) => PauseScope::Queue(queue.clone()),
            (None, Some(tenant)) => PauseScope::Tenant(tenant.clone().into_bytes()),
            (None, None) => PauseScope::All,
        }
    }
}

async fn pause(front: &Front, body: &[u8]) -> Result<Response<OwnBody>, Rejection> {
    let asked = Asked::read(body)?;
    let until = asked.until.map(Duration::from_secs);
    let pause = Pause {
        scope: asked.scope(),
        reason: asked.reason,
        until: until.and_then(|until| UNIX_EPOCH.checked_add(until)),
    };
    let object = PauseObject::new(&pause);
    let paused = front.store.pause(pause.clone()).await;
    paused.map_err(|error| error.to_rejection())?;
    Ok(json(StatusCode::OK, &object))
}

async fn resume(front: &Front, body: &[u8]) -> Result<Response<OwnBody>, Rejection> {
    #[derive(Serialize)]
    struct Resumed {
        resumed: bool,
    }
    let resumed = front.store.resume(Asked::read(body)?.scope()).await;
    let resumed = resumed.map_err(|error| error.to_rejection())?;
    Ok(json(StatusCode::OK, &Resumed { resumed }))
}

#[derive(Serialize)]
struct PauseObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    reason: String,
    until: Option<u64>,
}

impl PauseObject {
    fn new(pause: &Pause) -> Self {
        let (queue, tenant) = match &pause.scope {
            PauseScope::All => (None, None),
            PauseScope::Queue(queue) => (Some(queue.clone()), None),
            PauseScope::Tenant(tenant) => {
                (None, Some(String::from_utf8_lossy(tenant).into_owned()))
            }
        };
        Self {
            queue,
            tenant,
            reason: pause.reason.clone(),
            until: pause.until.map(unix_seconds),
        }
    }
}

#[derive(Serialize)]
struct DepthObject {
    queue: String,
    level: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    queued: u64,
    running: u64,
    oldest_seconds: Option<f64>,
}

impl DepthObject {
    fn new(front: &Front, depth: QueueDepth) -> Self {
        Self {
            queue: depth.queue,
            level: depth.level,
            priority: front.classifier.level_name(depth.level),
            queued: depth.queued,
            running: depth.running,
            oldest_seconds: depth.oldest.map(|age| age.as_secs_f64()),
        }
    }
}

async fn show(front: &Front) -> Result<Response<OwnBody>, Rejection> {
    #[derive(Serialize)]
    struct Shown {
        pauses: Vec<PauseObject>,
        queues: Vec<DepthObject>,
    }
    let pauses = front.store.pauses().await;
    let depths = front.store.depths().await;
    let shown = Shown {
        pauses: pauses
            .map_err(|error| error.to_rejection())?
            .iter()
            .map(PauseObject::new)
            .collect(),
        queues: depths
            .map_err(|error| error.to_rejection())?
            .into_iter()
            .map(|depth| DepthObject::new(front, depth))
            .collect(),
    };
    Ok(json(StatusCode::OK, &shown))
}

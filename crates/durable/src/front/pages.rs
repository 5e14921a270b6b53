//! The pages about stored requests, for callers and operators.

use std::sync::Arc;

use http::header::{ALLOW, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde::Serialize;

use super::answer;
use super::body::OwnBody;
use super::event_body::Events;
use super::object::{self, QueuePlace, RequestObject};
use super::query::parameter;
use super::shared::Front;
use crate::headers::whole_seconds;
use crate::rejections::{self, bad_request};
use crate::{Listing, RequestId, RequestInfo, RequestStatus, StoreError};
use tower_triage::rejection::{Rejection, ToRejection};

/// A path of the pages, as parsed from a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagePath {
    List,
    Of(RequestId, Page),
    Unknown,
}

/// A page about a single request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Show,
    Response,
    Stream,
    Cancel,
    Retry,
}

/// The reader of a page, which decides on the requests that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Viewer {
    /// A caller that sees only the requests of this tenant.
    Tenant(Vec<u8>),
    /// An operator that sees the requests of all tenants.
    Operator,
}

impl PagePath {
    /// Parses a path. Returns `None` if it lies outside of `/requests`, so the request belongs to the inner service.
    pub(super) fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/requests")?;
        if rest.is_empty() || rest == "/" {
            return Some(Self::List);
        }
        let rest = rest.strip_prefix('/')?;
        let (id, page) = rest.split_once('/').unwrap_or((rest, ""));
        let page = match page {
            "" => Page::Show,
            "response" => Page::Response,
            "stream" => Page::Stream,
            "cancel" => Page::Cancel,
            "retry" => Page::Retry,
            _ => return Some(Self::Unknown),
        };
        Some(id.parse().map_or(Self::Unknown, |id| Self::Of(id, page)))
    }

    fn method(self) -> Method {
        match self {
            Self::Of(_, Page::Cancel | Page::Retry) => Method::POST,
            _ => Method::GET,
        }
    }
}

/// Answers a request for a page, as far as the viewer may see it.
pub(super) async fn page(
    front: Arc<Front>,
    path: PagePath,
    viewer: Viewer,
    head: Parts,
) -> Response<OwnBody> {
    let response = match path {
        PagePath::Of(_, Page::Retry) if viewer != Viewer::Operator => Err(rejections::not_found()),
        PagePath::Unknown => Err(rejections::not_found()),
        path if !allows(&path.method(), &head.method) => return wrong_method(path, &head),
        PagePath::List => list(&front, &viewer, &head).await,
        PagePath::Of(id, page) => of_request(&front, id, page, &viewer, &head).await,
    };
    response.unwrap_or_else(|rejection| rejection.into_response().map(OwnBody::from))
}

fn allows(method: &Method, asked: &Method) -> bool {
    method == asked || *method == Method::GET && *asked == Method::HEAD
}

fn wrong_method(path: PagePath, head: &Parts) -> Response<OwnBody> {
    let method = path.method();
    let message = format!("`{}` is not allowed here: use `{method}`", head.method);
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let rejection = Rejection::new(status, "method_not_allowed", message);
    let mut response = rejection.into_response().map(OwnBody::from);
    let allowed = match method {
        Method::POST => HeaderValue::from_static("POST"),
        _ => HeaderValue::from_static("GET, HEAD"),
    };
    response.headers_mut().insert(ALLOW, allowed);
    response
}

async fn of_request(
    front: &Arc<Front>,
    id: RequestId,
    page: Page,
    viewer: &Viewer,
    head: &Parts,
) -> Result<Response<OwnBody>, Rejection> {
    let store = &front.store;
    // The query is read before the request is looked up, so the caller learns of its mistake in any case.
    let wait = parameter(head.uri.query(), "wait").map(|wait| {
        whole_seconds(&wait)
            .ok_or_else(|| bad_request("invalid_wait", "`wait` is a number of whole seconds"))
    });
    let wait = wait.transpose()?;
    let info = store.get(id).await.map_err(rejection)?;
    let info = visible(info, viewer)?;
    match page {
        Page::Show => {
            let info = match wait {
                Some(wait) if !info.status.has_ended() => {
                    let now = front
                        .ended_within(id, Some(wait), None)
                        .await
                        .map_err(rejection)?;
                    visible(now.map(|found| found.info), viewer)?
                }
                _ => info,
            };
            show(front, &info).await
        }
        Page::Response if !info.status.has_ended() => Err(rejections::not_finished()),
        Page::Response => answer::of_ended(front, info.into()).await,
        Page::Stream if store.streams().is_none() => {
            Err(rejection(StoreError::Unsupported("streams")))
        }
        Page::Stream => {
            let after = head.headers.get(LAST_EVENT_ID);
            let after = after.and_then(|id| id.to_str().ok()?.trim().parse().ok());
            Ok(Events::after(Arc::clone(front), id, after.unwrap_or(0)).stream())
        }
        Page::Cancel => {
            let info = store.cancel(id).await.map_err(rejection)?;
            show(front, &visible(info, viewer)?).await
        }
        Page::Retry => {
            let info = store.retry(id).await.map_err(rejection)?;
            show(front, &visible(info, viewer)?).await
        }
    }
}

/// Returns the request if the viewer may see it. For other viewers, it looks like an unknown request.
fn visible(info: Option<RequestInfo>, viewer: &Viewer) -> Result<RequestInfo, Rejection> {
    let info = info.filter(|info| match viewer {
        Viewer::Tenant(tenant) => info.tenant == *tenant,
        Viewer::Operator => true,
    });
    info.ok_or_else(rejections::not_found)
}

async fn show(front: &Front, info: &RequestInfo) -> Result<Response<OwnBody>, Rejection> {
    let place = place(front, info).await.map_err(rejection)?;
    Ok(object::response(front, StatusCode::OK, info, place))
}

/// Returns the place of a waiting request, or `None` if the request waits no longer.
async fn place(front: &Front, info: &RequestInfo) -> Result<Option<QueuePlace>, StoreError> {
    if info.status != RequestStatus::Queued {
        return Ok(None);
    }
    let store = &*front.store;
    let Some(operate) = store.operate() else {
        return Ok(None);
    };
    let Some(position) = operate.position(info.id).await? else {
        return Ok(None);
    };
    let estimate = front.estimates.of(store, &info.queue, position).await?;
    Ok(Some(QueuePlace { position, estimate }))
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<RequestObject<'a>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

async fn list(
    front: &Front,
    viewer: &Viewer,
    head: &Parts,
) -> Result<Response<OwnBody>, Rejection> {
    let parameter = |name| parameter(head.uri.query(), name);
    let limit = parameter("limit").map(|limit| {
        let limit = limit.parse().ok();
        limit
            .filter(|limit| (1..=100).contains(limit))
            .ok_or_else(|| bad_request("invalid_limit", "`limit` is a number from 1 to 100"))
    });
    let status = parameter("status").map(|status| {
        RequestStatus::from_name(&status).ok_or_else(|| {
            let names = RequestStatus::ALL.map(RequestStatus::as_str).join(", ");
            let message = format!("`status` is one of {names}");
            Rejection::new(StatusCode::BAD_REQUEST, "invalid_status", message)
        })
    });
    let after = parameter("after").map(|after| {
        after
            .parse()
            .map_err(|_| bad_request("invalid_after", "`after` is the id of a request"))
    });
    let asked_tenant = parameter("tenant").map(|tenant| tenant.as_bytes().to_vec());
    let listing = Listing {
        status: status.transpose()?,
        tenant: match viewer {
            Viewer::Tenant(own) => Some(own.clone()),
            Viewer::Operator => asked_tenant.clone(),
        },
        limit: limit.transpose()?.unwrap_or(20),
        after: after.transpose()?,
    };
    let is_foreign =
        matches!((viewer, asked_tenant), (Viewer::Tenant(own), Some(asked)) if *own != asked);
    let page = match is_foreign {
        true => crate::Page::default(),
        false => front.store.list(listing).await.map_err(rejection)?,
    };
    let requests = page.requests.iter();
    let ids: Vec<String> = requests.clone().map(|info| info.id.to_string()).collect();
    let list = List {
        object: "list",
        data: requests
            .map(|info| RequestObject::new(info, None).named_by(front))
            .collect(),
        first_id: ids.first().cloned(),
        last_id: ids.last().cloned(),
        has_more: page.has_more,
    };
    Ok(object::json(StatusCode::OK, &list))
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

fn rejection(error: StoreError) -> Rejection {
    error.to_rejection()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_requests_are_pages() {
        let id = RequestId::from_bits(7);
        let of = |page| Some(PagePath::Of(id, page));
        for (path, expected) in [
            ("/requests".to_owned(), Some(PagePath::List)),
            ("/requests/".to_owned(), Some(PagePath::List)),
            (format!("/requests/{id}"), of(Page::Show)),
            (format!("/requests/{id}/response"), of(Page::Response)),
            (format!("/requests/{id}/stream"), of(Page::Stream)),
            (format!("/requests/{id}/cancel"), of(Page::Cancel)),
            (format!("/requests/{id}/retry"), of(Page::Retry)),
            (format!("/requests/{id}/other"), Some(PagePath::Unknown)),
            ("/requests/7".to_owned(), Some(PagePath::Unknown)),
            ("/requests-of-mine".to_owned(), None),
            ("/v1/requests".to_owned(), None),
        ] {
            assert_eq!(PagePath::of(&path), expected, "{path}");
        }
    }
}

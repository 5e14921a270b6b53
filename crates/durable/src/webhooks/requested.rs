//! The address in the `Webhook-URL` of a request.

use http::{HeaderMap, Uri};
use tower_triage::rejection::Rejection;

use crate::headers::{self, read};
use crate::rejections::bad_request;

/// A check of the address of a webhook.
pub type CheckWebhook = dyn Fn(&Uri) -> Result<(), Rejection> + Send + Sync;

/// Reads the address in the `Webhook-URL` of a request, for layers beside [`DurableLayer`](crate::DurableLayer).
///
/// # Errors
///
/// Returns 400 `invalid_webhook_url` for what is no address, and the rejection of `check`, which is 400 `webhook_not_allowed`
/// if there is none.
pub fn requested(
    headers: &HeaderMap,
    check: Option<&CheckWebhook>,
) -> Result<Option<String>, Rejection> {
    let invalid = || {
        bad_request(
            "invalid_webhook_url",
            "`Webhook-URL` is an absolute URL of http or https",
        )
    };
    let parse = |text: &str| {
        let uri: Uri = text.parse().ok()?;
        matches!(uri.scheme_str(), Some("http" | "https")).then_some(uri)
    };
    let Some(uri) = read(headers, &headers::WEBHOOK_URL, parse, invalid)? else {
        return Ok(None);
    };
    let refuse = |_: &Uri| {
        Err(bad_request(
            "webhook_not_allowed",
            "webhooks are not sent here",
        ))
    };
    check.unwrap_or(&refuse)(&uri)?;
    Ok(Some(uri.to_string()))
}

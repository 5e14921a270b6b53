//! Answers to browsers that ask whether a page of another origin may send a request and read its response.

use std::time::Duration;

use http::Method;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::config::Origin;

/// The time for which a browser may remember what it was allowed.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Returns the layer that allows pages of `origins` every header, and to read every header of a response. `None` without
/// any origin.
pub(crate) fn answers_for(origins: &[Origin]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins = origins.iter().map(|origin| origin.value.clone());
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        // Each client library has headers of its own, such as `x-stainless-lang`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(MAX_AGE);
    Some(layer)
}

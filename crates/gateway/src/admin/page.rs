//! The operator's page: one file without data, which reads `/admin/stream`.

use std::sync::LazyLock;

use axum::body::Body;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};

use crate::pages::page;

const PAGE: &str = include_str!("page.html");

/// Allows the page's own script and style, by their hashes, and requests to its own address.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (script, style) = (hash_of("script"), hash_of("style"));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    HeaderValue::try_from(policy).expect("base64 is ASCII")
});

/// Returns the page. It has no data, so it needs no token.
pub(crate) fn html() -> Response<Body> {
    let mut html = page("text/html; charset=utf-8", PAGE);
    let headers = html.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    html
}

/// Returns the answer to `/admin`, where the page's relative links would lead elsewhere.
pub(crate) fn redirect() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/admin/"));
    response
}

/// Returns the hash of the text between the tags `tag`, as a policy names it.
fn hash_of(tag: &str) -> String {
    let text = PAGE.split_once(&format!("<{tag}>"));
    let text = text.and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
    BASE64_STANDARD.encode(Sha256::digest(text.map_or("", |(text, _)| text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_script_and_one_style_and_no_code_in_attributes() {
        for tag in ["<script", "<style", "</script>", "</style>"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        for forbidden in [
            " onclick=",
            " style=",
            "innerHTML",
            "src=\"http",
            "href=\"http",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn the_policy_names_the_hashes_of_the_page() {
        let page = html();
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
        let empty = BASE64_STANDARD.encode(Sha256::digest(""));
        assert!(
            !policy.contains(&empty) && !policy.contains("unsafe"),
            "{policy}"
        );
    }
}

//! Which requests the admin address takes: those with the token and, of actions, those that no other site sends.
//!
//! A page of another site that an operator's browser shows could otherwise send actions to an address that only the
//! operator reaches.

use std::hint::black_box;

use axum::body::Body;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};

use crate::config::Token;
use crate::pages::error;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The response to a request that is refused.
pub(super) fn refusal<B>(request: &Request<B>, token: Option<&Token>) -> Option<Response<Body>> {
    if token.is_some_and(|token| !has_token(request, token)) {
        let message =
            "this address needs `authorization: Bearer <token>`, with the `token` of [admin]";
        let mut refused = error(StatusCode::UNAUTHORIZED, "unauthorized", message.to_owned());
        let headers = refused.headers_mut();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Some(refused);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) && is_cross_site(request) {
        let message = "a page of another site may not do this";
        return Some(error(
            StatusCode::FORBIDDEN,
            "cross_site",
            message.to_owned(),
        ));
    }
    None
}

fn has_token<B>(request: &Request<B>, token: &Token) -> bool {
    let given = request.headers().get(AUTHORIZATION);
    given.is_some_and(|given| {
        let given = given.as_bytes();
        given
            .split_at_checked("Bearer ".len())
            .is_some_and(|(scheme, given)| {
                scheme.eq_ignore_ascii_case(b"Bearer ") && equal(given, token.as_bytes())
            })
    })
}

/// Compares every byte, so that the time taken does not tell how many are right.
fn equal(given: &[u8], token: &[u8]) -> bool {
    let pairs = given.iter().zip(token);
    let difference = pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    given.len() == token.len() && difference == 0
}

/// Browsers send these headers, and a page cannot change them; other clients send neither.
fn is_cross_site<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return true;
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    // HTTP/2 has the host in the URI.
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => headers.get(HOST).map(HeaderValue::as_bytes),
    };
    let origin = origin.as_bytes();
    let origin_host = [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    match (origin_host, host) {
        (Some(origin), Some(host)) => !origin.eq_ignore_ascii_case(host),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cross_site(uri: &str, headers: &[(&str, &str)]) -> bool {
        let request = Request::post(uri);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        is_cross_site(&request.body(()).unwrap())
    }

    #[test]
    fn requests_of_other_sites_are_told_by_their_headers() {
        let host = ("host", "127.0.0.1:8081");
        let own = "http://127.0.0.1:8081";
        for (headers, cross) in [
            (&[host][..], false),
            (&[host, ("sec-fetch-site", "none")], false),
            (&[host, ("sec-fetch-site", "same-origin")], false),
            (&[host, ("sec-fetch-site", "same-site")], true),
            (&[host, ("sec-fetch-site", "cross-site")], true),
            (&[host, ("sec-fetch-site", "")], true),
            (&[host, ("origin", own)], false),
            (&[("host", "GPU"), ("origin", "https://gpu")], false),
            (&[host, ("origin", "http://127.0.0.1:8080")], true),
            (&[host, ("origin", "http://evil.example")], true),
            (&[host, ("origin", "null")], true),
            (&[("origin", own)], true),
            (
                &[host, ("origin", own), ("sec-fetch-site", "cross-site")],
                true,
            ),
        ] {
            assert_eq!(cross_site("/", headers), cross, "{headers:?}");
        }
        let http2 = "http://127.0.0.1:8081/";
        assert!(!cross_site(http2, &[("origin", own)]));
        assert!(cross_site(http2, &[("origin", "http://evil.example")]));
    }

    #[test]
    fn equal_compares_every_byte_and_the_length() {
        for (given, same) in [
            ("sk-1234", true),
            ("sk-1235", false),
            ("tk-1234", false),
            ("sk-123", false),
            ("sk-12345", false),
            ("", false),
        ] {
            assert_eq!(equal(given.as_bytes(), b"sk-1234"), same, "{given}");
        }
    }
}

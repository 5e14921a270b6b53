//! The requests that are served: of clients, those with a known key, if there are tenants; of browsers, those of the gateway's own site and of origins that the configuration names; of
//! operators, those with the token, or from this machine.
//!
//! A page that any browser on this machine shows could otherwise use backends, and send actions to an address that only
//! the operator reaches.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use http::header::{
    ALLOW, AUTHORIZATION, FORWARDED, HOST, HeaderName, HeaderValue, ORIGIN, TRANSFER_ENCODING, VIA,
    WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use crate::actions::is_action;
use crate::config::{Origin, Token};
use crate::pages::{error, error_at};
use crate::tenants::Refused;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers of requests that a proxy has forwarded.
const OF_PROXIES: [HeaderName; 4] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    VIA,
];

/// Returns the response to a request that lacks the `token` of `[admin]`.
pub(crate) fn without_token<B>(request: &Request<B>, token: &Token) -> Option<Response<Body>> {
    if has_token(request, token) {
        return None;
    }
    let message = "this address needs `authorization: Bearer <token>`, with the `token` of [admin]";
    let mut refused = error(StatusCode::UNAUTHORIZED, "unauthorized", message.to_owned());
    let headers = refused.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(refused)
}

/// Returns the response to a request at `path` that is not served.
pub(crate) fn to_refused(path: &str, refused: Refused) -> Response<Body> {
    let (status, code, message) = match refused {
        Refused::InvalidPath => (
            StatusCode::BAD_REQUEST,
            "invalid_path",
            "a path must have no empty segment, no `.` or `..`, no backslash, no control character and no encoded slash",
        ),
        Refused::NoKey => (
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            "this needs an API key: send `authorization: Bearer <key>`, `x-api-key: <key>` or `api-key: <key>`",
        ),
        Refused::UnknownKey => (
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            "this API key is not one of those that this gateway knows",
        ),
        Refused::Path => (
            StatusCode::FORBIDDEN,
            "path_not_allowed",
            "this API key may not use this path",
        ),
    };
    let mut response = error_at(path, status, code, message.to_owned());
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    }
    response
}

/// Returns the response to a request for operators without a token that does not come from this machine, or has a host
/// that any site could have: its name may be pointed to this machine while a browser shows its page.
pub(crate) fn from_elsewhere<B>(
    request: &Request<B>,
    peer: SocketAddr,
    origins: &[Origin],
) -> Option<Response<Body>> {
    let headers = request.headers();
    let is_forwarded = OF_PROXIES.iter().any(|name| headers.contains_key(name));
    if is_forwarded || !peer.ip().to_canonical().is_loopback() {
        let message = "only clients on the gateway's own machine get this without a token, and none behind a proxy: to \
                       serve others, give /metrics and /admin/ an address of their own with [admin], and a `token`";
        return Some(error(
            StatusCode::FORBIDDEN,
            "forbidden",
            message.to_owned(),
        ));
    }
    if !has_known_host(request, origins) {
        let message = "without a token this is served for hosts that are an IP address, `localhost`, or in \
                       `allowed_origins` of [server]: use one of these, or give [admin] a `token`";
        let status = StatusCode::MISDIRECTED_REQUEST;
        return Some(error(status, "misdirected_request", message.to_owned()));
    }
    None
}

/// Returns the response to TRACE and CONNECT. A backend would answer the first one with all headers that it got, and so with
/// the operator's key for it.
pub(crate) fn with_method_of_proxies<B>(request: &Request<B>) -> Option<Response<Body>> {
    let method = request.method();
    if !matches!(*method, Method::TRACE | Method::CONNECT) {
        return None;
    }
    let message = format!("{method} is not supported");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut refused = error_at(request.uri().path(), status, "unsupported_method", message);
    let others = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    refused.headers_mut().insert(ALLOW, others);
    Some(refused)
}

/// Headers that a backend, or another gateway, may believe.
const BELIEVED: [&str; 7] = [
    "api-key",
    "x-api-key",
    "x-priority",
    "x-real-ip",
    "x-request-id",
    "x-request-timeout",
    "x-tenant-id",
];

/// The beginnings of the names of such headers.
const BELIEVED_PREFIXES: [&str; 2] = ["x-forwarded-", "x-triage-"];

/// Removes headers that servers of CGI and WSGI take for the ones that backends believe, because they know no difference
/// between `_` and `-`.
pub(crate) fn drop_lookalikes(headers: &mut HeaderMap) {
    let is_lookalike = |name: &&HeaderName| {
        let name = name.as_str();
        name.contains('_') && is_believed(&name.replace('_', "-"))
    };
    let lookalikes: Vec<_> = headers.keys().filter(is_lookalike).cloned().collect();
    for name in lookalikes {
        headers.remove(name);
    }
}

fn is_believed(name: &str) -> bool {
    let mut prefixes = BELIEVED_PREFIXES.iter();
    BELIEVED.contains(&name) || prefixes.any(|prefix| name.starts_with(prefix))
}

/// Returns the response to an action that a page of any other origin sends.
pub(crate) fn action_of_other_site<B>(request: &Request<B>) -> Option<Response<Body>> {
    let is_action = is_action(request.method(), request.uri().path());
    (is_action && sender(request) != Sender::Own)
        .then(|| cross_site("", "a page of another site may not do this"))
}

/// Returns the response to a request that a page of another site sends, unless it is of one of `origins`.
pub(crate) fn from_other_site<B>(
    request: &Request<B>,
    origins: &[Origin],
) -> Option<Response<Body>> {
    let is_named = || {
        let origin = request.headers().get(ORIGIN);
        origins.iter().any(|named| Some(&named.value) == origin)
    };
    (sender(request) == Sender::OtherSite && !is_named()).then(|| {
        cross_site(
            request.uri().path(),
            "a page of another site may not ask: to allow it, name its origin in `allowed_origins` of [server]",
        )
    })
}

/// Returns the response to a request whose body is encoded for its transfer in another way than by chunks, which the server
/// undoes. The body would reach a backend as it is, without the header that says so.
pub(crate) fn with_unknown_transfer<B>(request: &Request<B>) -> Option<Response<Body>> {
    let values = request.headers().get_all(TRANSFER_ENCODING);
    let mut codings = values
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let is_unknown = |coding: &[u8]| !coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.any(is_unknown).then(|| {
        error_at(
            request.uri().path(),
            StatusCode::NOT_IMPLEMENTED,
            "unsupported_transfer_encoding",
            "the only `transfer-encoding` that is known is `chunked`".to_owned(),
        )
    })
}

fn cross_site(path: &str, message: &str) -> Response<Body> {
    error_at(
        path,
        StatusCode::FORBIDDEN,
        "cross_site",
        message.to_owned(),
    )
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

/// Returns `true` if every host that the request names is an IP address, `localhost`, or that of one of `origins`.
fn has_known_host<B>(request: &Request<B>, origins: &[Origin]) -> bool {
    let is_known = |host: &str| {
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_address
            || host.eq_ignore_ascii_case("localhost")
            || (origins.iter()).any(|origin| host.eq_ignore_ascii_case(&origin.host))
    };
    let in_headers = request.headers().get_all(HOST).iter();
    let in_headers = in_headers.map(|host| Authority::try_from(host.as_bytes()).ok());
    // HTTP/2 has the host in the URI.
    let in_uri = request.uri().authority().cloned().map(Some);
    let mut hosts = in_headers.chain(in_uri).peekable();
    hosts.peek().is_some() && hosts.all(|host| host.is_some_and(|host| is_known(host.host())))
}

/// The page that a browser sends a request for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sender {
    /// A request of the gateway's own origin, of the user, or of a client that is no browser.
    Own,
    /// A request of another origin, perhaps of the same site, without an `Origin`: so it is a link or an image.
    SameSite,
    OtherSite,
}

/// Returns whose request it is. Browsers send these headers, and a page cannot change them; other clients send neither.
fn sender<B>(request: &Request<B>) -> Sender {
    let headers = request.headers();
    let origin = headers.get(ORIGIN);
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => Sender::Own,
        Some(b"same-site") if origin.is_none() => Sender::SameSite,
        Some(_) => Sender::OtherSite,
        // Browsers leave it out where the gateway is reached over HTTP by a name, or by another machine.
        None if origin.is_none_or(|origin| is_own(origin, request.uri().authority(), headers)) => {
            Sender::Own
        }
        None => Sender::OtherSite,
    }
}

/// Returns `true` if `origin` has the host of the request.
fn is_own(origin: &HeaderValue, authority: Option<&Authority>, headers: &HeaderMap) -> bool {
    // HTTP/2 has the host in the URI.
    let host = match authority {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => headers.get(HOST).map(HeaderValue::as_bytes),
    };
    let origin = origin.as_bytes();
    let origin_host = [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    match (origin_host, host) {
        (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::post(uri);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap()
    }

    #[test]
    fn requests_of_other_sites_are_told_by_their_headers() {
        use Sender::{OtherSite, Own, SameSite};
        let host = ("host", "127.0.0.1:8081");
        let own = "http://127.0.0.1:8081";
        let evil = "http://evil.example";
        for (headers, expected) in [
            (&[host][..], Own),
            (&[host, ("sec-fetch-site", "none")], Own),
            (&[host, ("sec-fetch-site", "same-origin")], Own),
            (&[host, ("sec-fetch-site", "same-site")], SameSite),
            (&[host, ("sec-fetch-site", "cross-site")], OtherSite),
            (&[host, ("sec-fetch-site", "")], OtherSite),
            (&[host, ("origin", own)], Own),
            (&[("host", "GPU"), ("origin", "https://gpu")], Own),
            (&[host, ("origin", "http://127.0.0.1:8080")], OtherSite),
            (&[host, ("origin", evil)], OtherSite),
            (&[host, ("origin", "null")], OtherSite),
            (&[("origin", own)], OtherSite),
            (
                &[host, ("origin", own), ("sec-fetch-site", "cross-site")],
                OtherSite,
            ),
            (
                &[host, ("origin", evil), ("sec-fetch-site", "same-site")],
                OtherSite,
            ),
        ] {
            assert_eq!(sender(&request("/", headers)), expected, "{headers:?}");
        }
        let http2 = "http://127.0.0.1:8081/";
        assert_eq!(sender(&request(http2, &[("origin", own)])), Own);
        assert_eq!(sender(&request(http2, &[("origin", evil)])), OtherSite);
    }

    #[test]
    fn every_host_of_a_request_must_be_known() {
        let origins = [Origin::try_from("https://gateway.lan".to_owned()).unwrap()];
        for (uri, hosts, known) in [
            ("/", &["127.0.0.1:8081"][..], true),
            ("/", &["[::1]:8081"], true),
            ("/", &["localhost"], true),
            ("/", &["Gateway.LAN:8081"], true),
            ("/", &["lan"], false),
            ("/", &[], false),
            ("/", &["evil.example"], false),
            ("/", &["127.0.0.1", "evil.example"], false),
            ("/", &["127.0.0.1@evil.example"], false),
            ("http://localhost/", &[], true),
            ("http://evil.example/", &[], false),
            ("http://evil.example/", &["localhost"], false),
            ("http://localhost/", &["evil.example"], false),
        ] {
            let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let request = request(uri, &hosts);
            assert_eq!(has_known_host(&request, &origins), known, "{uri} {hosts:?}");
        }
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

//! The headers that pass between a client and an endpoint.

use std::net::IpAddr;

use bytes::Bytes;
use http::Version;
use http::header::{
    CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING,
};

use super::PeerAddr;
use super::target::host;
use crate::endpoints::{Endpoint, EndpointRef};
use crate::http::{is_hop_by_hop, named_by_connection};

/// The headers that requests to one endpoint carry in place of the client's. The type is private, because users may keep
/// an extension of any type at the endpoint.
struct OwnHeaders(HeaderMap);

/// Returns the headers that requests to `endpoint` carry in place of the client's. These are `Host` and the headers of
/// its configuration.
pub(super) fn own(endpoint: &EndpointRef) -> &HeaderMap {
    let own = endpoint.extension(|endpoint: &Endpoint| {
        let mut headers = endpoint.headers.clone();
        headers.insert(HOST, host(&endpoint.url));
        OwnHeaders(headers)
    });
    &own.0
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Turns the headers of a client's request in `version` into those of a request over HTTP/1.1 to an endpoint. `own` are
/// the headers of that endpoint, including `Host`, and `length` is the length of the body, if it is known.
pub(super) fn to_endpoint(
    headers: &mut HeaderMap,
    version: Version,
    own: &HeaderMap,
    length: Option<u64>,
    peer: Option<PeerAddr>,
) {
    // HTTP/1.0 lacks trailers.
    let wants_trailers = version >= Version::HTTP_11
        && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    // Over HTTP/1.1, only a body in chunks can have trailers.
    strip_hop_by_hop(headers, length.is_none());
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if version >= Version::HTTP_2 {
        // HTTP/2 may send each cookie in its own line, while HTTP/1.1 has one line for all (RFC 9113, 8.2.3).
        join_lines(headers, COOKIE, b"; ");
    }
    match length {
        // An empty body may be sent without a `Content-Length`.
        Some(0) if !headers.contains_key(CONTENT_LENGTH) => {}
        Some(length) => _ = headers.insert(CONTENT_LENGTH, length.into()),
        None => {}
    }
    if let Some(PeerAddr(peer)) = peer {
        add_peer(headers, peer.ip());
    }
    // These come last, so that a client cannot remove the endpoint's key by naming it in `Connection`.
    for (name, value) in own {
        headers.insert(name, value.clone());
    }
}

/// Turns the headers of an endpoint's answer over HTTP/1.1 into those of the answer to its client.
pub(super) fn to_client(headers: &mut HeaderMap) {
    // The chunks mark the end of the body, whatever length is given (RFC 9112, 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers, true);
}

/// Removes hop-by-hop headers and the headers that `Connection` names. `Trailer` stays if trailers pass.
fn strip_hop_by_hop(headers: &mut HeaderMap, passes_trailers: bool) {
    // Testing the few headers that are there is cheaper than looking up all that may be.
    let known = headers.keys().filter(|&name| {
        let announces_trailers = passes_trailers && name == TRAILER;
        is_hop_by_hop(name) && !announces_trailers
    });
    let gone: Vec<HeaderName> = named_by_connection(headers).chain(known.cloned()).collect();
    for name in gone {
        headers.remove(name);
    }
}

/// Returns the comma-separated tokens of all headers called `name`.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Adds the address of the client to the addresses that it forwards for.
fn add_peer(headers: &mut HeaderMap, peer: IpAddr) {
    let Ok(peer) = HeaderValue::from_maybe_shared(Bytes::from(peer.to_string())) else {
        return; // an address has no control characters
    };
    let had_lines = headers.append(X_FORWARDED_FOR, peer);
    if had_lines {
        join_lines(headers, X_FORWARDED_FOR, b", ");
    }
}

/// Joins all lines of a header into one.
fn join_lines(headers: &mut HeaderMap, name: HeaderName, separator: &[u8]) {
    let lines = headers.get_all(&name).into_iter();
    let lines: Vec<_> = lines.map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return;
    }
    if let Ok(joined) = HeaderValue::from_maybe_shared(Bytes::from(lines.join(separator))) {
        headers.insert(name, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn hop_by_hop_headers_stop_here() {
        let mut got = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other ,, bad name"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authenticate", "Basic"),
            ("proxy-authorization", "Basic x"),
            ("authorization", "Bearer x"),
            ("accept", "text/event-stream"),
        ]);
        strip_hop_by_hop(&mut got, false);
        assert_eq!(
            got,
            headers(&[
                ("authorization", "Bearer x"),
                ("accept", "text/event-stream")
            ])
        );
    }

    #[test]
    fn chunks_say_how_long_an_answer_is() {
        for (sent, got) in [
            (
                &[("content-length", "3")][..],
                &[("content-length", "3")][..],
            ),
            (
                &[("content-length", "3"), ("transfer-encoding", "chunked")],
                &[],
            ),
        ] {
            let mut answer = headers(sent);
            to_client(&mut answer);
            assert_eq!(answer, headers(got));
        }
    }

    #[test]
    fn of_te_only_trailers_pass() {
        let mut got = headers(&[("te", "gzip, Trailers"), ("connection", "TE")]);
        to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), None, None);
        assert_eq!(got, headers(&[("te", "trailers")]));
    }

    #[test]
    fn trailers_are_announced_where_they_are_passed_on() {
        for (version, length, sent) in [
            (
                Version::HTTP_2,
                None,
                &[("te", "trailers"), ("trailer", "x-sum")][..],
            ),
            (
                Version::HTTP_11,
                None,
                &[("te", "trailers"), ("trailer", "x-sum")],
            ),
            (Version::HTTP_11, Some(0), &[("te", "trailers")]),
            (Version::HTTP_10, Some(0), &[]),
        ] {
            let mut got = headers(&[("te", "trailers"), ("trailer", "x-sum")]);
            to_endpoint(&mut got, version, &HeaderMap::new(), length, None);
            assert_eq!(got, headers(sent), "{version:?}");
        }
        let mut got = headers(&[("connection", "trailer"), ("trailer", "x-sum")]);
        strip_hop_by_hop(&mut got, true);
        assert!(got.is_empty());
    }

    #[test]
    fn only_http_2_has_many_lines_of_cookies() {
        let cookies = [("cookie", "a=1"), ("cookie", "b=2; c=3")];
        for (version, sent) in [
            (Version::HTTP_2, &[("cookie", "a=1; b=2; c=3")][..]),
            (Version::HTTP_11, &cookies),
        ] {
            let mut got = headers(&cookies);
            to_endpoint(&mut got, version, &HeaderMap::new(), None, None);
            assert_eq!(got, headers(sent), "{version:?}");
        }
    }

    #[test]
    fn the_length_is_that_of_the_body() {
        for (announced, length, sent) in [
            (Some("7"), Some(9), Some("9")),
            (Some("0"), Some(0), Some("0")),
            (Some("7"), None, Some("7")),
            (None, Some(0), None),
            (None, Some(9), Some("9")),
            (None, None, None),
        ] {
            let mut got = headers(
                &announced
                    .map(|length| ("content-length", length))
                    .into_iter()
                    .collect::<Vec<_>>(),
            );
            to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), length, None);
            assert_eq!(
                got.get(CONTENT_LENGTH).map(|value| value.to_str().unwrap()),
                sent
            );
        }
    }

    #[test]
    fn the_peer_is_added_to_those_before_it() {
        let peer = Some(PeerAddr(([192, 0, 2, 7], 9).into()));
        let mut got = headers(&[("x-forwarded-for", "a, b"), ("x-forwarded-for", "c")]);
        to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), None, peer);
        assert_eq!(got, headers(&[("x-forwarded-for", "a, b, c, 192.0.2.7")]));
    }

    #[test]
    fn endpoint_headers_win_over_the_clients_connection_header() {
        let own = headers(&[
            ("host", "endpoint"),
            ("authorization", "Bearer endpoint"),
            ("x-new", "1"),
        ]);
        let mut got = headers(&[
            ("authorization", "Bearer client"),
            ("authorization", "Bearer another"),
            ("connection", "authorization, x-new"),
            ("host", "gateway"),
            ("accept", "*/*"),
        ]);
        to_endpoint(&mut got, Version::HTTP_11, &own, None, None);
        assert_eq!(
            got,
            headers(&[
                ("accept", "*/*"),
                ("host", "endpoint"),
                ("authorization", "Bearer endpoint"),
                ("x-new", "1"),
            ])
        );
    }
}

//! The headers that pass between a client and an endpoint.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, LOCATION, REFRESH, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{Uri, Version};

use super::PeerAddr;
use super::redirect::{self, Mount};
use super::target::host;
use crate::endpoints::{Endpoint, EndpointRef};
use crate::http::{HOP_BY_HOP, hop_by_hop_index, named_by_connection};

/// The headers that requests to one endpoint carry in place of the client's. The type is private, because users may keep
/// an extension of any type at the endpoint.
struct OwnHeaders(HeaderMap);

/// Returns the headers that some servers take for those of an endpoint's configuration, because they know no difference between
/// `_` and `-`.
fn lookalikes(own: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let names = own.keys().filter(|name| name.as_str().contains('-'));
    names.filter_map(|name| HeaderName::try_from(name.as_str().replace('-', "_")).ok())
}

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
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client of a request, as the endpoint learns of it.
pub(super) struct Client {
    pub(super) peer: PeerAddr,
    /// The host that the client asked for.
    pub(super) host: Option<HeaderValue>,
    pub(super) is_over_tls: bool,
}

/// Turns the headers of a client's request in `version` into those of a request over HTTP/1.1 to an endpoint. `own` are
/// the headers of that endpoint, including `Host`, and `length` is the length of the body, if it is known.
pub(super) fn to_endpoint(
    headers: &mut HeaderMap,
    version: Version,
    own: &HeaderMap,
    length: Option<u64>,
    client: Option<&Client>,
) {
    let mut special = Special::of(headers, length);
    // HTTP/1.0 lacks trailers.
    let wants_trailers = special.has_te
        && version >= Version::HTTP_11
        && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    let has_chunks = special.has_transfer_encoding;
    // Over HTTP/1.1, only a body in chunks can have trailers.
    special.strip_hop_by_hop(headers, length.is_none());
    if special.has_connection {
        special = Special::of(headers, length); // `Connection` may have named some of those that follow
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if version >= Version::HTTP_2 && special.cookies > 1 {
        // HTTP/2 may send each cookie in its own line, while HTTP/1.1 has one line for all (RFC 9113, 8.2.3).
        join_lines(headers, COOKIE, b"; ");
    }
    match length {
        // An empty body may be sent without a `Content-Length`.
        Some(0) if special.lengths == 0 => {}
        Some(_) if special.lengths == 1 && special.has_right_length => {}
        Some(length) => _ = headers.insert(CONTENT_LENGTH, length.into()),
        // The body comes in chunks, so that its length is not that of the header (RFC 9112, 6.3).
        None if special.lengths > 0 && has_chunks => _ = headers.remove(CONTENT_LENGTH),
        None => {}
    }
    if let Some(client) = client {
        add_client(headers, client);
    }
    // These come last, so that a client cannot remove the endpoint's key by naming it in `Connection`.
    for (name, value) in own {
        headers.insert(name, value.clone());
    }
    if own.len() > 1 {
        for name in lookalikes(own) {
            headers.remove(name);
        }
    }
}

/// Turns the headers of an endpoint's answer over HTTP/1.1 into those of the answer to its client.
///
/// Addresses of the endpoint at `url` become those that the client can reach.
pub(super) fn to_client(headers: &mut HeaderMap, url: &Uri, mount: Option<&Mount>) {
    let special = Special::of(headers, None);
    // The chunks mark the end of the body, whatever length is given (RFC 9112, 6.3).
    if special.has_transfer_encoding {
        headers.remove(CONTENT_LENGTH);
    }
    special.strip_hop_by_hop(headers, true);
    if special.has_address {
        redirect::rewrite(headers, url, mount);
    }
}

/// The headers of a message that need more than to be passed on. One walk finds them, which is cheaper than to look up
/// each one that may be there.
#[derive(Default)]
struct Special {
    /// The indices in [`HOP_BY_HOP`] of the hop-by-hop headers other than `Trailer`, as a set of bits.
    hop_by_hop: u16,
    /// `true` if `Connection` may name headers.
    has_connection: bool,
    has_trailer: bool,
    has_te: bool,
    has_transfer_encoding: bool,
    /// The number of `Cookie` lines.
    cookies: usize,
    /// The number of `Content-Length` lines.
    lengths: usize,
    /// `true` if the last `Content-Length` is that of the body.
    has_right_length: bool,
    /// `true` if a header may have an address of the endpoint.
    has_address: bool,
}

// Each of these headers has a bit in `hop_by_hop`.
const _: () = assert!(HOP_BY_HOP.len() <= u16::BITS as usize);

impl Special {
    /// Finds the special headers of a message. `length` is the length of its body, if it matters.
    fn of(headers: &HeaderMap, length: Option<u64>) -> Self {
        let mut special = Self::default();
        for (name, value) in headers {
            if *name == CONTENT_LENGTH {
                special.lengths += 1;
                special.has_right_length = length.is_some_and(|length| is_number(value, length));
            } else if let Some(index) = hop_by_hop_index(name) {
                special.add_hop_by_hop(index, name, value);
            } else if *name == COOKIE {
                special.cookies += 1;
            } else if *name == LOCATION || *name == CONTENT_LOCATION || *name == REFRESH {
                special.has_address = true;
            }
        }
        special
    }

    fn add_hop_by_hop(&mut self, index: usize, name: &HeaderName, value: &HeaderValue) {
        if *name == TRAILER {
            self.has_trailer = true;
            return;
        }
        // The header that `keep-alive` names, the most common value, is hop-by-hop by itself.
        self.has_connection |=
            *name == CONNECTION && !value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
        self.has_te |= *name == TE;
        self.has_transfer_encoding |= *name == TRANSFER_ENCODING;
        self.hop_by_hop |= 1 << index;
    }

    /// Removes hop-by-hop headers and the headers that `Connection` names. `Trailer` stays if trailers pass.
    fn strip_hop_by_hop(&self, headers: &mut HeaderMap, passes_trailers: bool) {
        if self.has_connection {
            let named: Vec<HeaderName> = named_by_connection(headers).collect();
            for name in named {
                headers.remove(name);
            }
        }
        if self.has_trailer && !passes_trailers {
            headers.remove(TRAILER);
        }
        let mut left = self.hop_by_hop;
        while left != 0 {
            headers.remove(HOP_BY_HOP[left.trailing_zeros() as usize]);
            left &= left - 1; // without its lowest bit
        }
    }
}

/// Returns `true` if `value` is `number`, as a proxy would write it.
fn is_number(value: &HeaderValue, number: u64) -> bool {
    let digits = value.as_bytes();
    let is_plain = digits.len() == 1 || digits.first() != Some(&b'0');
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        value.checked_mul(10)?.checked_add(digit.into())
    });
    is_plain && !digits.is_empty() && value == Some(number)
}

/// Returns the comma-separated tokens of all headers called `name`.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Adds the client to those that the request names already: its address to `x-forwarded-for` and `forwarded`, and the host and
/// the scheme unless a proxy in front has named those.
fn add_client(headers: &mut HeaderMap, client: &Client) {
    let proto = match client.is_over_tls {
        true => "https",
        false => "http",
    };
    // An IPv4 client of a listener for both has an address of IPv6.
    let address = match client.peer.0.ip().to_canonical() {
        IpAddr::V4(peer) => Bytes::copy_from_slice(ipv4_text(peer, &mut [0; 15])),
        IpAddr::V6(peer) => Bytes::from(peer.to_string()),
    };
    let element = forwarded(&address, client.host.as_ref(), proto);
    add_to_line(headers, FORWARDED, element);
    add_to_line(headers, X_FORWARDED_FOR, address);
    let proto = HeaderValue::from_static(proto);
    headers.entry(X_FORWARDED_PROTO).or_insert(proto);
    if let Some(host) = &client.host {
        let named = headers.entry(X_FORWARDED_HOST);
        named.or_insert_with(|| host.clone());
    }
}

/// Returns the element of `Forwarded` (RFC 7239) for a client with this address.
fn forwarded(address: &[u8], host: Option<&HeaderValue>, proto: &str) -> Bytes {
    let mut element = Vec::with_capacity(64);
    let is_ipv6 = address.contains(&b':');
    let quotes: [&[u8]; 2] = if is_ipv6 {
        [b"\"[", b"]\""]
    } else {
        [b"", b""]
    };
    for part in [b"for=", quotes[0], address, quotes[1]] {
        element.extend_from_slice(part);
    }
    let is_quotable =
        |host: &&HeaderValue| !host.as_bytes().iter().any(|byte| b"\"\\".contains(byte));
    if let Some(host) = host.filter(is_quotable) {
        for part in [b";host=\"", host.as_bytes(), b"\""] {
            element.extend_from_slice(part);
        }
    }
    element.extend_from_slice(b";proto=");
    element.extend_from_slice(proto.as_bytes());
    element.into()
}

/// Adds a value to a header, all lines of which become one.
fn add_to_line(headers: &mut HeaderMap, name: HeaderName, value: Bytes) {
    let Ok(value) = HeaderValue::from_maybe_shared(value) else {
        return; // its parts are addresses and values of headers
    };
    let had_lines = headers.append(&name, value);
    if had_lines {
        join_lines(headers, name, b", ");
    }
}

/// Names that no trailer may have, beside those of hop-by-hop headers. They are read before the body, so a server that adds
/// trailers to the headers would believe what nobody has checked (RFC 9110, 6.5.1).
const NO_TRAILERS: [&str; 16] = [
    "api-key",
    "authorization",
    "cache-control",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "max-forwards",
    "pragma",
    "range",
    "x-api-key",
    "x-priority",
    "x-real-ip",
    "x-request-id",
    "x-request-timeout",
    "x-tenant-id",
];

/// The beginnings of such names.
const NO_TRAILER_PREFIXES: [&str; 5] = ["content-", "if-", "proxy-", "x-forwarded-", "x-triage-"];

/// Removes the trailers of a request that a server may take for headers which decide something, and those of the names in
/// `sent`, which are the request's headers.
pub(super) fn strip_trailers(trailers: &mut HeaderMap, sent: &[HeaderName]) {
    let is_refused = |name: &&HeaderName| {
        let dashed = name.as_str().replace('_', "-");
        let mut prefixes = NO_TRAILER_PREFIXES.iter();
        hop_by_hop_index(name).is_some()
            || NO_TRAILERS.contains(&&*dashed)
            || prefixes.any(|prefix| dashed.starts_with(prefix))
            || sent.iter().any(|sent| *sent == *dashed)
    };
    let refused: Vec<_> = trailers.keys().filter(is_refused).cloned().collect();
    for name in refused {
        trailers.remove(name);
    }
}

/// Writes an address to `text`. The formatter of the standard library takes 30 times as long, which is 2 % of a request.
fn ipv4_text(address: Ipv4Addr, text: &mut [u8; 15]) -> &[u8] {
    let mut length = 0;
    let mut push = |byte| {
        text[length] = byte; // four octets have up to three digits each, and three dots
        length += 1;
    };
    for (nth, octet) in address.octets().into_iter().enumerate() {
        if nth > 0 {
            push(b'.');
        }
        if octet >= 100 {
            push(b'0' + octet / 100);
        }
        if octet >= 10 {
            push(b'0' + octet / 10 % 10);
        }
        push(b'0' + octet % 10);
    }
    &text[..length]
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

    #[test]
    fn an_address_is_written_as_the_standard_library_does() {
        for octet in 0..=255 {
            let address = Ipv4Addr::new(octet, 0, 255, 255 - octet);
            let text = ipv4_text(address, &mut [0; 15]).to_vec();
            assert_eq!(text, address.to_string().into_bytes());
        }
    }

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
        Special::of(&got, None).strip_hop_by_hop(&mut got, false);
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
            to_client(&mut answer, &Uri::from_static("http://a"), None);
            assert_eq!(answer, headers(got));
        }
    }

    #[test]
    fn a_request_in_chunks_has_no_length() {
        let mut got = headers(&[("content-length", "5"), ("transfer-encoding", "chunked")]);
        to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), None, None);
        assert_eq!(got.get(CONTENT_LENGTH), None);
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
        Special::of(&got, None).strip_hop_by_hop(&mut got, true);
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
    fn a_length_that_connection_names_is_written_anew() {
        for sent in ["7", "9", "07"] {
            let mut got = headers(&[("connection", "content-length"), ("content-length", sent)]);
            to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), Some(7), None);
            assert_eq!(got, headers(&[("content-length", "7")]), "{sent}");
        }
    }

    #[test]
    fn two_lines_of_length_become_one() {
        let mut got = headers(&[("content-length", "7"), ("content-length", "7")]);
        to_endpoint(&mut got, Version::HTTP_11, &HeaderMap::new(), Some(7), None);
        assert_eq!(got, headers(&[("content-length", "7")]));
    }

    #[test]
    fn a_length_is_right_only_as_plain_digits() {
        for (written, number, is_right) in [
            ("0", 0, true),
            ("1200", 1200, true),
            ("18446744073709551615", u64::MAX, true),
            ("18446744073709551616", 0, false),
            ("", 0, false),
            ("+7", 7, false),
            ("07", 7, false),
            ("7 ", 7, false),
            ("8", 7, false),
        ] {
            let value = HeaderValue::from_static(written);
            assert_eq!(is_number(&value, number), is_right, "{written}");
        }
    }

    #[test]
    fn the_client_is_added_to_those_before_it() {
        let client = Client {
            peer: PeerAddr(([192, 0, 2, 7], 9).into()),
            host: Some(HeaderValue::from_static("gateway:80")),
            is_over_tls: true,
        };
        let own = HeaderMap::new();
        let mut got = headers(&[("x-forwarded-for", "a, b"), ("x-forwarded-for", "c")]);
        to_endpoint(&mut got, Version::HTTP_11, &own, None, Some(&client));
        let ours = "for=192.0.2.7;host=\"gateway:80\";proto=https";
        let expected = [
            ("x-forwarded-for", "a, b, c, 192.0.2.7"),
            ("x-forwarded-host", "gateway:80"),
            ("x-forwarded-proto", "https"),
            ("forwarded", ours),
        ];
        assert_eq!(got, headers(&expected));
        let believed = [("x-forwarded-host", "front"), ("x-forwarded-proto", "http")];
        let mut got = headers(&believed);
        got.insert(FORWARDED, HeaderValue::from_static("for=x"));
        to_endpoint(&mut got, Version::HTTP_11, &own, None, Some(&client));
        for (name, value) in believed {
            assert_eq!(got[name], value);
        }
        assert_eq!(got[FORWARDED], *format!("for=x, {ours}"));
    }

    #[test]
    fn an_address_is_written_in_its_own_family() {
        for (peer, address, element) in [
            (
                "[::ffff:192.0.2.7]:9",
                "192.0.2.7",
                "for=192.0.2.7;proto=http",
            ),
            (
                "[2001:db8::1]:9",
                "2001:db8::1",
                "for=\"[2001:db8::1]\";proto=http",
            ),
        ] {
            let client = Client {
                peer: PeerAddr(peer.parse().unwrap()),
                host: None,
                is_over_tls: false,
            };
            let mut got = HeaderMap::new();
            add_client(&mut got, &client);
            assert_eq!(got[X_FORWARDED_FOR], address);
            assert_eq!(got[FORWARDED], element);
        }
    }

    #[test]
    fn trailers_that_servers_may_believe_are_removed() {
        let mut got = headers(&[
            ("x-sum", "1"),
            ("digest", "1"),
            ("x-own", "1"),
            ("x_own", "1"),
            ("authorization", "1"),
            ("x_tenant_id", "1"),
            ("x-forwarded-prefix", "1"),
            ("content-type", "1"),
            ("connection", "1"),
        ]);
        strip_trailers(&mut got, &[HeaderName::from_static("x-own")]);
        assert_eq!(got, headers(&[("x-sum", "1"), ("digest", "1")]));
    }

    #[test]
    fn lookalikes_of_endpoint_headers_are_removed() {
        let own = headers(&[("host", "endpoint"), ("x-own-key", "1")]);
        let mut got = headers(&[("x_own_key", "2"), ("session_id", "3")]);
        to_endpoint(&mut got, Version::HTTP_11, &own, None, None);
        let expected = [
            ("session_id", "3"),
            ("host", "endpoint"),
            ("x-own-key", "1"),
        ];
        assert_eq!(got, headers(&expected));
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

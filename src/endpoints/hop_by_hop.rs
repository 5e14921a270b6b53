//! Hop-by-hop headers: those about one connection, which a proxy must not pass on.

use http::HeaderName;

/// The headers that are hop-by-hop even if `Connection` does not name them.
pub(crate) const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "proxy-authorization",
    "expect", // answered already: the body is being sent
];

/// Whether a header is hop-by-hop even if `Connection` does not name it.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

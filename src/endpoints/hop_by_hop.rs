//! Headers that are about one connection mean something else, or something bad, on the next one.

use http::HeaderName;

/// What is about one connection even if `Connection` does not name it.
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
    "expect", // already answered: the body is on its way
];

/// Whether it is about one connection even if `Connection` does not name it.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

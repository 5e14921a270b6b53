//! Hop-by-hop headers, which describe one connection and are neither passed on nor stored.

use http::HeaderName;
#[cfg(feature = "client")]
use http::header::{CONNECTION, HeaderMap};

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
    "expect", // answered already, because the body is being sent
];

/// The lengths of the names in [`HOP_BY_HOP`], as a set of bits. Most headers have a name of another length.
const LENGTHS: u32 = {
    let (mut lengths, mut nth) = (0, 0);
    while nth < HOP_BY_HOP.len() {
        lengths |= 1 << HOP_BY_HOP[nth].len();
        nth += 1;
    }
    lengths
};

/// Returns `true` if a header is hop-by-hop even if `Connection` does not name it.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    hop_by_hop_index(name).is_some()
}

/// Returns the index of a header in [`HOP_BY_HOP`], if it is one of those.
#[inline]
pub(crate) fn hop_by_hop_index(name: &HeaderName) -> Option<usize> {
    let name = name.as_str();
    let has_length = LENGTHS.checked_shr(name.len() as u32).unwrap_or(0) & 1 == 1;
    if !has_length {
        return None;
    }
    HOP_BY_HOP.iter().position(|it| *it == name)
}

/// Returns the headers that `Connection` names, which are hop-by-hop, too.
#[cfg(feature = "client")]
pub(crate) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

//! A gateway's own 502 and one that an endpoint sent look the same, and mean different things.

/// Why there is no answer of an endpoint's: an extension of the response that is given instead.
///
/// `Forward` inserts it. A service of one's own below a [`RouteLayer`](super::RouteLayer) may do so, too, and
/// its endpoints are tried again, and left alone, as those of `Forward`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unanswered {
    /// No connection could be made.
    Unreachable,
    /// No connection was made in time.
    ConnectTimeout,
    /// The connection broke before the head of an answer was there.
    BrokeOff,
    /// The head of an answer was not there in time.
    Timeout,
}

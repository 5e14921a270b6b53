//! To a layer that tries again, or takes an endpoint out of service, one 502 looks like another: the
//! endpoint's own answer like that of a proxy that never reached it.

/// Why an endpoint gave no answer, as an extension of the response that stands in for it.
///
/// `Forward` puts it there; an endpoint's own answer has none, whatever its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unanswered {
    /// There was no connection: refused, no such name, no trust. The endpoint has not seen the request.
    Unreachable,
    /// There was no connection, because this process has no file descriptors left. That says nothing of the endpoint,
    /// which has not seen the request.
    OutOfFiles,
    /// There was no connection in time. The endpoint has not seen the request.
    ConnectTimeout,
    /// The connection ended, or talked nonsense, before the answer's head was there. The endpoint may have
    /// worked on the request.
    BrokeOff,
    /// The request's body could not be sent whole: its client broke off, or the connection ended before the
    /// endpoint had read it, as when it refuses a body by its length. That says nothing of the endpoint.
    BodyNotSent,
    /// The answer's head was not there in time. The endpoint may have worked on the request.
    Timeout,
}

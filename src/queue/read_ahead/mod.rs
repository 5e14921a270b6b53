//! Bodies that are read while their requests wait.
//!
//! Over HTTP/2, the unread bodies of all requests of a connection share its flow-control window. Once those of waiting requests
//! fill it, the client can't send the body of the request that has the slot, so nothing moves. Reading the bodies of waiting
//! requests into a bounded memory keeps the window open.
//!
//! ```text
//! ReadAhead ── WaitingBody ──> the queue ──> ReadAheadInner ── ReadAheadBody ──> the inner service
//!     └─ reads the body while the queue's future is pending and the inner service was not called
//! ```
//!
//! The service outside of the queue shares the body with the one inside, which takes the body out when the wait is over. So the
//! queue itself knows nothing of bodies.

mod body;
mod future;
mod inner;
mod layer;
mod service;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;

use crate::http::BodyMemory;

pub use body::ReadAheadBody;
pub use future::ReadAheadFuture;
pub use inner::ReadAheadInner;
pub use layer::ReadAheadLayer;
pub use service::ReadAhead;
pub use waiting::WaitingBody;

/// The limits on what is read of bodies while their requests wait.
#[derive(Debug, Clone)]
struct Limits {
    memory: BodyMemory,
    /// The largest body that is read, in bytes.
    max_body: usize,
}

//! Everything that knows HTTP. Without one place for it, each layer reads headers its own way, answers
//! "busy" in its own words, and gives its slot back while the answer is still on the wire.
//!
//! Nothing here is a service. On the way in, [`HeaderClassifier`] reads a [`Ticket`] from a request head;
//! [`wants_stream`] and [`is_grpc`] tell what kind of answer its client expects. On the way out,
//! [`PermitBody`] keeps the slot until the body is over, [`insert_server_timing`] says how long the request waited, and
//! a [`Rejection`], with the help of [`RetryAfter`], tells a client why it was not served and when to
//! come back, as HTTP or as gRPC.
//!
//! ```
//! use std::time::Duration;
//! use tower_triage::{ToRejection, RejectReason, RetryAfter};
//!
//! let rejected: RejectReason = RejectReason::Full;
//! let seconds = RetryAfter::default().seconds(Some(Duration::from_millis(2_300)), 0.0);
//! let response = rejected
//!     .to_rejection()
//!     .with_retry_after(Duration::from_secs(seconds))
//!     .into_response(false);
//!
//! assert_eq!(response.status(), 503);
//! assert_eq!(response.headers()["retry-after"], "3");
//! assert!(response.body().ends_with(br#""code":"queue_full"}}"#));
//! ```
//!
//! [`Ticket`]: crate::Ticket

mod body;
mod classify;
mod format;
mod rejection;
mod render;
mod retry_after;
mod timing;

pub use body::PermitBody;
pub use classify::{HeaderClassifier, is_grpc, wants_stream};
pub(crate) use format::AnswerFormat;
pub(crate) use rejection::queue_full;
pub use rejection::{Rejection, ToRejection};
pub use retry_after::{InvalidRetryAfter, RetryAfter, RetryAfterMode};
pub use timing::insert_server_timing;

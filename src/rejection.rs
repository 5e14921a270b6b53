//! Rejections, the responses to requests that are not served: status, error body, and `Retry-After`.
//!
//! A [`Rejection`] holds the reason once, and is written as HTTP or as gRPC, whichever the client understands. Every
//! reason for which a request is not served [converts into one](ToRejection). [`RetryAfter`] turns an estimated wait
//! into the whole seconds that the client is told.
//!
//! ```
//! use std::time::Duration;
//! use http::HeaderMap;
//! use tower_triage::RejectReason;
//! use tower_triage::rejection::{RetryAfter, ToRejection};
//!
//! let reason: RejectReason = RejectReason::Full;
//! let seconds = RetryAfter::default().seconds(Some(Duration::from_millis(2_300)), 0.0);
//! let response = reason
//!     .to_rejection()
//!     .with_retry_after(Duration::from_secs(seconds))
//!     .into_response_to(&HeaderMap::new());
//!
//! assert_eq!(response.status(), 503);
//! assert_eq!(response.headers()["retry-after"], "3");
//! assert!(response.body().ends_with(br#""code":"queue_full"}}"#));
//! ```

pub use crate::http::{InvalidRetryAfter, Rejection, RetryAfter, RetryAfterMode, ToRejection};

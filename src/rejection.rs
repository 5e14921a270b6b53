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
//!
//! # Reasons and codes
//!
//! HTTP clients get JSON in OpenAI's form, `{"error":{"message","type","param","code"}}`. gRPC clients get a status. The
//! codes are stable. With 503 and 429 comes `Retry-After`, or `grpc-retry-pushback-ms` ("pushback").
//! `retry-after-ms` says the same wait in milliseconds. Both are at most 120 s. A rejection with any other status of
//! 4xx, but for 408 and 409, has `x-should-retry: false`. The SDKs of OpenAI and Anthropic read both headers.
//!
//! | reason | HTTP | `code` | gRPC |
//! |---|---|---|---|
//! | the request would wait for too long, or has; or all slots are busy, and requests are shed | 503 | `overloaded` | 14 `UNAVAILABLE`, pushback |
//! | the waiting room is full | 503 | `queue_full` | 14, pushback |
//! | the request waited for `max_wait` | 503 | `queue_timeout` | 14, pushback |
//! | all slots are busy, and the request may not wait | 503 | `queue_disabled`; `not_queued`, or `streaming_not_queued` for a stream under `streaming = "reject"` | 14, pushback |
//! | a higher priority displaced the request, or a flow further below its share | 503 | `displaced` | 14, pushback |
//! | the service is shutting down | 503 | `shutting_down` | 14, pushback |
//! | as many requests of the tenant wait as may | 429 | `tenant_queue_full` | 8 `RESOURCE_EXHAUSTED`, pushback |
//! | the request's own deadline has passed, or is nearer than its service takes | 504 | `deadline_exceeded` | 4 `DEADLINE_EXCEEDED` |
//! | the answer had not begun after `max_hold` | 504 | `slot_timeout` | 4 |
//! | the rest of the body did not come, and other tenants needed the slot | 408 | `request_body_timeout` | 4 |
//!
//! [`overload_status`](crate::QueueConfig::overload_status) changes each 503 of this table, but for the shutdown, into
//! 429 `RESOURCE_EXHAUSTED`.
//!
//! A router adds these:
//!
//! | reason | HTTP | `code` | gRPC |
//! |---|---|---|---|
//! | the model is unknown | 404 | `model_not_found` | 5 `NOT_FOUND` |
//! | the endpoints with the model lack something that the request needs | 400 | `capability_mismatch` | 3 `INVALID_ARGUMENT` |
//! | the prompt is too long for each context that could serve the request | 400 | `context_length_exceeded` | 3 |
//! | the body can't be read, or names no model | 400 | `malformed_body`, `model_missing` | 3 |
//! | the body is over the limit, or over that of a layer in front | 413 | `body_too_large` | 8 |
//! | the body did not arrive in the time that a layer in front allows | 408 | `request_body_timeout` | |
//! | the bodies of all requests need the memory that they may have | 503 | `body_memory_full` | 14, pushback |
//! | the body has a `Content-Encoding` | 415 | `unsupported_encoding` | 12 `UNIMPLEMENTED` |
//! | the body has another charset than UTF-8, or a type that servers may read differently | 415 | `unsupported_content_type` | 12 |
//! | no endpoint that could serve the request is healthy, nor one of a fallback; or there is no endpoint at all | 503 | `no_healthy_backend`, `fallback_chain_exhausted` | 14, pushback |
//! | the model could not be started, or was unloaded while the request waited | 503 | `model_start_failed`, `model_unloaded` | 14, pushback |
//! | the model's process ended before it answered | 502 | `model_crashed` | |
//! | the endpoint can't be reached, or broke off before it answered | 502 | `upstream_unreachable`, `upstream_failed` | |
//! | the connection to the endpoint, or its answer, took too long | 504 | `upstream_connect_timeout`, `upstream_timeout` | |
//!
//! A response that began while its request waited (`x-queue-status: sse`) carries a rejection as an event of type `error`.
//! The event has the same JSON, with the seconds of `Retry-After` as `retry_after` in the error object.
//!
//! Requests of `application/grpc` and `application/grpc+...` are answered as gRPC. Those of `application/grpc-web...` get the
//! same status in the headers of a response without a body, which gRPC-Web clients read, too.
//!
//! For the layers around it, a rejection has its [`RejectReason`](crate::RejectReason) in its extensions, and the failure of an
//! endpoint its [`ErrorCode`].
//! [`QueueLayer::on_reject`](crate::QueueLayer::on_reject) answers with another rejection, or with any response.

pub use crate::http::{
    BodyFault, ErrorCode, InvalidRetryAfter, Rejection, RetryAfter, RetryAfterMode, ToRejection,
    drain,
};

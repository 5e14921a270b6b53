//! Tower middleware for services that saturate: it decides **who goes next, and where**.
//!
//! When everything is busy, a request should neither fail at once nor pile up unseen. Behind a
//! [`QueueLayer`] it waits in a bounded, ordered room, knows how long it may wait, and is handed the very slot
//! that another request just gave back. A `RouteLayer` does the same over many endpoints, each with its own
//! slots.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tower_triage::{QueueConfig, QueueLayer};
//!
//! let queue = QueueLayer::new(
//!     QueueConfig::new(8)                      // 8 requests at a time
//!         .max_size(100)                       // 100 more may wait
//!         .max_wait(Duration::from_secs(10)),  // this long; then 503 and Retry-After
//! );
//! let handle = queue.handle();
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(queue);
//! assert_eq!(handle.status().depth, 0);
//! # drop(app);
//! ```
//!
//! # What it promises
//!
//! - **No barging**: a slot that comes back goes to the best waiter, never to a newcomer who polls first.
//! - **No ghosts**: a request whose caller is gone holds no chair and no slot from that instant on.
//! - **No polling**: exactly the waiter that got a slot is woken; deadlines cost one timer per gate.
//! - **Exact priorities**, fair shares between tenants, or earliest deadline first; with aging if wanted.
//! - **The slot is held until the body ends**, so that a streamed answer counts as long as it runs.
//! - **Exactly one outcome** for each request: served, rejected with a reason, or cancelled by its caller.
//!
//! # Rooms
//!
//! | module | what it is for |
//! |---|---|
//! | [`queue`] | [`QueueLayer`]: a waiting room in front of any service |
#![cfg_attr(
    feature = "route",
    doc = "| [`route`] | [`RouteLayer`]: each request to an endpoint that can serve it |\n\
           | [`endpoints`] | many backends as one capacity: registry, strategies, health |\n\
           | [`openai`] | what the body of a request asks |"
)]
#![cfg_attr(
    not(feature = "route"),
    doc = "| `route` | `RouteLayer`: each request to an endpoint that can serve it (feature `route`) |\n\
           | `endpoints` | many backends as one capacity: registry, strategies, health (feature `route`) |\n\
           | `openai` | what the body of a request asks (feature `route`) |"
)]
#![cfg_attr(
    feature = "client",
    doc = "| [`upstream`] | `Forward`, which sends a routed request over HTTP, and health checks |"
)]
#![cfg_attr(
    not(feature = "client"),
    doc = "| `upstream` | `Forward`, which sends a routed request over HTTP, and health checks (feature `client`) |"
)]
#![cfg_attr(
    feature = "batch",
    doc = "| [`batch`] | [`RequestQueue`]: the waiting room from the pull side; [`BatchLayer`] |"
)]
#![cfg_attr(
    not(feature = "batch"),
    doc = "| `batch` | `RequestQueue`: the waiting room from the pull side; `BatchLayer` (feature `batch`) |"
)]
//! | [`http`] | tickets from headers, rejections as HTTP or gRPC, permits in bodies |
//! | [`gate`] | [`Gate`]: a capacity with a waiting room, for code that is no Tower service |
//! | [`admit`] | the pure core: tickets, disciplines, capacities; no async, no clock |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `serde` | reading the configuration from TOML and other formats |
//! | `route` | `RouteLayer`, registries, endpoints as a capacity |
//! | `client` | `Forward`, which sends a routed request to its endpoint over HTTP |
//! | `tls` | `Forward` to `https://` endpoints |
//! | `metrics` | what a router does, told to the `metrics` facade |
//! | `batch` | `RequestQueue` and `BatchLayer` |
//! | `full` | all of these |
//!
//! None is on by default. A Tokio runtime with its timer enabled is needed for waits to end by time.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admit;
#[cfg(feature = "batch")]
pub mod batch;
mod clock;
#[cfg(feature = "route")]
pub mod endpoints;
pub mod gate;
pub mod http;
mod on_cancel;
#[cfg(feature = "route")]
pub mod openai;
pub mod queue;
#[cfg(feature = "route")]
pub mod route;
mod service;
mod sync;
#[cfg(feature = "client")]
pub mod upstream;

pub use self::http::{PermitBody, Rejection, RetryAfter, RetryAfterMode, ToRejection};
pub use admit::{
    Capacity, Discipline, InvalidPriorityLevels, LeaseError, Partition, PoolId, PoolSet, Priority,
    PriorityLevels, RejectReason, RoomStats, SlotPool, Tenant, Ticket, WaitingRoomConfig,
};
#[cfg(feature = "batch")]
pub use batch::{BatchLayer, RequestQueue};
pub use gate::Gate;
pub use queue::{
    BoxedError, Concurrency, Hold, InvalidQueueConfig, Overflow, Queue, QueueConfig, QueueError,
    QueueHandle, QueueLayer, Streaming,
};
#[cfg(feature = "route")]
pub use route::{Route, RouteLayer, RouterHandle};

/// The README's code is code.
#[cfg(all(doctest, feature = "route", feature = "batch"))]
#[doc = include_str!("../README.md")]
struct Readme;

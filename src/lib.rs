//! Tower middleware that lets requests wait for a busy service. The queue is bounded and ordered, and each wait has a
//! time limit.
//!
//! A [`QueueLayer`] runs a limited number of requests at a time, each until the body of its response ends. The other
//! requests wait by priority, by tenant or by deadline, and each slot that becomes free goes to the next waiter. A
//! `RouteLayer` does the same over many endpoints.
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
//! # Modules
//!
//! | module | for |
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
    feature = "swap",
    doc = "| [`swap`] | [`SwapLayer`]: models that are started when they are asked for, under limited memory |"
)]
#![cfg_attr(
    not(feature = "swap"),
    doc = "| `swap` | `SwapLayer`: models that are started when they are asked for, under limited memory (feature `swap`) |"
)]
#![cfg_attr(
    feature = "batch",
    doc = "| [`batch`] | [`RequestQueue`]: a waiting room to take requests from; [`BatchLayer`] |"
)]
#![cfg_attr(
    not(feature = "batch"),
    doc = "| `batch` | `RequestQueue`: a waiting room to take requests from; `BatchLayer` (feature `batch`) |"
)]
//! | [`gate`] | [`Gate`]: a semaphore with a bounded, ordered queue, for code that is no Tower service |
//! | [`rejection`] | the response to a request that is not served |
//! | [`admit`] | the core of all that: tickets, disciplines and capacities, without async and without a clock |
//!
//! # Constructors
//!
//! | constructor | for |
//! |---|---|
//! | [`QueueLayer::new`], [`try_new`](QueueLayer::try_new) | HTTP and gRPC; rejections are responses |
//! | [`QueueLayer::limit`] | HTTP and gRPC with a limit alone: all others wait, first come, first served, for as long as it takes |
//! | [`QueueLayer::plain`], [`try_plain`](QueueLayer::try_plain) | any other service; rejections are errors ([`QueueError`]) |
//! | [`QueueConfig::inner`] in place of [`QueueConfig::new`] | a `ConcurrencyLimit`, `RateLimit`, `Buffer` or load balancer inside, which then is the limit; the queue gives it an order. [`share_inner`](QueueLayer::share_inner) if it can't be cloned |
//!
//! All services that one layer and its clones make share one limit and one waiting room.
//!
//! # Promises
//!
//! - A slot that becomes free goes to the next waiter, never to a newcomer.
//! - If a caller goes away, its request frees its place or its slot at once.
//! - Only the waiter that got a slot is woken. Deadlines cost one timer per waiting room.
//! - The order of priorities, fair shares and deadlines is exact.
//! - Each request is served, rejected with a reason, or cancelled by its caller. Exactly one of the three happens.
//!
//! # Features
//!
//! All features are off by default.
//!
//! | feature | gives |
//! |---|---|
//! | `serde` | configurations from TOML and other formats; statuses to them |
//! | `route` | `RouteLayer`, registries, endpoints as a capacity |
//! | `client` | `Forward`, which sends a routed request to its endpoint over HTTP |
//! | `tls` | `Forward` to `https://` endpoints |
//! | `metrics` | metrics of a queue (`queue::QueueMetrics`) or a router, for the `metrics` facade |
//! | `batch` | `RequestQueue` and `BatchLayer` |
//! | `load` | `tower::load::Load` for a queue, for load balancers |
//! | `tonic` | `tonic::server::NamedService` for a queue, around a single gRPC service |
//! | `swap` | `SwapLayer`: models that are started when they are asked for |
//! | `full` | all of these |
//!
//! Requests that survive the process are the package `tower-triage-durable`, its stores `tower-triage-embedded` and
//! `tower-triage-redis`, and OpenAI's batches `tower-triage-batches`. The gateway is `tower-triage-gateway`.
//!
//! Waits end by time only in a Tokio runtime that has its timer enabled.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admit;
#[cfg(feature = "batch")]
pub mod batch;
mod clock;
#[cfg(feature = "route")]
pub mod endpoints;
#[cfg(feature = "__fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod gate;
mod http;
mod implies;
mod on_cancel;
#[cfg(feature = "route")]
pub mod openai;
pub mod queue;
pub mod rejection;
#[cfg(feature = "route")]
pub mod route;
mod service;
mod setters;
#[cfg(any(feature = "serde", feature = "route"))]
mod short_number;
#[cfg(feature = "swap")]
pub mod swap;
mod sync;
#[cfg(feature = "client")]
pub mod upstream;

#[doc(inline)]
pub use admit::{
    Capacity, Discipline, Priority, PriorityLevels, RejectReason, SlotPool, Tenant, Ticket,
    WaitingRoomConfig,
};
#[cfg(feature = "batch")]
pub use batch::{BatchLayer, RequestQueue};
pub use gate::{Gate, Permit};
pub use queue::{QueueConfig, QueueError, QueueHandle, QueueLayer};
#[cfg(feature = "route")]
pub use route::{Route, RouteHandle, RouteLayer};
#[cfg(feature = "swap")]
pub use swap::{SwapHandle, SwapLayer};

/// The README, with its code as doc tests.
#[cfg(all(doctest, feature = "swap", feature = "batch"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The page `REPLACES.md`, with its code as doc tests.
#[cfg(all(doctest, feature = "route", feature = "batch"))]
#[doc = include_str!("../REPLACES.md")]
struct Replaces;

/// The page `docs/in-your-app.md`, with its code as doc tests.
#[cfg(all(doctest, feature = "tonic", feature = "metrics"))]
#[doc = include_str!("../docs/in-your-app.md")]
struct InYourApp;

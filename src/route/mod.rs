//! The middleware that sends each request to an endpoint that can serve it.
//!
//! A [`RouteLayer`] reads the demand of a request and waits for a slot of one of its [`Endpoints`]. It passes the
//! choice to the inner service as a [`Decision`] in the request's extensions, and tries a request that fails again at
//! another endpoint. With the feature `client`, `upstream::Forward` is an inner service that sends the request on. A
//! [`RoutingConfig`] has the settings, and a [`RouteHandle`] reports on the router and changes it.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, Uri};
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage::RouteLayer;
//! use tower_triage::endpoints::{Decision, Endpoint, Model, Registry};
//! use tower_triage::route::{RouteBody, RoutingConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = Endpoint::new("gpu-1", Uri::from_static("http://127.0.0.1:9001"))
//!     .model(Model::new("llama3:8b"));
//! let layer = RouteLayer::builder(Registry::new(vec![gpu])?)
//!     .routing(RoutingConfig::default().alias("gpt-4", "llama3:8b"))
//!     .build();
//! let service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service(service_fn(|request: Request<RouteBody<Full<Bytes>>>| async move {
//!         let decision = request.extensions().get::<Decision>().expect("set by the layer");
//!         let answer = format!("{} by {}", decision.model, decision.endpoint.name());
//!         Ok::<_, std::convert::Infallible>(Response::new(Full::from(answer)))
//!     }));
//!
//! let request = Request::post("/v1/chat/completions").body(Full::from(r#"{"model": "gpt-4"}"#))?;
//! let response = service.oneshot(request).await?;
//! assert_eq!(response.headers()["x-triage-model"], "llama3:8b");
//! # Ok(())
//! # }
//! ```
//!
//! # How requests are read
//!
//! A router reads the body as OpenAI's chat, completions, embeddings and responses have it: model, images, tools, JSON mode,
//! stream, and [tokens](crate::endpoints::Requirements::from_json), which are estimated. It passes the body on byte for byte, but
//! for the model's name where another model serves. A [`Model`](crate::endpoints::Model) or an [`Alias`] may set and remove
//! parameters of a body in JSON, and name the model otherwise; the rest of the body stays as it is. A body that claims to be
//! `application/x-www-form-urlencoded` is read as JSON, too, and sent as `application/json`, because a server could find
//! another model among its fields.
//!
//! Of a form (`multipart/form-data`, as audio and images have it) the router reads only the beginning, up to the part `model`.
//! The beginning that was read is sent to the endpoint, and the rest is streamed behind it, so that a file may be larger than
//! [`body_limit`](RouteLayerBuilder::body_limit). A form with more than that before its model is rejected with 400
//! (`model_missing`). A form is tried again only if all of it was read. A form that names two models is rejected with 400
//! (`malformed_body`), or its body fails before the second name if that comes later, because servers differ in the one that
//! counts. So is a form with a part that has an unusual `content-disposition`, such as one with two names, if it may be the
//! model's.
//!
//! A prompt whose estimated tokens are more than twice the longest context is rejected with 400 (`context_length_exceeded`),
//! unless its engine cuts it: at paths that end with Ollama's (`/api/chat` and its siblings), or where
//! [a field of the body](crate::endpoints::Requirements::any_length) says so.
//!
//! A request that names no model goes to the [default endpoint](RoutingConfig::default_endpoint), if there is one. A layer in
//! front can name the model by [`Requirements`](crate::endpoints::Requirements) among the extensions of a request, so that its
//! body stays unread. Where a header, the path, an extension or a closure names the model
//! ([`RouteLayerBuilder::demand_from_header`] and its siblings), bodies stay unread.
//! If the query of such a request has the name that was asked for as its `model`, the endpoint gets the model's name there.
//!
//! # How an endpoint is chosen
//!
//! The router tries the model that is asked for, then the target of an alias, then the fallbacks in order. The endpoints
//! that have the model, are healthy, can do what is asked and have a slot free are the candidates, and a
//! [strategy](StrategyChoice) chooses among them. Responses carry `x-triage-endpoint` and `x-triage-model`, and
//! `server-timing` if the request waited. With `discipline = "fair"` tenants share [tokens or requests](FairBy).
//!
//! # When an endpoint fails
//!
//! A request that fails before anything of a response went out (no connection, 502, 503, 504) is tried again at another
//! endpoint. It keeps its position in the order, and a [budget](RoutingConfig::retry_share) bounds the retries. If no other
//! endpoint could serve it, the failure is its response.
//!
//! An endpoint that fails five times in a row, or half of its last 20 requests, is ejected for a while, and then probed with one
//! request, as far as [`max_ejected_percent`](RoutingConfig::max_ejected_percent) allows. A status of 4xx is neither failure
//! nor success. An error in the body of a 200, be it an event of a stream, is a failure. If it is the first event, `Forward`
//! finds it while the head still waits, so that another endpoint may be tried. The failures of one tenant do not count while
//! the endpoint serves others, because its requests may be their cause. A new endpoint with a check gets one request at a
//! time until it has answered, or the check has passed. One without a check counts as healthy until requests fail. Where no
//! other endpoint could serve, requests wait for an ejected one.
//!
//! # When an endpoint is full
//!
//! An endpoint refuses a request by 429, 529, 503 with a `Retry-After`, or an error in the body that says so. It did not run the
//! request, so that is neither failure nor success. The request goes to another endpoint that is free, or back to its position
//! in the order, until its wait ends. Neither costs a retry. The limit of the endpoint falls to what it takes, and rises again in
//! steps after pauses of 10 ms to 1 s, which double while steps are refused. An endpoint that takes nothing is left alone for
//! such a pause, or for up to 10 s if its `Retry-After` says so. After three pauses of its own, a request lets others try
//! first, because it may be the cause itself. While the endpoint serves other tenants, the refusals of one
//! tenant only keep their own requests away, because its own budget may be used up.
//!
//! # Live requests
//!
//! A [`RouteObserver`] in the extensions of a request learns how far the request has come: the model that it asks for, its
//! ticket, its wait, and each endpoint that it is sent to.
//!
//! # Spans
//!
//! Each call of the inner service is in a span `triage.try` of the level `debug`, with the fields `endpoint`, `model`, `via`
//! and, once there is an answer, its `status`. The span ends with the head of the answer. A request that waits for a slot has
//! a span [`triage.queue`](crate::queue#spans). Both are children of the span in which the request is polled. While no
//! subscriber wants them, they cost one load each.
//!
//! # Metrics
//!
//! With feature `metrics`, a router reports to the `metrics` facade. The names and labels are stable. The router keeps the
//! handles of its counters as long as the same recorder is installed, so the recorder must not remove idle counters.
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `triage_requests_total` | `endpoint`, `model`, `outcome` | requests, by how they ended: `ok`, `client_error`, `server_error`, `broke_off`, `error_in_stream` (an error although its status says success), `failed`, `cancelled`, or a rejection's `code`. Names that are not configured are `other`; `endpoint` is `none` for a request that got none, and `model` for one that names none |
//! | `triage_queue_wait_seconds` | `priority` | histogram of the waits of requests that waited |
//! | `triage_retries_total` | `endpoint` | attempts after a failure there |
//! | `triage_endpoint_refusals_total` | `endpoint` | requests that the endpoint refused because it was full |
//! | `triage_fallbacks_total` | `asked`, `model` | requests that another model served |
//! | `triage_endpoint_health_changes_total` | `endpoint` | how often the endpoint went out of service or came back |
//! | `triage_queue_depth`, `triage_running` | | requests that wait, and requests that are being served |
//! | `triage_level_waiting` | `priority` | requests of the level that wait |
//! | `triage_queue_oldest_seconds` | `priority` | time since the arrival of the level's oldest waiter; 0 while none waits |
//! | `triage_level_reserved_slots` | `priority` | slots that are reserved for the level and those above |
//! | `triage_level_estimated_wait_seconds` | `priority` | the wait of one more request in the longest queue; NaN while unknown |
//! | `triage_level_target_wait_seconds` | `priority` | the predicted wait from which on arrivals are refused; +Inf: never |
//! | `triage_level_rejected_total` | `priority`, `code` | requests that the queue refused |
//! | `triage_endpoint_in_flight`, `triage_endpoint_limit` | `endpoint` | its slots in use, and its slots now |
//! | `triage_endpoint_limit_adaptive` | `endpoint` | 1 if that number adapts, else 0 |
//! | `triage_endpoint_healthy` | `endpoint` | 1 or 0 |
//!
//! `RouteHandle::record_gauges` sets the gauges and the counters by level. Call it before each scrape, as `triage-gateway`
//! does. The gateway has metrics of its own beside these; the page of `tower-triage-gateway` lists them.
//!
//! [`Decision`]: crate::endpoints::Decision
//! [`Endpoints`]: crate::endpoints::Endpoints

mod at_most_once;
mod attempt;
mod builder;
mod client_rules;
mod client_wait;
mod failed_response;
mod future;
mod handle;
mod head_at;
mod inner_service;
mod layer;
mod load_report;
mod measure;
mod metrics;
mod observer;
pub mod on_demand;
mod parsed_request;
mod read_request;
mod request_body;
mod request_metrics;
mod response;
mod response_body;
mod response_class;
mod retry;
mod rewrite;
mod service;
mod shared;
#[cfg(test)]
mod tests;
mod token_meter;
mod traced;

pub use at_most_once::AtMostOnce;
pub use builder::{InvalidRoute, RouteLayerBuilder};
pub use future::RouteFuture;
pub use handle::RouteHandle;
#[cfg(feature = "client")]
pub(crate) use head_at::HeadAt;
pub use inner_service::{RoutableBody, RouteInner};
pub use layer::RouteLayer;
pub use observer::RouteObserver;
pub use request_body::RouteBody;
pub use response_body::RouteResponseBody;
pub use service::Route;

pub use crate::endpoints::config::{
    Alias, FairBy, InvalidRouting, RoutingConfig, RoutingWarning, StrategyChoice, UnknownStrategy,
};

//! What the demo gateway promises to those who use it, held against the process itself over real sockets.
#![cfg(not(loom))]

#[path = "support/gateway_backend.rs"]
mod backend;
#[path = "support/gateway_client.rs"]
mod client;
#[path = "support/gateway_process.rs"]
mod process;

#[path = "gateway/churn.rs"]
mod churn;
#[path = "gateway/configuration.rs"]
mod configuration;
#[path = "gateway/environment.rs"]
mod environment;
#[path = "gateway/forwarding.rs"]
mod forwarding;
#[path = "gateway/metrics.rs"]
mod metrics;
#[path = "gateway/pages.rs"]
mod pages;
#[path = "gateway/reload.rs"]
mod reload;
#[path = "gateway/shutdown.rs"]
mod shutdown;
#[path = "gateway/waiting.rs"]
mod waiting;

//! Black-box tests of the demo gateway: a process of its own, clients and backends on real sockets.
#![cfg(not(loom))]

#[path = "support/gateway_backend.rs"]
mod backend;
#[path = "support/gateway_client.rs"]
mod client;
#[path = "support/gateway_openai.rs"]
mod openai_client;
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
#[path = "gateway/hang_up.rs"]
mod hang_up;
#[path = "gateway/log.rs"]
mod log;
#[path = "gateway/log_stuck.rs"]
mod log_stuck;
#[path = "gateway/metrics.rs"]
mod metrics;
#[path = "gateway/openai.rs"]
mod openai;
#[cfg(unix)]
#[path = "gateway/out_of_files.rs"]
mod out_of_files;
#[path = "gateway/pages.rs"]
mod pages;
#[path = "gateway/reload.rs"]
mod reload;
#[path = "gateway/routing_bodies.rs"]
mod routing_bodies;
#[path = "gateway/routing_capabilities.rs"]
mod routing_capabilities;
#[path = "gateway/routing_ejection.rs"]
mod routing_ejection;
#[path = "gateway/routing_failures.rs"]
mod routing_failures;
#[path = "gateway/routing_fallbacks.rs"]
mod routing_fallbacks;
#[path = "gateway/routing_models.rs"]
mod routing_models;
#[path = "gateway/routing_newcomers.rs"]
mod routing_newcomers;
#[path = "gateway/routing_retries.rs"]
mod routing_retries;
#[path = "gateway/routing_strategies.rs"]
mod routing_strategies;
#[path = "gateway/routing_waiting.rs"]
mod routing_waiting;
#[path = "gateway/shutdown.rs"]
mod shutdown;
#[path = "gateway/upstream.rs"]
mod upstream;
#[path = "gateway/waiting.rs"]
mod waiting;

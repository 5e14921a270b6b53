//! Black-box tests of the gateway: a process of its own, clients and backends on real sockets.

#[path = "../support/backend.rs"]
mod backend;
#[path = "../support/chromium.rs"]
mod chromium;
#[path = "../support/client.rs"]
mod client;
#[path = "../support/durable.rs"]
mod durable_support;
#[path = "../../../../tests/support/http2_frames.rs"]
mod http2_frames;
#[path = "../support/openai.rs"]
mod openai_client;
#[path = "../support/process.rs"]
mod process;
#[path = "../../../batches/tests/support/python.rs"]
mod python;
#[cfg(unix)]
#[path = "../../../redis/tests/support/redis_server.rs"]
mod redis_server;
#[cfg(unix)]
#[path = "../support/swap.rs"]
mod swap_support;
#[path = "../support/tls.rs"]
mod tls_support;

mod adaptive;
mod admin;
mod admin_page;
mod admin_stream;
mod api_pages;
mod browsers;
mod by_head;
mod churn;
mod configuration;
#[cfg(unix)]
mod dashboard;
mod durable;
mod durable_batches;
#[cfg(unix)]
mod durable_crash;
#[cfg(unix)]
mod durable_faults;
mod durable_operators;
#[cfg(unix)]
mod durable_redis;
mod environment;
mod error_shapes;
mod fair_slots;
mod fair_tokens;
mod forms;
mod forwarding;
mod hang_up;
#[cfg(target_os = "linux")]
mod hanging_file;
mod http2_backends;
mod http2_uploads;
mod large_heads;
mod levels;
mod live;
#[cfg(unix)]
mod llama;
mod log;
mod log_stuck;
mod metrics;
mod openai;
mod otel_metrics;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(unix)]
mod out_of_files;
#[cfg(target_os = "linux")]
mod own_answers;
mod pages;
mod paths;
mod reload;
mod routing_bodies;
mod routing_capabilities;
mod routing_ejection;
mod routing_errors;
mod routing_failures;
mod routing_fallbacks;
mod routing_models;
mod routing_newcomers;
mod routing_refusals;
mod routing_retries;
mod routing_strategies;
mod routing_waiting;
#[cfg(unix)]
mod service_manager;
mod shared_limits;
mod shutdown;
mod slow_clients;
#[cfg(unix)]
mod swap;
#[cfg(unix)]
mod swap_crash;
#[cfg(unix)]
mod swap_fixed;
#[cfg(unix)]
mod swap_given_up;
#[cfg(target_os = "linux")]
mod swap_killed;
#[cfg(unix)]
mod swap_loading;
#[cfg(unix)]
mod swap_output;
#[cfg(unix)]
mod swap_pages;
#[cfg(unix)]
mod swap_params;
#[cfg(unix)]
mod swap_unknown;
mod tenant_keys;
mod tenant_limit;
mod tenant_storage;
mod tenants;
mod tls;
mod uploads;
mod upstream;
mod usage;
mod waiting;
mod waiting_status;
mod watch;
mod websockets;
mod workers;

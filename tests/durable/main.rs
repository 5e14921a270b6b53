//! Tests of the stores of durable requests.

#![cfg(not(loom))]

#[macro_use]
mod conformance;
mod damaged;
mod drain;
mod embedded;
mod full_disk;
mod in_memory;
mod processes;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
#[path = "../support/redis_cluster.rs"]
mod redis_cluster;
#[cfg(feature = "redis")]
#[path = "../support/redis_server.rs"]
mod redis_server;
mod torn_log;

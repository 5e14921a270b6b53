//! Tests of `BatchLayer`.
#![cfg(not(loom))]

mod answers;
mod backpressure;
mod cancel;
mod engine;
mod not_ready;
mod panics;
mod random;
mod rejected;
mod shutdown;
mod stacks;
mod stress;
mod trigger;

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Engine, Error, Job, Readiness, Service, answer, config, is_done, job, layer, millis, send,
    service, settle, why,
};
use tokio::time::{Instant, advance};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::BatchLayer;
use tower_triage::batch::BatchError;
use tower_triage::{RejectReason, WaitingRoomConfig};

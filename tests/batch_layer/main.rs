//! Services of batches behind a service of single requests.
#![cfg(not(loom))]

mod answers;
mod backpressure;
mod due;
mod ending;
mod engine;
mod leaving;
mod not_ready;
mod panics;
mod random;
mod rejected;
mod stacks;
mod stress;

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Engine, Error, Job, Mood, Service, answer, is_done, job, layer, millis, room, send, service,
    settle, why,
};
use tokio::time::{Instant, advance};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::BatchLayer;
use tower_triage::batch::BatchError;
use tower_triage::{RejectReason, WaitingRoomConfig};

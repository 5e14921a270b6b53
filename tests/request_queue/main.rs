//! Tests of `RequestQueue`.

#![cfg(not(loom))]

mod arrivals;
mod basics;
mod batches;
mod consumers;
mod hostile;
mod memory;
mod model;
mod order;
mod promises;
mod rejections;
mod removal;
mod runtimes;
mod support;
mod threads;
mod tokens;
mod wakes;

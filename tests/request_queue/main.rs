//! The waiting room from the pull side, as a batch scheduler meets it.

#![cfg(not(loom))]

mod arrivals;
mod basics;
mod batches;
mod endings;
mod hostile;
mod leaving;
mod model;
mod order;
mod promises;
mod runtimes;
mod support;
mod taking;
mod threads;
mod tokens;
mod wakes;
mod ways;

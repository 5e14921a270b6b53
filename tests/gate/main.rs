//! `Gate` on Tokio.
#![cfg(not(loom))]

mod charge;
mod cooperative;
mod destructors;
mod estimates;
mod on_demand;
mod reports;
mod semaphore;
mod set_ticket;
mod tenant_limit;

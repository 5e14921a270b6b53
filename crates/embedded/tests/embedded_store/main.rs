//! Tests of the embedded store.

mod damaged;
mod embedded;
mod full_disk;
mod in_memory;
mod minimal;
#[path = "../../../durable/tests/support/minimal.rs"]
mod minimal_store;
mod processes;
mod torn_log;

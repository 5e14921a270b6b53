//! Tests of the embedded store.

mod damaged;
mod embedded;
mod full_disk;
mod in_memory;
mod minimal;
mod processes;
mod torn_log;

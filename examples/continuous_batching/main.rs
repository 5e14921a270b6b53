//! Continuous batching: an engine that serves many requests in each of its steps, and takes them from a
//! `RequestQueue`, by priority, as far as its memory goes.
//!
//! A language model makes one token for every sequence of its batch in each step. Answers differ in length, so if
//! a batch runs until its longest answer ends, most of its places are empty most of the time. Here a waiting request
//! takes such a place at the next step. The queue decides which one.
//!
//! The same requests are served in four ways; the figures of each are printed and drawn:
//!
//! ```sh
//! cargo run --features batch --example continuous_batching             # draws target/continuous_batching.svg
//! cargo run --features batch --example continuous_batching -- FILE.svg
//! ```
//!
//! | file | what it shows |
//! |---|---|
//! | `schedule.rs` | the loop around the engine; most of what a real one needs |
//! | `caller.rs` | how a request waits, is answered, or is cancelled |
//! | `run.rs` | how the queue is made |
//! | `engine.rs`, `workload.rs` | what is simulated |
//! | `table.rs`, `plot.rs` | the figures |
//!
//! # Time
//!
//! All times, deadlines in the queue included, are those of Tokio's clock, which is paused here: whenever all tasks
//! sleep, it jumps to the instant at which the next one wakes. So minutes take a second, every run is the same to the
//! millisecond, and the code is the same as with a running clock.

mod caller;
mod engine;
mod plot;
mod run;
mod schedule;
mod table;
#[cfg(test)]
mod tests;
mod workload;

use std::error::Error;
use std::path::PathBuf;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args_os().nth(1);
    let path = argument.map_or("target/continuous_batching.svg".into(), PathBuf::from);
    let runs = run::all().await;
    println!("{}", table::table(&runs));
    let picture = plot::plot(&runs)?;
    std::fs::write(&path, picture).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nplot: {}", path.display());
    Ok(())
}

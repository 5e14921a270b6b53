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
//! cargo run --release -p tower-triage-simulations --bin continuous_batching             # draws target/continuous_batching.svg
//! cargo run --release -p tower-triage-simulations --bin continuous_batching -- FILE.svg
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
//! # Figures
//!
//! 1,200 requests, in virtual time, the same in every run:
//!
//! ```text
//!                              tokens  requests  memory     high wait in s   normal wait in s      low wait in s
//!                               per s     per s  in use     median     p99     median     p99     median     p99
//! static, first come              401      2.10    49 %     114.69   214.6     107.58   216.7     106.21   213.5
//! continuous, first come          697      3.68    91 %       3.82    12.6       3.77    11.5       3.58    12.3
//! continuous, priorities          702      3.70    91 %       0.09     3.2       0.95    12.4      12.18    39.4
//! continuous, backfill            713      3.77    92 %       0.15     4.8       0.44    10.7       5.67    35.4
//! ```
//!
//! The static engine runs one batch after the other, and has more requests than it can serve. So its waits grow with the
//! length of the run. `OnOversize::Backfill { max_overtakes: 8 }` lets small requests pass one that does not fit, but at
//! most 8 times: most wait less, and the large ones wait longer, however urgent.
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

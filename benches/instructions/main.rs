//! The instructions that a request costs, counted by valgrind, beside its peers.
//!
//! ```sh
//! cargo run --profile bench -p tower-triage-instructions            # prints the table
//! cargo run --profile bench -p tower-triage-instructions -- --check # fails if one has grown by more than 3 %
//! cargo run --profile bench -p tower-triage-instructions -- --save  # writes the figures that `--check` reads
//! ```
//!
//! The rows of a router are in a program of their own, `route.rs`, because the queue is other code with the
//! feature `route`.
//!
//! A figure is the difference between a long run and a short one, divided by the difference of their requests, less the same
//! of the service behind the limit. So neither other load on the machine nor the start of the program is in it. Valgrind makes
//! the program about 50 times slower, so the clock of the requests moves only when a service says so. Each request of a crowd
//! moves it by 1 ms, so the others wait for longer than that, and their responses have a `server-timing`.

mod figures;
mod report;
mod subjects;
#[path = "../support/shared/mod.rs"]
#[allow(unused_imports)] // it has more than is used here
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    report::main("figures.txt", subjects::rows(), subjects::run)
}

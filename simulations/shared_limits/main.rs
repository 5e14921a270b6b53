//! Many gateways that share the slots of many endpoints: how many of the slots are in use, whether an endpoint ever gets more
//! requests than it has slots, and what Redis has to do for it.
//!
//! ```sh
//! cargo run --release -p tower-triage-simulations --bin shared_limits              # all rows, in some minutes
//! cargo run --release -p tower-triage-simulations --bin shared_limits -- 1         # the first row alone
//! ```
//!
//! Time is virtual. The gateways run the library's own [`Share`], the ledgers are its [`Ledger`], the model of the script in
//! Redis; `simulation.rs` has the rest: requests, a network that takes half a millisecond, and the looks of each gateway at
//! what waits, 5 ms apart.
//!
//! The busiest gateway gets ten times the arrivals of the least busy one, on all endpoints. Together they get 1.5 times what
//! the slots can serve; what has waited for 30 s goes. Each minute a gateway dies with all that it runs, and a new one takes
//! its place.
//!
//! [`Share`]: tower_triage_redis::shared_limits::Share
//! [`Ledger`]: tower_triage_redis::shared_limits::Ledger

mod simulation;
#[cfg(test)]
mod tests;

use std::io::{Write, stdout};
use std::process::ExitCode;

use simulation::{Figures, SECOND, Setting, simulate};

/// Gateways, endpoints, slots of an endpoint, seconds of a request, simulated seconds.
const ROWS: [(usize, usize, u32, f64, u64); 6] = [
    (100, 1_000, 8, 5.0, 600),
    (100, 1_000, 8, 1.0, 120),
    (100, 1_000, 8, 20.0, 600),
    (100, 1_000, 32, 5.0, 120),
    (100, 1_000, 32, 20.0, 300),
    // One of ten shards of the first row.
    (10, 100, 8, 5.0, 600),
];

fn main() -> ExitCode {
    let number = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let alone = number.and_then(|number: usize| ROWS.get(number.checked_sub(1)?));
    let rows = alone.map_or(&ROWS[..], std::slice::from_ref);
    let mut out = stdout();
    let head = "gateways  endpoints  slots  request   in use  most of an endpoint  served/s  questions/s  notices/s  questions per request  \
                served of the busiest and the least busy";
    _ = writeln!(out, "{head}");
    let mut is_fine = true;
    for &(gateways, endpoints, slots, seconds, measured) in rows {
        let setting = Setting {
            gateways,
            endpoints,
            // Each gateway lives for as long, however many there are.
            death: 6_000 * SECOND / gateways as u64,
            slots,
            seconds,
            measured,
            ..Setting::default()
        };
        let figures = simulate(&setting);
        _ = writeln!(out, "{}", row(&setting, &figures));
        is_fine &= figures.most <= slots && figures.in_use >= 0.95;
    }
    match is_fine {
        true => ExitCode::SUCCESS,
        false => {
            _ = writeln!(
                out,
                "an endpoint had too many requests, or too few slots were in use"
            );
            ExitCode::FAILURE
        }
    }
}

fn row(setting: &Setting, figures: &Figures) -> String {
    format!(
        "{:8}  {:9}  {:5}  {:5} s  {:6.2}%  {:19}  {:8.0}  {:11.0}  {:9.0}  {:21.2}  {:.0}% {:.0}%",
        setting.gateways,
        setting.endpoints,
        setting.slots,
        setting.seconds,
        100.0 * figures.in_use,
        figures.most,
        figures.served,
        figures.questions,
        figures.notices,
        figures.questions / figures.served,
        100.0 * figures.busiest,
        100.0 * figures.least_busy,
    )
}

//! The table of a program, and the comparison with the figures that are kept in the repository.

use std::collections::HashMap;
use std::process::{Command, ExitCode};

use crate::figures;

/// A row of the table. The figures are those of `base` less.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) subject: &'static str,
    pub(crate) base: Option<&'static str>,
    pub(crate) peers: &'static [(&'static str, &'static str)],
}

/// The requests of a short run and of a long one.
const RUNS: [u64; 2] = [1_280, 3_840];

/// Runs the subject that the arguments name, or reports all rows. The figures are kept in `file`.
pub(crate) fn main(file: &str, rows: Vec<Row>, run: fn(&str, u64)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["run", subject, n] => {
            run(subject, n.parse().expect("a number of requests"));
            ExitCode::SUCCESS
        }
        [] => report(file, rows, Mode::Print),
        ["--check"] => report(file, rows, Mode::Check),
        ["--save"] => report(file, rows, Mode::Save),
        _ => {
            eprintln!("the arguments are none, --check or --save");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Print,
    Check,
    Save,
}

fn report(file: &str, rows: Vec<Row>, mode: Mode) -> ExitCode {
    let known = figures::read(file);
    let mut counts = Counts::default();
    let mut figures = Vec::new();
    let mut has_grown = false;
    println!(
        "{:<58} {:>7} {:>8}   peers",
        "instructions a request", "now", "file"
    );
    for Row {
        name,
        subject,
        base,
        peers,
    } in rows
    {
        let base = base.map_or(0.0, |base| counts.of(base));
        let now = (counts.of(subject) - base).round();
        let before = known.of(subject);
        let peers: Vec<String> = peers
            .iter()
            .map(|(name, peer)| format!("{name} {:.0}", counts.of(peer) - base))
            .collect();
        let grown = before.is_some_and(|before| now > before * 1.03 + 1.0);
        println!(
            "{name:<58} {now:>7.0} {:>8}   {}{}",
            before.map_or_else(|| "-".to_owned(), |before| format!("{before:.0}")),
            peers.join(", "),
            if grown { "   GROWN" } else { "" },
        );
        has_grown |= grown;
        figures.push((subject, now));
    }
    match mode {
        Mode::Print => {}
        Mode::Save => figures::write(file, &figures),
        Mode::Check if !known.are_of_this_compiler() => {
            println!("The figures in the file are of another compiler, so nothing is checked.");
        }
        Mode::Check if has_grown => {
            eprintln!(
                "A request costs over 3 % more than the file says. If that is meant, save the figures by --save."
            );
            return ExitCode::FAILURE;
        }
        Mode::Check => {}
    }
    ExitCode::SUCCESS
}

/// The instructions of one request of each subject that was counted.
#[derive(Default)]
struct Counts(HashMap<&'static str, f64>);

impl Counts {
    /// Returns the instructions of one request of a subject, and counts them once.
    fn of(&mut self, subject: &'static str) -> f64 {
        *self.0.entry(subject).or_insert_with(|| {
            let [short, long] = RUNS.map(|n| count_run(subject, n));
            (long - short) / (RUNS[1] - RUNS[0]) as f64
        })
    }
}

/// Returns the instructions of a run of `n` requests of a subject.
fn count_run(subject: &str, n: u64) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(program)
        .args(["run", subject, &n.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{subject}: {text}");
    let line = text
        .lines()
        .find(|line| line.contains("I ") && line.contains("refs:"));
    let number = line.and_then(|line| line.rsplit(' ').next());
    let number = number.and_then(|number| number.replace(',', "").parse().ok());
    number.unwrap_or_else(|| panic!("valgrind says no number of instructions: {text}"))
}

//! Two things side by side, in one run.
//!
//! A figure from one run against a figure from another compares the machine with itself at two moments.
//! Here every pass runs each subject once, in turn, and what is printed is the median of the passes.

#![allow(dead_code, unreachable_pub)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A subject: runs `n` operations.
pub struct Subject<'a> {
    pub name: &'a str,
    pub run: Box<dyn FnMut(u64) + 'a>,
}

pub fn subject<'a>(name: &'a str, run: impl FnMut(u64) + 'a) -> Subject<'a> {
    Subject {
        name,
        run: Box::new(run),
    }
}

/// The median time of one operation of each subject, in nanoseconds.
pub fn measure(subjects: &mut [Subject<'_>], passes: usize, operations: u64) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(passes); subjects.len()];
    for pass in 0..passes + 2 {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (subject.run)(operations);
            let nanos = start.elapsed().as_nanos() as f64 / operations as f64;
            // The first passes warm up.
            if pass >= 2 {
                times.push(nanos);
            }
        }
    }
    times.into_iter().map(median).collect()
}

/// Prints each subject's median, less what the first one costs, as a ratio to the second one's.
pub fn compare(
    title: &str,
    goal: &str,
    subjects: &mut [Subject<'_>],
    passes: usize,
    operations: u64,
) {
    let times = measure(subjects, passes, operations);
    let (base, peer) = (times[0], times[1] - times[0]);
    println!("\n{title}  (goal: {goal})");
    println!("  {:<44} {:>8.1} ns", subjects[0].name, base);
    for (subject, time) in subjects.iter().zip(&times).skip(1) {
        let net = time - base;
        println!("  {:<44} {net:>8.1} ns   {:.2}×", subject.name, net / peer);
    }
}

pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs a future that never has to wait.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it was not to wait"),
    }
}

//! Arrival processes: each a rate that changes with time, and Poisson arrivals at that rate.

use std::f64::consts::TAU;

use fastrand::Rng;

/// A rate, in arrivals per second, for some seconds.
pub(crate) struct Piece {
    pub(crate) seconds: f64,
    pub(crate) rate: f64,
}

/// `count` arrivals, in seconds from the start, at the rates of `pieces`; scaled to `mean_rate` over all.
///
/// The scaling makes the load of a run exact, whatever the seed.
pub(crate) fn arrivals(
    rng: &mut Rng,
    count: usize,
    mean_rate: f64,
    mut next_piece: impl FnMut(&mut Rng) -> Piece,
) -> Vec<f64> {
    let mut times = Vec::with_capacity(count);
    let mut began = 0.0;
    while times.len() < count {
        let piece = next_piece(rng);
        let mut at = exponential(rng, piece.rate);
        // Poisson arrivals have no memory: they may start anew in each piece.
        while at < piece.seconds && times.len() < count {
            times.push(began + at);
            at += exponential(rng, piece.rate);
        }
        began += piece.seconds;
    }
    let scale = times
        .last()
        .map_or(1.0, |last| count as f64 / mean_rate / last);
    times.iter_mut().for_each(|at| *at *= scale);
    times
}

/// A constant rate.
pub(crate) fn constant(rate: f64) -> impl FnMut(&mut Rng) -> Piece {
    move |_| Piece { seconds: 1.0, rate }
}

/// Bursts of 5 s at 5 times the rate of the 15 s between them.
pub(crate) fn on_off(rate: f64) -> impl FnMut(&mut Rng) -> Piece {
    let mut is_on = false;
    move |_| {
        is_on = !is_on;
        match is_on {
            true => Piece {
                seconds: 5.0,
                rate: 2.5 * rate,
            },
            false => Piece {
                seconds: 15.0,
                rate: 0.5 * rate,
            },
        }
    }
}

/// The conversation trace: a rate that changes by a quarter every 4 s.
///
/// In the trace it drifts within minutes, too. But answers are shorter when requests are many, so the work does not.
pub(crate) fn conversation(rate: f64) -> impl FnMut(&mut Rng) -> Piece {
    const JITTER: f64 = 0.28;
    move |rng| Piece {
        seconds: 4.0,
        rate: rate * (JITTER * normal(rng)).exp(),
    }
}

/// The bursty trace: idle for a minute at a time, and in between a rate that changes much from second to second.
pub(crate) fn bursty() -> impl FnMut(&mut Rng) -> Piece {
    const IDLE_SECONDS: f64 = 57.0;
    const BUSY_SECONDS: f64 = 30.0;
    const PIECE_SECONDS: f64 = 3.0;
    const RATE: f64 = 4.95;
    const JITTER: f64 = 0.85;
    let mut busy_left = 0.0;
    move |rng| {
        if busy_left <= 0.0 {
            busy_left = exponential(rng, 1.0 / BUSY_SECONDS);
            return Piece {
                seconds: exponential(rng, 1.0 / IDLE_SECONDS),
                rate: 0.0,
            };
        }
        busy_left -= PIECE_SECONDS;
        Piece {
            seconds: PIECE_SECONDS,
            rate: RATE * (JITTER * normal(rng)).exp(),
        }
    }
}

/// Exponentially distributed with this rate; infinite at rate 0.
pub(crate) fn exponential(rng: &mut Rng, rate: f64) -> f64 {
    -(1.0 - rng.f64()).ln() / rate
}

/// Normally distributed with mean 0 and variance 1 (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
}

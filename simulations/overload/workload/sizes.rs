//! Sizes of requests: tokens and service times.

use std::time::Duration;

use fastrand::Rng;

/// A distribution by its quantiles, from 0 to 1, geometrically interpolated.
pub(crate) type Quantiles = [(f64, f64)];

/// The conversation trace, measured.
pub(crate) const CONVERSATION_INPUT: &Quantiles = &[
    (0.0, 10.0),
    (0.1, 207.0),
    (0.25, 396.0),
    (0.5, 1020.0),
    (0.75, 1189.0),
    (0.9, 2735.0),
    (0.99, 4142.0),
    (1.0, 6300.0),
];
pub(crate) const CONVERSATION_OUTPUT: &Quantiles = &[
    (0.0, 7.0),
    (0.1, 54.0),
    (0.25, 85.0),
    (0.5, 129.0),
    (0.6, 177.0),
    (0.75, 395.0),
    (0.9, 424.0),
    (0.99, 601.0),
    (1.0, 1000.0),
];
/// Correlates the two by −0.11.
pub(crate) const CONVERSATION_OPPOSED: f64 = 0.15;

/// The bursty trace; the ends are guesses.
pub(crate) const BURSTY_INPUT: &Quantiles = &[
    (0.0, 5.0),
    (0.1, 147.0),
    (0.5, 1469.0),
    (0.9, 5194.0),
    (0.99, 7436.0),
    (1.0, 7500.0),
];
pub(crate) const BURSTY_OUTPUT: &Quantiles = &[
    (0.0, 1.0),
    (0.1, 7.0),
    (0.5, 13.0),
    (0.9, 55.0),
    (0.99, 252.0),
    (1.0, 400.0),
];

/// Input and output tokens of a request. A share of the requests, `opposed`, has an input of the rank that its output has
/// from above; in the others, the two are independent.
pub(crate) fn tokens(
    rng: &mut Rng,
    input: &Quantiles,
    output: &Quantiles,
    opposed: f64,
) -> (u32, u32) {
    let rank = rng.f64();
    let output_rank = match rng.f64() < opposed {
        true => 1.0 - rank,
        false => rng.f64(),
    };
    let size = |quantiles, rank| quantile(quantiles, rank).round() as u32;
    (size(input, rank), size(output, output_rank))
}

/// How long a slot of a language model works for a request.
pub(crate) fn llm_service(input_tokens: u32, output_tokens: u32) -> Duration {
    Duration::from_micros(
        50_000 + 100 * u64::from(input_tokens) + 20_000 * u64::from(output_tokens),
    )
}

/// The value at a rank from 0 to 1.
fn quantile(quantiles: &Quantiles, rank: f64) -> f64 {
    let next = quantiles.partition_point(|(below, _)| *below <= rank);
    let Some(&(high_rank, high)) = quantiles.get(next) else {
        return quantiles.last().map_or(0.0, |(_, most)| *most);
    };
    let Some(&(low_rank, low)) = next.checked_sub(1).and_then(|i| quantiles.get(i)) else {
        return high;
    };
    let way = (rank - low_rank) / (high_rank - low_rank);
    low * (high / low).powf(way)
}

/// Pareto's distribution with shape 1.5, cut off: most are short, and one in a thousand is a hundred times as long.
pub(crate) fn heavy_tailed(rng: &mut Rng) -> Duration {
    const SHAPE: f64 = 1.5;
    const SHORTEST: f64 = 0.07;
    const LONGEST: f64 = 20.0;
    let seconds = SHORTEST * (1.0 - rng.f64()).powf(-1.0 / SHAPE);
    Duration::from_secs_f64(seconds.min(LONGEST))
}

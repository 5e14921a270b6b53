//! Sense in overload: which arrivals are refused because they would wait too long, and which waiters are not worth a slot.
//!
//! A room that is bounded by number alone is full in overload, and its head has waited for nearly as long as its caller
//! does: the slots are spent on requests whose callers are about to leave. What matters is time. So the room measures how
//! fast its pools hand slots over ([`pool_load`]), how long requests are served ([`service_times`]) and how long callers
//! wait ([`patience`]), and predicts the wait of each arrival ([`wait`]).

mod patience;
mod pool_load;
mod reserves;
mod served;
mod service_times;
pub(crate) mod wait;

use super::nanos::{NEVER, Nanos, span};
use super::{PoolId, TargetWait};
use patience::Patience;
use pool_load::PoolLoad;
pub(crate) use reserves::Reserves;
pub use served::Served;
use service_times::ServiceTimes;

/// What a room measures.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// By pool.
    pools: Vec<PoolLoad>,
    levels: usize,
    pub(crate) service: ServiceTimes,
    pub(crate) patience: Patience,
}

/// An arrival that found no slot, as far as its wait is concerned. Times are in seconds; infinite without a bound.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The pool whose measurements are asked: the first that could serve the request.
    pub(crate) pool: PoolId,
    pub(crate) level: u8,
    /// Whether no waiter goes before it.
    pub(crate) is_first: bool,
    /// Whether its tenant has less than its share of the room.
    pub(crate) is_modest: bool,
    /// The wait that the work ahead leads to, if that is known.
    pub(crate) predicted: Option<f64>,
    /// How long the caller waits for the beginning of an answer.
    pub(crate) patience: f64,
    /// The longest wait after which the answer still comes in time.
    pub(crate) longest: f64,
}

/// The automatic target's share of the patience.
const AUTO: f64 = 0.2;
/// For how many targets after the room was empty a burst is let in. With the automatic target that is the patience: who
/// waits when it is over arrived after the burst began.
const BURST: f64 = 5.0;

impl Overload {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            levels,
            ..Self::default()
        }
    }

    /// For a configuration with this many levels.
    pub(crate) fn set_levels(&mut self, levels: usize) {
        if self.levels != levels {
            self.levels = levels;
            self.pools
                .iter_mut()
                .for_each(|pool| pool.set_levels(levels));
        }
    }

    /// The measurements of a pool. Pools are numbered densely.
    #[inline]
    pub(crate) fn pool_mut(&mut self, PoolId(pool): PoolId) -> &mut PoolLoad {
        let (pool, levels) = (pool as usize, self.levels);
        if pool >= self.pools.len() {
            self.pools.resize_with(pool + 1, || PoolLoad::new(levels));
        }
        &mut self.pools[pool]
    }

    /// How many slots a pool hands over per second, if that is known.
    pub(crate) fn per_second(&self, PoolId(pool): PoolId) -> Option<f64> {
        self.pools.get(pool as usize)?.per_second()
    }

    /// How many slots all pools hand over per second, if that is known of any.
    pub(crate) fn total_per_second(&self) -> Option<f64> {
        let known = self.pools.iter().filter_map(PoolLoad::per_second);
        Some(known.sum()).filter(|&total| total > 0.0)
    }

    /// Whether an arrival is let in. Returns the wait as it was predicted, for [`PoolLoad::on_wait_ended`]; 0 if it is
    /// not known.
    ///
    /// # Errors
    ///
    /// By how many seconds its wait would exceed the target.
    pub(crate) fn admit(
        &mut self,
        arriving: &Arriving,
        target: TargetWait,
        now: Nanos,
    ) -> Result<f64, f64> {
        let load = self.pool_mut(arriving.pool);
        if arriving.is_first {
            load.on_empty(arriving.level, now);
        }
        let Some(predicted) = arriving.predicted else {
            return Ok(0.0);
        };
        let target = match target {
            TargetWait::Auto => AUTO * arriving.patience,
            TargetWait::After(target) => target.as_secs_f64(),
            TargetWait::Off => return Ok(predicted),
        };
        let wait = predicted * load.correction(arriving.level, predicted);
        let excess = wait - target;
        // Its answer would come too late, burst or not.
        if wait > arriving.longest {
            return Err(excess.max(wait - arriving.longest));
        }
        if excess <= 0.0 || load.was_empty_since(arriving.level, since(now, BURST * target)) {
            return Ok(predicted);
        }
        // What makes the room overfull is refused first.
        let tolerated = if arriving.is_modest { target } else { 0.0 };
        let probability = ((excess - tolerated) / target).clamp(0.0, 1.0);
        match load.refuses(arriving.level, probability) {
            true => Err(excess),
            false => Ok(predicted),
        }
    }
}

/// The instant so many seconds before `now`. 0, which is before every instant, if that is too many.
fn since(now: Nanos, seconds: f64) -> Nanos {
    let ago = std::time::Duration::try_from_secs_f64(seconds);
    now.saturating_sub(ago.map_or(NEVER, span))
}

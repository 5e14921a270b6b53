//! What is known of a full room without its lock.
//!
//! A full room says no far more often than yes. If each no took the lock, those who are turned away would
//! stand in the way of those who leave, and would pay for a chair that they do not get.
//!
//! So whoever leaves the lock with every chair taken puts up a notice: until when that is certain, and how
//! fast the room drains. It holds while the mark in `waiting` does that stands for it.

use std::time::{Duration, Instant};

use crate::admit::{Capacity, WaitingRoom, time_for};
use crate::clock;
use crate::sync::{AtomicU64, Relaxed};

/// The notice, and how many were turned away by it.
pub(crate) struct Full {
    epoch: Instant,
    /// When the first wait of those inside ends, in nanoseconds from `epoch`: then a chair is free, even if
    /// nobody has noticed.
    until: AtomicU64,
    /// Departures per second, as the bits of an `f64`; 0 if unknown.
    drain_rate: AtomicU64,
    turned_away: AtomicU64,
}

/// There is no end.
const FOREVER: u64 = u64::MAX;

impl Full {
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            until: AtomicU64::new(0),
            drain_rate: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
        }
    }

    /// Puts up the notice. The mark that is set after it makes it known.
    pub(crate) fn post<C: Capacity, W>(&self, room: &WaitingRoom<C, W>) {
        let until = room.next_timeout().map_or(FOREVER, |end| self.nanos(end));
        self.until.store(until, Relaxed);
        let rate = room.departure_rate().unwrap_or(0.0);
        self.drain_rate.store(rate.to_bits(), Relaxed);
    }

    /// Whether the notice, whose mark was just seen, still holds.
    pub(crate) fn holds(&self) -> bool {
        match self.until.load(Relaxed) {
            FOREVER => true,
            until => self.nanos(clock::now()) < until,
        }
    }

    pub(crate) fn turn_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Relaxed)
    }

    /// How long one would wait whom `ahead` go before.
    pub(crate) fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        match f64::from_bits(self.drain_rate.load(Relaxed)) {
            0.0 => None,
            rate => time_for(ahead, rate),
        }
    }

    fn nanos(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(FOREVER)
    }
}

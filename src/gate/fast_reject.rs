//! Rejections from a full waiting room without its lock.
//!
//! A room that is full rejects far more often than it admits. If each rejection took the lock, rejected requests would
//! slow down the requests that leave the room.
//!
//! So each change under the lock that leaves the room full writes a [`FullNotice`]. It holds the time until which the
//! room is certainly full, and the rate at which the room drains. Its values are valid only while the `FULL` flag is
//! set in the gate's waiting word.

use std::sync::atomic::AtomicU64 as Counter; // outside of loom's models, because other data does not depend on it
use std::time::{Duration, Instant};

use crate::admit::nanos::span;
use crate::admit::{Capacity, MAX_LEVELS, WaitingRoom, time_for};
use crate::clock;
use crate::sync::{AtomicU64, Relaxed};

/// The rejection of a request without the lock, whatever the request's ticket says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomFull {
    /// The time that one more request would have waited, if it is known.
    pub(crate) estimated_wait: Option<Duration>,
}

/// The values of a full room, and the number of requests that were rejected by them.
pub(crate) struct FullNotice {
    epoch: Instant,
    /// The end of the first wait, in nanoseconds from `epoch`. A place is free from then on, even if the timer has yet
    /// to fire.
    until: AtomicU64,
    /// Departures per second, as the bits of an `f64`; 0 if unknown.
    departure_rate: AtomicU64,
    /// The highest level for which the room is full. Requests of higher levels may displace a waiter.
    level: AtomicU64,
    /// The number of rejections by level. The last entry counts requests whose level is not known.
    rejected: [Counter; MAX_LEVELS + 1],
}

/// The value of `until` if all waits in the room are endless.
const FOREVER: u64 = u64::MAX;

impl FullNotice {
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            until: AtomicU64::new(0),
            departure_rate: AtomicU64::new(0),
            level: AtomicU64::new(0),
            rejected: [const { Counter::new(0) }; MAX_LEVELS + 1],
        }
    }

    /// Writes the values for a room that is full from `level` downwards. The `FULL` flag is set after this, in the same
    /// critical section.
    pub(crate) fn write<C: Capacity, W>(&self, room: &WaitingRoom<C, W>, level: u8) {
        let until = room.next_timeout().map_or(FOREVER, |end| self.nanos(end));
        // Relaxed, because the store of the flag that follows publishes all values.
        self.level.store(level.into(), Relaxed);
        self.until.store(until, Relaxed);
        let rate = room.departure_rate().unwrap_or(0.0);
        self.departure_rate.store(rate.to_bits(), Relaxed);
    }

    /// Rejects a request that found the `FULL` flag and `waiting` requests before it.
    ///
    /// Returns `None` if a wait has ended by now, or if the request may be of a level that displaces a waiter.
    pub(crate) fn reject(
        &self,
        waiting: usize,
        level: impl FnOnce() -> Option<u8>,
    ) -> Option<RoomFull> {
        // Relaxed for the same reason as `until` below. The value is nearly always 0, or the lowest level.
        let from = self.level.load(Relaxed);
        let level = level();
        if from > 0 && level.is_none_or(|level| u64::from(level) < from) {
            return None;
        }
        // Relaxed, because the flag was read first with sequentially consistent ordering.
        let is_full = match self.until.load(Relaxed) {
            FOREVER => true, // saves a read of the clock
            until => self.nanos(clock::now()) < until,
        };
        if !is_full {
            return None;
        }
        self.count(level);
        Some(RoomFull {
            estimated_wait: self.estimated_wait(waiting + 1),
        })
    }

    /// Counts a request that was rejected without the lock.
    pub(crate) fn count(&self, level: Option<u8>) {
        // The last counter is for requests of an unknown level, and for levels that are out of range.
        let counter = level.map_or(MAX_LEVELS, usize::from).min(MAX_LEVELS);
        self.rejected[counter].fetch_add(1, Relaxed); // relaxed, because it is a statistic
    }

    /// Returns the number of requests that were rejected without the lock.
    pub(crate) fn rejected(&self) -> u64 {
        let all = self.rejected.iter();
        all.map(|rejected| rejected.load(Relaxed)).sum() // relaxed, because it is a statistic
    }

    /// Returns the number of requests of this level that were rejected without the lock, as far as their level was
    /// known.
    pub(crate) fn rejected_at(&self, level: usize) -> u64 {
        let rejected = self.rejected[..MAX_LEVELS].get(level);
        rejected.map_or(0, |rejected| rejected.load(Relaxed)) // relaxed, because it is a statistic
    }

    /// Moves the counts into the room, which then gives its levels new names.
    ///
    /// A request that is rejected meanwhile may be counted for the level that has its number afterwards.
    pub(crate) fn hand_over<C: Capacity, W>(&self, room: &mut WaitingRoom<C, W>) {
        for (level, rejected) in self.rejected.iter().enumerate() {
            room.count_full(level, rejected.swap(0, Relaxed)); // relaxed, because it is a statistic
        }
    }

    /// Returns the time that the last of `count` waiters would wait, if the departure rate is known.
    fn estimated_wait(&self, count: usize) -> Option<Duration> {
        // Relaxed, because an estimate may be a little old.
        match f64::from_bits(self.departure_rate.load(Relaxed)) {
            0.0 => None,
            rate => time_for(count, rate),
        }
    }

    /// Returns the nanoseconds from `epoch` to `instant`, which is 0 for an earlier instant.
    fn nanos(&self, instant: Instant) -> u64 {
        span(instant.saturating_duration_since(self.epoch))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use fastrand::Rng;

    use crate::admit::{
        Discipline, Priority, PriorityLevels, RejectReason, SlotPool, Ticket, WaitingRoomConfig,
    };
    use crate::clock;
    use crate::gate::{Acquire, Gate, Permit};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fast_rejected_request_would_be_rejected_under_the_lock() {
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let gate = Gate::new(SlotPool::new(2), config(&mut rng));
            let (mut waiting, mut held) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                match rng.u8(..9) {
                    0..4 => match arrive(&mut rng, &gate) {
                        (_, Poll::Ready(answer)) => held.extend(answer),
                        (acquire, Poll::Pending) => waiting.push(acquire),
                    },
                    4 if !held.is_empty() => drop(held.swap_remove(rng.usize(..held.len()))),
                    5 if !waiting.is_empty() => {
                        drop(waiting.swap_remove(rng.usize(..waiting.len())));
                    }
                    6 => tokio::time::advance(Duration::from_millis(rng.u64(..4_000))).await,
                    7 if rng.u8(..4) == 0 => gate.reconfigure(config(&mut rng)),
                    8 if !waiting.is_empty() => {
                        let nth = rng.usize(..waiting.len());
                        let mut ticket = Ticket::from(Priority(rng.u8(..3)));
                        ticket.patient = rng.bool();
                        waiting[nth].set_ticket(ticket, ());
                    }
                    _ => tokio::task::yield_now().await,
                }
                waiting.retain_mut(|acquire| match poll(acquire) {
                    Poll::Ready(answer) => {
                        held.extend(answer);
                        false
                    }
                    Poll::Pending => true,
                });
            }
        }
    }

    type Answer = Result<Permit<SlotPool>, RejectReason>;

    fn arrive(rng: &mut Rng, gate: &Gate<SlotPool>) -> (Acquire<SlotPool>, Poll<Answer>) {
        let age = rng.bool().then(|| Duration::from_secs(rng.u64(..20)));
        let now = clock::now();
        let mut ticket = Ticket::new(Priority(rng.u8(..3)), now - age.unwrap_or_default());
        ticket.requeued = age.is_some();
        // A full room has a place for a request that had a slot, which may also have been promoted.
        let level = age.is_none().then_some(ticket.priority.0);
        let is_full = gate.fast_reject(|| level).is_some();
        let mut acquire = gate.acquire(ticket, ());
        let polled = poll(&mut acquire);
        assert!(!is_full || age.is_some() || matches!(polled, Poll::Ready(Err(_))));
        (acquire, polled)
    }

    fn poll(acquire: &mut Acquire<SlotPool>) -> Poll<Answer> {
        Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn config(rng: &mut Rng) -> WaitingRoomConfig {
        let disciplines = [Discipline::Fifo, Discipline::Fair, Discipline::Deadline];
        let seconds = |rng: &mut Rng| rng.bool().then(|| Duration::from_secs(rng.u64(1..30)));
        WaitingRoomConfig::default()
            .levels(PriorityLevels::new(["a", "b", "c"], "c").expect("valid"))
            .max_size(rng.usize(..5))
            .max_wait(seconds(rng))
            .promote_after(seconds(rng))
            .discipline(disciplines[rng.usize(..3)])
            .displace(rng.bool())
    }
}

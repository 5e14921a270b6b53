//! What is known of a full waiting room without its lock.
//!
//! A room that is full rejects far more often than it admits. If each rejection took the lock, rejected requests would
//! slow down those that leave, and pay for a place that they do not get.
//!
//! So each change under the lock that leaves the room full writes a [`FullNotice`]: until when the room is certainly
//! full, and how fast it drains. Its values are valid only while the `FULL` flag is set in the gate's waiting word.

use std::sync::atomic::AtomicU64 as Counter; // not of the models: it orders nothing
use std::time::{Duration, Instant};

use crate::admit::{Capacity, MAX_LEVELS, WaitingRoom, time_for};
use crate::clock;
use crate::sync::{AtomicU64, Relaxed};

/// The room was full: the request is rejected whatever its ticket says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomFull {
    /// How long one more request would have waited, if that is known.
    pub(crate) estimated_wait: Option<Duration>,
}

/// The values of a full room, and how many requests were rejected by them.
pub(crate) struct FullNotice {
    epoch: Instant,
    /// When the first of the waits ends, in nanoseconds from `epoch`. Then a place is free, even if no timer has
    /// fired yet.
    until: AtomicU64,
    /// Departures per second, as the bits of an `f64`; 0 if unknown.
    departure_rate: AtomicU64,
    /// The level from which on, downwards, the room is full: higher ones may displace a waiter.
    level: AtomicU64,
    /// By level, and last those of which the level is not known.
    rejected: [Counter; MAX_LEVELS + 1],
}

/// No wait in the room ends by itself.
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

    /// Writes the values. The `FULL` flag is set after this, in the same critical section.
    pub(crate) fn write<C: Capacity, W>(&self, room: &WaitingRoom<C, W>, level: u8) {
        let until = room.next_timeout().map_or(FOREVER, |end| self.nanos(end));
        // Relaxed: the store of the flag that follows publishes all values.
        self.level.store(level.into(), Relaxed);
        self.until.store(until, Relaxed);
        let rate = room.departure_rate().unwrap_or(0.0);
        self.departure_rate.store(rate.to_bits(), Relaxed);
    }

    /// Rejects a request that found the `FULL` flag and `waiting` requests before it, unless a wait is over by now, or it
    /// is, or may be, of a level that displaces a waiter.
    pub(crate) fn reject(
        &self,
        waiting: usize,
        level: impl FnOnce() -> Option<u8>,
    ) -> Option<RoomFull> {
        // Relaxed, as below. Nearly always 0, or the lowest level.
        let from = self.level.load(Relaxed);
        let level = level();
        if from > 0 && level.is_none_or(|level| u64::from(level) < from) {
            return None;
        }
        // Relaxed: the flag was read first, sequentially consistent.
        let is_full = match self.until.load(Relaxed) {
            FOREVER => true, // no need to read the clock
            until => self.nanos(clock::now()) < until,
        };
        if !is_full {
            return None;
        }
        let counter = level.map_or(MAX_LEVELS, usize::from).min(MAX_LEVELS);
        self.rejected[counter].fetch_add(1, Relaxed); // a statistic
        Some(RoomFull {
            estimated_wait: self.estimated_wait(waiting + 1),
        })
    }

    /// How many requests were rejected without the lock.
    pub(crate) fn rejected(&self) -> u64 {
        let all = self.rejected.iter();
        all.map(|rejected| rejected.load(Relaxed)).sum() // a statistic
    }

    /// The same of one level, as far as it was known.
    pub(crate) fn rejected_at(&self, level: usize) -> u64 {
        let rejected = self.rejected[..MAX_LEVELS].get(level);
        rejected.map_or(0, |rejected| rejected.load(Relaxed)) // a statistic
    }

    /// Moves the counts into the room, which gives its levels new names. A request that is rejected meanwhile may be counted
    /// for the level that has its number afterwards.
    pub(crate) fn hand_over<C: Capacity, W>(&self, room: &mut WaitingRoom<C, W>) {
        for (level, rejected) in self.rejected.iter().enumerate() {
            room.count_full(level, rejected.swap(0, Relaxed)); // a statistic
        }
    }

    /// How long the last of `count` waiters would wait.
    fn estimated_wait(&self, count: usize) -> Option<Duration> {
        // Relaxed: an estimate may be a little old.
        match f64::from_bits(self.departure_rate.load(Relaxed)) {
            0.0 => None,
            rate => time_for(count, rate),
        }
    }

    fn nanos(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(FOREVER)
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
        // One that arrived before may have been promoted.
        let level = age.is_none().then_some(ticket.priority.0);
        let is_full = gate.fast_reject(|| level).is_some();
        let mut acquire = gate.acquire(ticket, ());
        let polled = poll(&mut acquire);
        assert!(!is_full || matches!(polled, Poll::Ready(Err(_))));
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

//! Stalls: the time for which a slot waits for its client, and the recall of slots whose clients stall.
//!
//! A client that does not send the rest of its request, that does not read its response, or that holds a websocket on
//! which nothing happens costs its tenant little, and could keep a slot from all others for ever. So while another
//! tenant waits that is below its share, the slot that has waited for its client the longest is recalled, once that is
//! longer than [`GRACE`] and the time that a slow line would have needed. While no other tenant needs the slot, the
//! client may take its time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::permit::Permit;
use super::state::State;
#[cfg(feature = "route")]
use super::with_lock::WithLock;
use crate::admit::{Capacity, HoldId, PoolId};
use crate::clock;

/// The time for which any slot may wait for its client.
const GRACE: Duration = Duration::from_secs(5);
/// The rate of the slowest line that is not taken for a stall, in bytes per second.
const SLOWEST: u64 = 16 * 1024;
/// The largest piece for which a slow line gets time.
const LARGEST: usize = 64 * 1024;
/// The time after which an upgraded connection is recalled, whatever passes on it. An answer ends, but such a connection
/// need not.
const UPGRADED: Duration = Duration::from_secs(60);
/// The time between two looks for slots to recall, while requests wait.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Returns the time that the slowest line takes for a piece of so many bytes.
fn time_of(bytes: usize) -> Duration {
    Duration::from_millis(bytes.min(LARGEST) as u64 * 1_000 / SLOWEST)
}

/// The stalls of the request that holds a slot, and the recall of the slot. The waits for the client add up, so that a
/// trickle of bytes does not begin them anew. Of each wait, the time that a slow line takes for the piece does not count.
pub(crate) struct ClientStall {
    clock: Mutex<StallClock>,
    recalled: CancellationToken,
}

#[derive(Debug, Default)]
struct StallClock {
    /// The waits for the client at present, in both directions.
    waits: u8,
    /// The instant from which on they count. It may be in the future.
    since: Option<Instant>,
    /// The length of the earlier waits.
    total: Duration,
    upgraded: Option<Instant>,
}

impl StallClock {
    fn stalled(&self, now: Instant) -> Duration {
        let since = self.since.map(|since| now.saturating_duration_since(since));
        self.total + since.unwrap_or_default()
    }

    /// Returns the time by which the slot is overdue, if other tenants may have it back.
    fn overdue(&self, now: Instant) -> Option<Duration> {
        let stalled = self.stalled(now).checked_sub(GRACE);
        let end = self.upgraded.and_then(|since| since.checked_add(UPGRADED));
        let held = end.and_then(|end| now.checked_duration_since(end));
        stalled.max(held).filter(|overdue| !overdue.is_zero())
    }

    fn begin(&mut self, from: Option<Instant>) {
        self.waits += 1;
        if self.waits == 1 {
            self.since = from;
        }
    }

    fn end(&mut self, bytes: usize, now: Instant) {
        self.waits = self.waits.saturating_sub(1);
        if self.waits == 0
            && let Some(since) = self.since.take()
        {
            let wait = now.saturating_duration_since(since);
            self.total += wait.saturating_sub(time_of(bytes));
        }
    }
}

impl ClientStall {
    pub(crate) fn new() -> Self {
        Self {
            clock: Mutex::default(),
            recalled: CancellationToken::new(),
        }
    }

    /// Begins a wait for the client to take a piece of so many bytes, or to send one if there are none.
    pub(crate) fn begin(&self, bytes: usize) {
        self.begin_after(time_of(bytes));
    }

    /// Begins a wait for the client that counts only from `after` on.
    pub(crate) fn begin_after(&self, after: Duration) {
        let from = clock::now().checked_add(after);
        self.lock().begin(from);
    }

    /// Ends a wait for the client, which has sent so many bytes.
    pub(crate) fn end(&self, bytes: usize) {
        let now = clock::now();
        self.lock().end(bytes, now);
    }

    /// Records that the connection is used for another protocol from now on.
    #[cfg(feature = "client")]
    pub(crate) fn on_upgraded(&self) {
        let now = clock::now();
        self.lock().upgraded = Some(now);
    }

    /// Returns the token that is cancelled when the slot has to come back.
    pub(crate) fn recalled(&self) -> &CancellationToken {
        &self.recalled
    }

    fn lock(&self) -> MutexGuard<'_, StallClock> {
        // Nothing panics while the lock is held, so a poisoned lock is whole.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClientStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStall").finish_non_exhaustive()
    }
}

/// The stalls of the slots that are held, by their holds.
pub(super) type Stalls = HashMap<HoldId, Arc<ClientStall>>;

impl<C: Capacity> Permit<C> {
    /// Returns the stalls of the request that has this slot. `None` if slots are not shared among tenants, because no
    /// slot is recalled then.
    #[cfg(feature = "route")]
    pub(crate) fn client_stall(&self) -> Option<Arc<ClientStall>> {
        let hold = self.origin().account.as_ref()?.share.hold?;
        // A plain lock will do, because this changes only state that is read under the lock.
        let mut state = self.origin().lock();
        let stall = state.stalls.entry(hold);
        Some(Arc::clone(
            stall.or_insert_with(|| Arc::new(ClientStall::new())),
        ))
    }
}

impl<C: Capacity> State<C> {
    /// Returns the stalls whose slots have to come back, as many as tenants below their shares wait for. The longest are
    /// first. They are told without the lock, because their slots come back at once.
    pub(super) fn stalls_to_recall(&self, capacity: &C, now: Instant) -> Vec<Arc<ClientStall>> {
        let mut coming: HashMap<PoolId, usize> = HashMap::new();
        let mut overdue = Vec::new();
        for (&hold, stall) in &self.stalls {
            let overdue_by = stall.lock().overdue(now);
            let Some((overdue_by, (pool, tenant))) = overdue_by.zip(self.room.hold_of(hold)) else {
                continue;
            };
            match stall.recalled.is_cancelled() {
                true => *coming.entry(pool).or_default() += 1,
                false => overdue.push((overdue_by, hold, (pool, tenant), stall)),
            }
        }
        overdue.sort_unstable_by_key(|&(overdue_by, ..)| std::cmp::Reverse(overdue_by));
        // Found once for each tenant and pool, because it takes a look at all waiters.
        let mut wanted = HashMap::new();
        let mut recalled = Vec::new();
        for (_, hold, key, stall) in overdue {
            let wanted = *wanted
                .entry(key)
                .or_insert_with(|| self.room.slots_wanted(capacity, hold));
            let coming = coming.entry(key.0).or_default();
            if wanted > *coming {
                *coming += 1;
                recalled.push(Arc::clone(stall));
            }
        }
        recalled
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns `true` if a client that sends a piece of so many bytes each second is overdue after 12 s.
    fn is_overdue(bytes: usize) -> bool {
        let begin = Instant::now();
        let second = |nth| begin + Duration::from_secs(nth);
        let mut clock = StallClock::default();
        for nth in 0..12 {
            clock.begin(Some(second(nth)));
            clock.end(bytes, second(nth + 1));
        }
        clock.overdue(second(100)).is_some()
    }

    #[test]
    fn a_trickle_does_not_begin_the_wait_anew() {
        assert!(is_overdue(10));
        assert!(is_overdue(SLOWEST as usize / 2));
        assert!(!is_overdue(SLOWEST as usize));
    }

    #[test]
    fn an_upgraded_connection_is_overdue_after_a_minute() {
        let begin = Instant::now();
        let clock = StallClock {
            upgraded: Some(begin),
            ..StallClock::default()
        };
        assert!(clock.overdue(begin + UPGRADED).is_none());
        let later = begin + UPGRADED + Duration::from_secs(1);
        assert_eq!(clock.overdue(later), Some(Duration::from_secs(1)));
    }
}

#[cfg(all(test, feature = "route", not(loom)))]
mod recalls;

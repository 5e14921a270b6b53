//! The tenants that an endpoint served lately, and those that had trouble there: failures and refusals.
//!
//! A request may be the cause of its own failure, and a refusal may mean its tenant's budget alone. So the trouble of one
//! tenant says nothing of the endpoint while the endpoint serves others.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // the mark only saves work
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::latency::CoarseInstant;
use crate::admit::Tenant;

/// The time for which a served request is evidence that the endpoint works.
const LATELY: Duration = Duration::from_secs(10);

/// The time in which one served request stands for all others, unless there was trouble meanwhile.
const SAMPLE_MS: u32 = 100;

/// The latest event of two different tenants, the later one first. So the latest event of any other tenant than a given one
/// is always known.
#[derive(Debug, Default)]
struct LatestTwo([Option<(Tenant, Instant)>; 2]);

impl LatestTwo {
    fn record(&mut self, tenant: Tenant, at: Instant) {
        let [latest, other] = &mut self.0;
        if latest.as_ref().is_some_and(|(last, _)| *last != tenant) {
            *other = latest.take();
        }
        *latest = Some((tenant, at));
    }

    /// Returns the time of the latest event of a tenant other than `tenant`.
    fn of_others(&self, tenant: &Tenant) -> Option<Instant> {
        let mut events = self.0.iter().flatten();
        events.find(|(of, _)| of != tenant).map(|&(_, at)| at)
    }
}

#[derive(Debug, Default)]
struct Events {
    served: LatestTwo,
    troubled: LatestTwo,
}

impl Events {
    /// Records trouble of `tenant`. Returns `true` if it may be the tenant's own: another tenant was served lately, and has
    /// had no trouble since.
    fn trouble(&mut self, tenant: Tenant, now: Instant) -> bool {
        let served = self.served.of_others(&tenant);
        let troubled = self.troubled.of_others(&tenant);
        let is_lately = |at: Instant| now.saturating_duration_since(at) <= LATELY;
        let is_own = served.is_some_and(is_lately) && served > troubled;
        self.troubled.record(tenant, now);
        is_own
    }
}

/// The record of an endpoint's tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantRecord {
    /// The time of the served request that was recorded last, in milliseconds, or 0 if the next one has to be recorded.
    sampled: AtomicU32,
    events: Mutex<Events>,
}

impl TenantRecord {
    /// Records that the endpoint served a request of `tenant`. It asks for the tenant only now and then.
    #[inline]
    pub(crate) fn served(&self, tenant: impl FnOnce() -> Tenant, now: Instant) {
        let CoarseInstant(ms) = CoarseInstant::at(now);
        let sampled = self.sampled.load(Relaxed);
        if sampled == 0 || ms.wrapping_sub(sampled) >= SAMPLE_MS {
            self.sampled.store(ms.max(1), Relaxed);
            let tenant = tenant(); // outside the lock, because it may be a user's code
            self.lock().served.record(tenant, now);
        }
    }

    /// Records trouble of a request of `tenant`. Returns `true` if it may be the tenant's own, so that it says nothing of the
    /// endpoint.
    #[cold]
    pub(crate) fn trouble(&self, tenant: Tenant, now: Instant) -> bool {
        self.sampled.store(0, Relaxed);
        self.lock().trouble(tenant, now)
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns for each trouble if it is the tenant's own. An upper-case letter is a tenant that is served, and a lower-case
    /// one a tenant that has trouble. A space is a second.
    fn own(events: &str) -> String {
        let record = TenantRecord::default();
        let mut now = Instant::now();
        let mut told = String::new();
        for event in events.chars() {
            now += Duration::from_millis(SAMPLE_MS.into());
            let tenant = Tenant::from(event.to_lowercase().to_string());
            match event {
                ' ' => now += SECOND,
                _ if event.is_uppercase() => record.served(|| tenant, now),
                _ => told.push(if record.trouble(tenant, now) {
                    '+'
                } else {
                    '-'
                }),
            }
        }
        told
    }

    #[test]
    fn trouble_is_a_tenants_own_while_others_are_served() {
        for (events, expected) in [
            ("aaaaa", "-----"),
            ("Aaaaaa", "-----"),
            ("Baaaaa", "+++++"),
            ("BaaAaaAaa", "++++++"),
            ("Ba          aa", "+--"),
            ("ABabab", "+---"),
            ("ABabBaaa", "+-+++"),
            ("BbaB          a", "---"),
        ] {
            assert_eq!(own(events), expected, "{events}");
        }
    }

    #[test]
    fn few_served_requests_are_asked_for_their_tenant() {
        let record = TenantRecord::default();
        let now = Instant::now();
        let mut asked = 0;
        for ms in 0..1_000 {
            let tenant = || {
                asked += 1;
                Tenant::NONE
            };
            record.served(tenant, now + Duration::from_millis(ms));
        }
        assert_eq!(asked, 10);
    }
}

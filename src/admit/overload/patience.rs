//! How long callers wait before they give up, learned from those that did.
//!
//! A caller that sends no deadline has one all the same. A room that does not know it serves requests whose callers have
//! just left.
//!
//! The estimate is a quantile of the time after which callers give up, followed step by step: each caller that gives up
//! earlier lowers it a little, each request that lives longer raises it. Requests that are served before say nothing. A
//! room that knows the patience of its callers exhausts it rarely, so the estimate also grows with time: it is tested.

use std::collections::HashMap;

use crate::admit::Tenant;
use crate::admit::nanos::{Nanos, seconds};

/// What is known of all callers, and of the tenants that were seen to give up lately.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    overall: Estimate,
    tenants: HashMap<Tenant, Estimate>,
}

/// The patience of a set of callers.
#[derive(Debug, Clone, Copy, Default)]
struct Estimate {
    seconds: f64,
    /// How many callers gave up so far.
    gave_up: u32,
    /// When the estimate was last changed.
    changed: Nanos,
}

/// The share of callers that may give up earlier.
const QUANTILE: f64 = 0.2;
/// How far one caller moves the estimate: a caller that gives up by `STEP` × (1 − `QUANTILE`) of it.
const STEP: f64 = 0.2;
/// What is taken to be the patience before any caller gave up, where the room has no bound: in seconds.
const LONGEST: f64 = 60.0;
/// Fewer callers say nothing.
const MIN_GAVE_UP: u32 = 8;
/// Without news the estimate doubles in this time, in seconds.
const DOUBLES_IN: f64 = 600.0;
/// How many tenants are known at most.
const MAX_TENANTS: usize = 256;

impl Patience {
    /// How long callers of this tenant wait, in seconds; `None` while that is not known.
    pub(crate) fn of(&self, tenant: &Tenant, now: Nanos) -> Option<f64> {
        let own = match self.tenants.is_empty() {
            // In most rooms: spares the look-up.
            true => None,
            false => self.tenants.get(tenant),
        };
        let known = own.filter(|own| own.gave_up >= MIN_GAVE_UP);
        let estimate = known.unwrap_or(&self.overall);
        (estimate.gave_up >= MIN_GAVE_UP).then(|| estimate.at(now))
    }

    /// A caller of this tenant gave up after so many seconds. `longest`: the bound of the room.
    pub(crate) fn on_gave_up(&mut self, tenant: &Tenant, age: f64, longest: Nanos, now: Nanos) {
        // Also where the room's bound is longer.
        let longest = seconds(longest).min(LONGEST);
        self.overall.on_gave_up(age, longest, now);
        // Requests of no tenant count in `overall` alone.
        if tenant.as_bytes().is_empty() {
            return;
        }
        if !self.tenants.contains_key(tenant) && self.tenants.len() >= MAX_TENANTS {
            self.forget_one();
        }
        let own = self.tenants.entry(tenant.clone()).or_default();
        own.on_gave_up(age, longest, now);
    }

    /// A request of this tenant was answered after so many seconds, and its caller was still there.
    pub(crate) fn on_answered(&mut self, tenant: &Tenant, age: f64, now: Nanos) {
        self.overall.on_stayed(age, now);
        if !self.tenants.is_empty()
            && let Some(own) = self.tenants.get_mut(tenant)
        {
            own.on_stayed(age, now);
        }
    }

    /// Forgets the tenant of which nothing was learned for the longest time. O(tenants that are known).
    fn forget_one(&mut self) {
        let oldest = self.tenants.iter().min_by_key(|(_, own)| own.changed);
        if let Some(oldest) = oldest.map(|(tenant, _)| tenant.clone()) {
            self.tenants.remove(&oldest);
        }
    }
}

impl Estimate {
    fn at(&self, now: Nanos) -> f64 {
        let silence = seconds(now.saturating_sub(self.changed));
        self.seconds * (silence / DOUBLES_IN).exp2()
    }

    fn on_gave_up(&mut self, age: f64, longest: f64, now: Nanos) {
        let old = match self.gave_up {
            // The first one: the estimate starts at the bound and comes down from there.
            0 => longest.max(age),
            _ => self.at(now),
        };
        self.gave_up = self.gave_up.saturating_add(1);
        self.changed = now;
        // Stands still where `QUANTILE` of the callers give up earlier: then the steps down equal the steps up.
        self.seconds = match age < old {
            // Not below the age itself: where all callers have the same patience, that is it.
            true => (old * (1.0 - STEP * (1.0 - QUANTILE))).max(age),
            false => old * (1.0 + STEP * QUANTILE),
        };
    }

    fn on_stayed(&mut self, age: f64, now: Nanos) {
        let old = self.at(now);
        // Before the first caller gave up there is no estimate to raise.
        if self.gave_up > 0 && age >= old {
            self.changed = now;
            self.seconds = old * (1.0 + STEP * QUANTILE);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::nanos::span;
    use std::time::Duration;

    const LONGEST_WAIT: Nanos = 30_000_000_000;

    fn at(second: u64) -> Nanos {
        span(Duration::from_secs(1_000 + second))
    }

    fn gives_up(
        patience: &mut Patience,
        tenant: &'static str,
        ages: impl IntoIterator<Item = f64>,
    ) {
        for age in ages {
            patience.on_gave_up(&tenant.into(), age, LONGEST_WAIT, at(0));
        }
    }

    fn of(patience: &Patience, tenant: &'static str, second: u64) -> Option<f64> {
        patience.of(&tenant.into(), at(second))
    }

    #[test]
    fn the_patience_of_callers_that_all_give_up_after_1_s_is_1_s() {
        let mut patience = Patience::default();
        gives_up(&mut patience, "", [1.0; 7]);
        assert_eq!(of(&patience, "", 0), None);
        gives_up(&mut patience, "", [1.0; 20]);
        let learned = of(&patience, "", 0).unwrap();
        assert!((1.0..=1.05).contains(&learned), "{learned}");
        gives_up(&mut patience, "", [1.0; 1_000]);
        let learned = of(&patience, "", 0).unwrap();
        assert!((1.0..=1.05).contains(&learned), "{learned}");
    }

    #[test]
    fn few_impatient_callers_do_not_speak_for_all() {
        let mut patience = Patience::default();
        // One in twenty leaves after 1 s, all others after 10 s.
        let ages = (0..2_000).map(|nth| if nth % 20 == 0 { 1.0 } else { 10.0 });
        gives_up(&mut patience, "", ages);
        let learned = of(&patience, "", 0).unwrap();
        assert!((8.0..=11.0).contains(&learned), "{learned}");
    }

    #[test]
    fn each_tenant_has_its_own_patience() {
        let mut patience = Patience::default();
        for _ in 0..50 {
            gives_up(&mut patience, "hasty", [1.0]);
            gives_up(&mut patience, "calm", [8.0]);
        }
        assert!(of(&patience, "hasty", 0).unwrap() < 1.1);
        assert!((7.5..9.0).contains(&of(&patience, "calm", 0).unwrap()));
        // Of a tenant that never gave up, what holds for all is taken.
        assert_eq!(of(&patience, "new", 0), of(&patience, "", 0));
    }

    #[test]
    fn longer_lives_and_silence_raise_the_estimate() {
        let mut patience = Patience::default();
        gives_up(&mut patience, "", [1.0; 50]);
        for _ in 0..100 {
            patience.on_answered(&Tenant::NONE, 5.0, at(0));
        }
        let learned = of(&patience, "", 0).unwrap();
        assert!((4.8..5.3).contains(&learned), "{learned}");
        let later = of(&patience, "", 600).unwrap();
        assert!((later - 2.0 * learned).abs() < 1e-6, "{later}");
    }

    #[test]
    fn tenants_without_end_take_no_more_memory() {
        let mut patience = Patience::default();
        for nth in 0..10_000 {
            let tenant = nth.to_string().into();
            patience.on_gave_up(&tenant, 1.0, LONGEST_WAIT, at(0));
        }
        assert_eq!(patience.tenants.len(), MAX_TENANTS);
    }
}

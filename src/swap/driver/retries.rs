//! The time after a start that failed, or a crash: refusals of requests, and restarts of pinned models.
//!
//! During a refusal, requests wait for a fallback; after it, only for the instance. So a refusal is prolonged while a
//! fallback is being loaded, because the load would be given up, and until the fallback has served for a while, because it
//! would be stopped at once.

use std::time::{Duration, Instant};

use super::SwapDriver;
use crate::endpoints::on_demand::RefusalId;
use crate::route::{RouteHandle, RoutingConfig};
use crate::swap::scheduler::{BACKOFF, InstancePhase};
use crate::swap::swapper::InstanceId;

/// The time for which a fallback that was loaded serves at least.
const FALLBACK: Duration = Duration::from_nanos(BACKOFF.1);
/// A time beyond the end of the load, which is an event by itself.
const LATER: Duration = Duration::from_secs(60);

/// The refusal of requests for an instance because its start failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// The refusal, until an operator loads the instance or changes its configuration.
    pub(super) refusal: Option<RefusalId>,
    /// `true` once the instance may be tried again, so that only a fallback prolongs the refusal.
    pub(super) is_over: bool,
}

/// The next restart of a pinned instance, with the crashes that delay it.
#[derive(Debug, Default)]
pub(super) struct Revival {
    /// The time of the last load, until a crash.
    pub(super) loaded: Option<Instant>,
    /// The number of crashes in a row that came soon after a load.
    crashes: u32,
    /// The time of the restart.
    pub(super) due: Option<Instant>,
}

impl Revival {
    pub(super) fn on_loaded(&mut self, at: Instant) {
        (self.loaded, self.due) = (Some(at), None);
    }

    /// Records a crash, and plans the restart.
    pub(super) fn on_crash(&mut self, at: Instant) {
        let (wait, longest) = (
            Duration::from_nanos(BACKOFF.0),
            Duration::from_nanos(BACKOFF.1),
        );
        let ran = self.loaded.take().map(|loaded| at - loaded);
        if ran.is_none_or(|ran| ran > longest) {
            self.crashes = 0;
        }
        let wait = wait.saturating_mul(1 << self.crashes.min(16));
        self.due = Some(at + wait.min(longest));
        self.crashes += 1;
    }
}

impl SwapDriver {
    /// Starts the pinned instances that are due for a restart.
    pub(super) fn revive(&mut self, at: Instant) {
        for id in self.instances.ids() {
            let instance = &mut self.instances[id];
            if instance.revival.due.is_none_or(|due| due > at) {
                continue;
            }
            instance.revival.due = None;
            if instance.is_configured && instance.model.pinned {
                self.scheduler.on_load(id, &mut self.instances);
            }
        }
    }
    /// Ends the refusals that are over.
    pub(super) fn end_refusals(&mut self, at: Instant, router: &RouteHandle) {
        for id in self.instances.ids() {
            let Some(mut refused) = self.instances[id].refused else {
                continue;
            };
            refused.is_over |= refused.until <= at;
            if refused.is_over {
                let until = self.until_fallback_served(id, refused.since, at, router);
                refused.until = until.unwrap_or(at);
            }
            let instance = &mut self.instances[id];
            instance.refused = Some(refused);
            if refused.until <= at {
                instance.end_refusal();
                instance.refused = None;
                self.instances.has_changed = true;
            }
        }
    }

    /// Returns the time until which a fallback serves the requests, if one is being loaded, or was loaded `since` the refusal
    /// began.
    fn until_fallback_served(
        &self,
        id: InstanceId,
        since: Instant,
        at: Instant,
        router: &RouteHandle,
    ) -> Option<Instant> {
        let routing = router.routing();
        let model = &self.instances[id].model.model.name;
        let instances = fallbacks(&routing, model)
            .into_iter()
            .flat_map(|model| self.instances_of(Some(model)));
        let until = instances.filter_map(|id| match self.instances[id].schedule.phase {
            InstancePhase::Starting => Some(at + LATER),
            InstancePhase::Ready => {
                let loaded = self.instances[id].revival.loaded?;
                (loaded >= since).then_some(loaded + FALLBACK)
            }
            InstancePhase::Stopped | InstancePhase::Stopping => None,
        });
        until.max()
    }
}

/// Returns the models that serve requests in place of `model`.
fn fallbacks<'a>(routing: &'a RoutingConfig, model: &str) -> Vec<&'a str> {
    let mut fallbacks = Vec::new();
    for (name, chain) in &routing.fallbacks {
        let alias = routing.aliases.get(name).map(|alias| &alias.model);
        let all = std::iter::once(name).chain(alias).chain(chain);
        let behind = all.skip_while(|name| *name != model).skip(1);
        fallbacks.extend(behind.map(String::as_str));
    }
    fallbacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_later_in_a_chain_are_fallbacks() {
        let routing = RoutingConfig::default()
            .alias("x", "a")
            .fallbacks("x", ["b", "c"])
            .fallbacks("a", ["d"]);
        let of = |model| fallbacks(&routing, model);
        assert_eq!(of("a"), ["d", "b", "c"]);
        assert_eq!(of("b"), ["c"]);
        assert!(of("c").is_empty() && of("e").is_empty());
    }
    #[test]
    fn an_instance_that_ran_for_long_is_not_in_a_loop() {
        let (mut revival, mut now) = (Revival::default(), Instant::now());
        let mut wait = |ran| {
            revival.on_loaded(now);
            now += Duration::from_secs(ran);
            revival.on_crash(now);
            (revival.due.unwrap() - now).as_secs()
        };
        let waits = [1, 2, 60, 0, 0, 0, 0, 0, 61, 0].map(&mut wait);
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]);
    }
}

//! Refusals: for how long no request waits for an instance that could not be started.
//!
//! During a refusal, requests wait for a fallback; after it, only for the instance. So it goes on while a fallback is
//! being loaded, which would otherwise be given up, and until that has served for a while, or it would be stopped at
//! once.

use std::time::{Duration, Instant};

use super::Driver;
use super::configure::BACKOFF;
use crate::endpoints::on_demand::OnDemand;
use crate::route::{RouteHandle, RoutingConfig};
use crate::swap::scheduler::Phase;
use crate::swap::swapper::ModelId;

/// How long a fallback that was loaded serves at least.
const FALLBACK: Duration = BACKOFF.1;
/// A time that does not come: the end of a load is an event.
const LATER: Duration = Duration::from_secs(60);

/// An instance for which no request waits.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) on_demand: OnDemand,
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Whether its own time has passed: only a fallback prolongs it.
    pub(super) is_over: bool,
}

impl Driver {
    /// Ends the refusals that are over.
    pub(super) fn end_refusals(&mut self, at: Instant, router: &RouteHandle) {
        for mut refused in std::mem::take(&mut self.refused) {
            refused.is_over |= refused.until <= at;
            if refused.is_over {
                let until = self.until_fallback_served(&refused, at, router);
                refused.until = until.unwrap_or(at);
            }
            if refused.until > at {
                self.refused.push(refused);
            } else {
                refused.on_demand.set_refusal(None);
                self.units.has_changed = true;
            }
        }
    }

    /// Until when its requests are left to a fallback that is being loaded, or was loaded since the refusal began.
    fn until_fallback_served(
        &self,
        refused: &Refused,
        at: Instant,
        router: &RouteHandle,
    ) -> Option<Instant> {
        let mut units = self.units.units.iter();
        let unit = units.find(|unit| unit.on_demand == refused.on_demand)?;
        let routing = router.routing();
        let fallbacks = fallbacks(&routing, &unit.model.model.name);
        let instances = fallbacks
            .into_iter()
            .flat_map(|model| self.units_of(Some(model)));
        let until = instances.filter_map(|nth| match self.scheduler.phase(ModelId(nth as u32)) {
            Phase::Starting(_) => Some(at + LATER),
            Phase::Ready => {
                let loaded = self.units.units[nth].revival.loaded()?;
                (loaded >= refused.since).then_some(loaded + FALLBACK)
            }
            Phase::Stopped | Phase::Stopping(_) => None,
        });
        until.max()
    }
}

/// The models that serve requests in place of this one.
fn fallbacks<'a>(routing: &'a RoutingConfig, model: &str) -> Vec<&'a str> {
    let mut fallbacks = Vec::new();
    for (name, chain) in &routing.fallbacks {
        let alias = routing.aliases.get(name);
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
    fn what_stands_behind_a_model_is_its_fallback() {
        let routing = RoutingConfig::default()
            .alias("x", "a")
            .fallbacks("x", ["b", "c"])
            .fallbacks("a", ["d"]);
        let of = |model| fallbacks(&routing, model);
        assert_eq!(of("a"), ["d", "b", "c"]);
        assert_eq!(of("b"), ["c"]);
        assert!(of("c").is_empty() && of("e").is_empty());
    }
}

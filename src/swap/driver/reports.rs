//! What the tasks of the driver report: instances that started, stopped, or ended by themselves.

use std::sync::Arc;
use std::time::Instant;

use super::Driver;
use super::refusals::Refused;
use super::tasks::{Ended, Report, Started, Stop, at_once, watch};
use crate::clock::now;
use crate::endpoints::on_demand::{End, Refusal};
use crate::route::RouteHandle;
use crate::swap::scheduler::Generation;
use crate::swap::swapper::ModelId;
use crate::swap::{Instance, ModelState, StartError};

impl Driver {
    pub(super) fn on_report(&mut self, report: Report, router: &RouteHandle) {
        let at = now();
        let now = self.nanos(at);
        match report {
            Report::Evicted { generation, ended } | Report::Stopped { generation, ended } => {
                let model = ModelId(ended.unit as u32);
                self.on_ended(ended);
                self.scheduler
                    .on_stopped(generation, model, now, &mut self.units);
            }
            Report::SwapDone { generation, result } => {
                self.on_swap_done(generation, result, router)
            }
            Report::Exited {
                unit,
                start,
                reason,
            } => self.on_exited(unit, start, reason),
            Report::Serves { unit, until } => self.on_serves(unit, until),
            Report::SleepEnded => self.units.ending_sleeps -= 1,
            Report::Gone { unit, start } => {
                if self.units.units[unit].start != start {
                    return; // it was stopped meanwhile
                }
                self.units.units[unit].instance = None;
                let id = ModelId(unit as u32);
                if !self.scheduler.is_leaving(id) {
                    self.units.units[unit].revival.on_crash(at);
                }
                self.scheduler.on_exit(id, now, &mut self.units);
            }
        }
    }

    /// An instance ended by itself. It gives no more slots, and its memory is free once all of it is gone.
    fn on_exited(&mut self, nth: usize, start: u64, reason: String) {
        let unit = &mut self.units.units[nth];
        if unit.start != start {
            return; // it was stopped, or is another one by now
        }
        tracing::warn!(model = &*unit.name, reason, "model ended by itself");
        unit.stop_giving();
        unit.on_demand.set_end(End::Crashed);
        self.units.has_changed = true;
        if unit.is_asleep {
            unit.instance = None;
            unit.is_asleep = false;
        } else if let Some(instance) = unit.instance.clone() {
            let reports = self.units.reports.clone();
            let stop = Stop {
                unit: nth,
                instance: Some(instance),
                killed: at_once(),
                may_sleep: false,
            };
            tokio::spawn(async move {
                _ = stop.run().await;
                _ = reports.send(Report::Gone { unit: nth, start });
            });
        }
        let board = &self.units.board;
        board.set_state(nth, ModelState::Unloaded, Some(reason));
    }

    /// An instance was doubted, and serves requests.
    fn on_serves(&mut self, nth: usize, until: Instant) {
        // A later doubt has a check of its own.
        if self.units.units[nth].doubted_until == Some(until) {
            self.end_doubt(nth);
        }
    }

    /// An instance was stopped, or sleeps.
    fn on_ended(&mut self, Ended { unit, asleep }: Ended) {
        let ended = &mut self.units.units[unit];
        ended.is_asleep = asleep.is_some();
        let state = match ended.is_asleep {
            true => ModelState::Sleeping,
            false => ModelState::Unloaded,
        };
        if let Some(instance) = &asleep {
            self.watch(unit, instance);
        }
        self.units.units[unit].instance = asleep;
        self.units.board.set_state(unit, state, None);
        if !self.units.units[unit].may_sleep {
            self.units.end_sleep(ModelId(unit as u32)); // it was unloaded on its way to sleep
        }
    }

    fn on_swap_done(
        &mut self,
        generation: Generation,
        result: Result<Started, StartError>,
        router: &RouteHandle,
    ) {
        let Some((target, abort)) = self.units.starting.remove(&generation) else {
            return;
        };
        let nth = target.0 as usize;
        let failure = match result {
            Ok(started) => {
                self.on_started(nth, started, router);
                None
            }
            Err(error) => Some(error),
        };
        // One that was given up did not fail. Told before it may be begun again.
        if failure.is_some() && abort.is_cancelled() {
            self.units.board.set_state(nth, ModelState::Unloaded, None);
        }
        let now = self.nanos(now());
        let has_started = failure.is_none();
        let has_failed = self
            .scheduler
            .on_swap_done(generation, has_started, now, &mut self.units);
        if let Some(error) = failure.filter(|_| has_failed) {
            self.on_start_failed(nth, &error, router);
        }
    }

    /// An instance can serve requests. Its endpoint is told where, before it gives slots.
    fn on_started(&mut self, nth: usize, started: Started, router: &RouteHandle) {
        let Started { instance, url } = started;
        let unit = &self.units.units[nth];
        let name = Arc::clone(&unit.name);
        tracing::info!(model = &*name, %url, "model is loaded");
        if *unit.endpoint.url() != url {
            router.change_on_demand(|endpoints| {
                let endpoint = endpoints
                    .iter_mut()
                    .find(|endpoint| *endpoint.name == *name);
                if let Some(endpoint) = endpoint {
                    endpoint.url = url.clone();
                }
            });
            let endpoints = router.endpoints();
            let present = endpoints
                .iter()
                .find(|endpoint| endpoint.is_same(&unit.endpoint));
            if let Some(present) = present {
                self.units.units[nth].endpoint = present.clone();
            }
        }
        self.watch(nth, &instance);
        let unit = &mut self.units.units[nth];
        unit.forget_failures();
        unit.instance = Some(instance);
        unit.revival.on_loaded(now());
        self.units.board.entries()[nth].url = Some(url.to_string()); // before it is seen to run
        self.units.board.set_state(nth, ModelState::Loaded, None);
    }

    /// Waiters of a model that could not be started are answered, and so are those that come before it is tried again.
    pub(super) fn on_start_failed(&mut self, nth: usize, error: &StartError, router: &RouteHandle) {
        let unit = &self.units.units[nth];
        let output = error.output.join("\n");
        tracing::error!(model = &*unit.name, %error, output, "model could not be started");
        self.units
            .board
            .set_state(nth, ModelState::Failed, Some(error.to_string()));
        let retry_at = self.scheduler.earliest_retry(ModelId(nth as u32));
        let retry_at = retry_at.map_or_else(now, |at| self.instant(at));
        let unit = &mut self.units.units[nth];
        unit.revival.on_start_failed(retry_at);
        let is_same = |refused: &Refused| refused.on_demand == unit.on_demand;
        // A fallback that was loaded in its place serves on.
        let before = self.refused.iter().position(is_same);
        let since = before.map(|nth| self.refused.swap_remove(nth).since);
        self.refused.push(Refused {
            on_demand: unit.on_demand.clone(),
            since: since.unwrap_or_else(now),
            until: retry_at,
            is_over: false,
        });
        unit.on_demand
            .set_refusal(Some(Refusal::StartFailed { retry_at }));
        router.gate().capacity_changed();
    }

    /// Reports when an instance ends by itself.
    fn watch(&mut self, nth: usize, instance: &Arc<dyn Instance>) {
        let unit = &mut self.units.units[nth];
        unit.start += 1;
        unit.on_demand.set_started();
        unit.doubted_until = None;
        unit.forget_activity();
        let reports = self.units.reports.clone();
        tokio::spawn(watch(nth, unit.start, Arc::clone(instance), reports));
    }
}

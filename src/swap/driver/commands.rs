//! What handles ask of the driver.

use super::{Command, Driver};
use crate::clock::now;
use crate::endpoints::on_demand::{End, Refusal};
use crate::route::RouteHandle;
use crate::swap::swapper::ModelId;

impl Driver {
    pub(super) fn on_command(&mut self, command: Command, router: &RouteHandle) {
        let now = self.nanos(now());
        match command {
            Command::Load(model) => {
                // The first instance; further ones follow the requests.
                if let Some(&nth) = self.units_of(Some(&*model)).first() {
                    self.units.units[nth].on_demand.set_refusal(None);
                    self.scheduler
                        .on_load(ModelId(nth as u32), now, &mut self.units);
                }
            }
            Command::Unload { model, is_killed } => {
                self.unload(model.as_deref(), is_killed, router);
            }
            Command::Reconfigure(config, others) => {
                if let Err(error) = self.configure(&config, others, router) {
                    tracing::error!(%error, "models are not changed"); // it was validated before
                }
            }
            Command::Shutdown(answer) => {
                self.shutdown.push(answer);
                self.scheduler.on_shutdown();
                for nth in 0..self.units.units.len() {
                    let id = ModelId(nth as u32);
                    self.units.end_sleep(id);
                    let unit = self.units.unit(id);
                    unit.stop_giving();
                    unit.on_demand.set_end(End::Killed);
                    self.scheduler.on_unload(id, true, now, &mut self.units);
                }
            }
        }
    }

    /// Unloads a model, or all: requests that wait for it are answered, those that it serves finish unless it is killed.
    fn unload(&mut self, model: Option<&str>, is_killed: bool, router: &RouteHandle) {
        let now = self.nanos(now());
        let units = self.units_of(model);
        let mut refusals = Vec::new();
        for &nth in &units {
            let unit = &mut self.units.units[nth];
            unit.revival.give_up();
            unit.is_killed = is_killed;
            unit.stop_giving();
            if is_killed {
                unit.stopping.cancel(); // if it is
                unit.on_demand.set_end(End::Killed);
            }
            refusals.push(unit.on_demand.set_refusal(Some(Refusal::Unloaded)));
        }
        router.gate().capacity_changed();
        // Now no request waits for it, or it would be started again at once.
        self.look_at_waiters(router, now);
        for (&nth, before) in units.iter().zip(refusals) {
            let id = ModelId(nth as u32);
            self.units.end_sleep(id);
            // One that failed to start is tried again no sooner.
            self.units.units[nth].on_demand.set_refusal(before);
            self.scheduler
                .on_unload(id, is_killed, now, &mut self.units);
        }
        self.units.has_changed = true; // requests may wait for it again
    }

    /// The instances of a model, or of all, with those that are not configured any more and run out.
    pub(super) fn units_of(&self, model: Option<&str>) -> Vec<usize> {
        let units = self.units.units.iter().enumerate();
        let of = units.filter(|(_, unit)| {
            model.is_none_or(|model| unit.is_configured && unit.model.model.name == model)
        });
        of.map(|(nth, _)| nth).collect()
    }
}

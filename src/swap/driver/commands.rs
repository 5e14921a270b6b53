//! The commands of handles: loads, unloads, reconfigurations and the shutdown.

use super::retries::Revival;
use super::{DriverCommand, SwapDriver};
use crate::endpoints::on_demand::{EndpointEnd, Refusal};
use crate::route::RouteHandle;
use crate::swap::Unload;
use crate::swap::swapper::InstanceId;

impl SwapDriver {
    pub(super) fn on_command(&mut self, command: DriverCommand, router: &RouteHandle) {
        match command {
            DriverCommand::Load(model) => {
                // Only the first instance, because requests start further ones.
                if let Some(&id) = self.instances_of(Some(&*model)).first() {
                    self.instances[id].end_refusal();
                    self.scheduler.on_load(id, &mut self.instances);
                }
            }
            DriverCommand::Unload(model, Unload::IfIdle) => {
                for id in self.instances_of(model.as_deref()) {
                    self.scheduler.on_release(id, &mut self.instances);
                }
            }
            DriverCommand::Unload(model, how) => self.unload(model.as_deref(), how, router),
            DriverCommand::Reconfigure(config, routes) => {
                if let Err(error) = self.configure(&config, routes, router) {
                    tracing::error!(%error, "models are not changed"); // the handle has validated it
                }
            }
            DriverCommand::Shutdown(answer) => {
                self.shutdown.push(answer);
                self.scheduler.on_shutdown();
                for id in self.instances.ids() {
                    self.instances.end_sleep(id);
                    self.instances[id].on_demand.ended(EndpointEnd::Killed);
                    self.scheduler.on_unload(id, true, &mut self.instances);
                }
            }
        }
    }

    /// Unloads a model, or all models. Requests that wait for it are answered; requests that it serves finish unless it is
    /// killed.
    fn unload(&mut self, model: Option<&str>, how: Unload, router: &RouteHandle) {
        let is_killed = how == Unload::Kill;
        let ids = self.instances_of(model);
        let mut refusals = Vec::new();
        for &id in &ids {
            let instance = &mut self.instances[id];
            instance.revival = Revival::default();
            instance.is_killed = is_killed;
            instance.on_demand.close();
            if is_killed {
                instance.stopping.cancel(); // if it is being stopped
                instance.on_demand.ended(EndpointEnd::Killed);
            }
            refusals.push(instance.on_demand.refuse(Refusal::Unloaded).result);
        }
        router.gate().capacity_changed();
        // The gate has answered the waiters, which would start the model again at once.
        self.look_at_waiters(router);
        for (&id, refusal) in ids.iter().zip(refusals) {
            self.instances.end_sleep(id);
            // The refusal after a failed start goes on.
            self.instances[id].on_demand.end_refusal(refusal);
            self.scheduler.on_unload(id, is_killed, &mut self.instances);
        }
        self.instances.has_changed = true; // requests may wait for it again
    }

    /// Returns the instances of a model; or all, with those that have left the configuration and still run.
    pub(super) fn instances_of(&self, model: Option<&str>) -> Vec<InstanceId> {
        let of = self.instances.iter().filter(|(_, it)| {
            model.is_none_or(|model| it.is_configured && it.model.model.name == model)
        });
        of.map(|(id, _)| id).collect()
    }
}

//! The reports of the driver's tasks, about instances that started, stopped, or ended by themselves.

use std::sync::Arc;

use super::SwapDriver;
use super::retries::Refused;
use super::tasks::{Report, Started};
use crate::clock::now;
use crate::endpoints::on_demand::{EndpointEnd, Refusal};
use crate::route::RouteHandle;
use crate::swap::swapper::InstanceId;
use crate::swap::{ModelServer, ModelState, StartError};

impl SwapDriver {
    pub(super) fn on_report(&mut self, report: Report, router: &RouteHandle) {
        match report {
            Report::Stopped { id, asleep } => {
                self.on_ended(id, asleep);
                self.scheduler.on_stopped(id, &mut self.instances);
            }
            Report::SwapDone { id, result } => self.on_swap_done(id, result, router),
            Report::Exited { id, start, reason } => self.on_exited(id, start, reason),
            Report::SleepEnded => self.instances.ending_sleeps -= 1,
            Report::Gone { id, start } => {
                let instance = &mut self.instances[id];
                if instance.start != start {
                    return; // the driver has stopped it meanwhile
                }
                instance.server = None;
                if !instance.schedule.is_leaving {
                    instance.revival.on_crash(now());
                }
                self.scheduler.on_exit(id, &mut self.instances);
            }
        }
    }

    /// Handles a server that ended by itself: closes the endpoint, and frees the rest of the server's memory.
    fn on_exited(&mut self, id: InstanceId, start: u64, reason: String) {
        let instance = &mut self.instances[id];
        if instance.start != start {
            return; // the driver has stopped it, or started another one
        }
        tracing::warn!(model = &*instance.name, reason, "model ended by itself");
        instance.on_demand.ended(EndpointEnd::Crashed);
        if instance.is_asleep {
            instance.server = None;
            instance.is_asleep = false;
        } else if let Some(server) = instance.server.clone() {
            let reports = self.instances.reports.clone();
            tokio::spawn(async move {
                // In a task of its own, because a launcher may panic.
                _ = tokio::spawn(async move { server.kill().await }).await;
                _ = reports.send(Report::Gone { id, start });
            });
        }
        self.instances.has_changed = true;
        let status = &self.instances[id].status;
        status.set_state(ModelState::Unloaded, Some(reason));
    }

    /// Handles an instance that was stopped, or sleeps.
    fn on_ended(&mut self, id: InstanceId, asleep: Option<Arc<dyn ModelServer>>) {
        if let Some(server) = &asleep {
            self.watch(id, server);
        }
        let instance = &mut self.instances[id];
        instance.on_demand.stopped();
        instance.is_asleep = asleep.is_some();
        instance.server = asleep;
        let state = match instance.is_asleep {
            true => ModelState::Sleeping,
            false => ModelState::Unloaded,
        };
        instance.status.set_state(state, None);
        if !instance.may_sleep {
            self.instances.end_sleep(id); // an unload came while it went to sleep
        }
    }

    fn on_swap_done(
        &mut self,
        id: InstanceId,
        result: Result<Started, StartError>,
        router: &RouteHandle,
    ) {
        let result = result.map(|started| self.on_started(id, started, router));
        let (has_started, failure) = (result.is_ok(), result.err());
        // A start that was given up did not fail. Reported before the scheduler may begin it again.
        let instance = &self.instances[id];
        if failure.is_some() && instance.abort.is_cancelled() {
            instance.on_demand.stopped();
            instance.status.set_state(ModelState::Unloaded, None);
        }
        let has_failed = self
            .scheduler
            .on_swap_done(id, has_started, &mut self.instances);
        if let Some(error) = failure.filter(|_| has_failed) {
            self.on_start_failed(id, &error, router);
        }
    }

    /// Handles an instance that can serve requests. Its endpoint gets the URL before it gives slots.
    fn on_started(&mut self, id: InstanceId, (server, url): Started, router: &RouteHandle) {
        let instance = &mut self.instances[id];
        instance.own_url = url;
        let url = instance.url_as(&instance.model);
        tracing::info!(model = &*instance.name, %url, "model is loaded");
        if *instance.endpoint.url() != url {
            router.change_on_demand(&self.signal, |endpoints| {
                let endpoint = endpoints.iter_mut().find(|it| *it.name == *instance.name);
                if let Some(endpoint) = endpoint {
                    endpoint.url = url.clone();
                }
            });
            let endpoints = router.endpoints();
            let present = endpoints.iter().find(|it| **it == instance.endpoint);
            if let Some(present) = present {
                instance.endpoint = present.clone();
            }
        }
        self.watch(id, &server);
        let instance = &mut self.instances[id];
        instance.on_demand.started();
        instance.server = Some(server);
        // It may have begun with an earlier configuration.
        instance.reconfigure_server(&instance.model);
        instance.revival.on_loaded(now());
        instance.status.set_url(url.to_string()); // before a handle sees it run
        instance.status.set_state(ModelState::Loaded, None);
    }

    /// Refuses the requests that wait for an instance which could not be started, and those that come before the next try.
    pub(super) fn on_start_failed(
        &mut self,
        id: InstanceId,
        error: &StartError,
        router: &RouteHandle,
    ) {
        let retry_at = self.instances[id].schedule.earliest_retry();
        let retry_at = retry_at.map_or_else(now, |at| self.instant(at));
        let instance = &mut self.instances[id];
        let output = error.output.join("\n");
        tracing::error!(model = &*instance.name, %error, output, "model could not be started");
        instance
            .status
            .set_state(ModelState::Failed, Some(error.to_string()));
        instance.revival.due = Some(retry_at);
        let refusal = instance
            .on_demand
            .refuse(Refusal::StartFailed { retry_at })
            .result;
        instance.end_refusal(); // the one before
        instance.on_demand.stopped(); // after the refusal, so that no request waits in between
        // A fallback that was loaded since the first refusal serves on.
        let since = instance.refused.map_or_else(now, |refused| refused.since);
        instance.refused = Some(Refused {
            since,
            until: retry_at,
            refusal: Some(refusal),
            is_over: false,
        });
        router.gate().capacity_changed();
    }

    /// Begins a start number, and watches for the end of its server.
    fn watch(&mut self, id: InstanceId, server: &Arc<dyn ModelServer>) {
        let instance = &mut self.instances[id];
        instance.start += 1;
        instance.told = Default::default();
        let (start, server) = (instance.start, Arc::clone(server));
        let reports = self.instances.reports.clone();
        // In a task of its own, because a launcher may panic.
        let ended = tokio::spawn(async move {
            let ended = server.ended();
            drop(server); // the watch must not keep the server alive
            ended.await
        });
        tokio::spawn(async move {
            let ended = ended.await;
            let reason = ended.unwrap_or_else(|_| "its launcher panicked".to_owned());
            _ = reports.send(Report::Exited { id, start, reason });
        });
    }
}

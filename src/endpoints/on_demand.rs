//! Endpoints that are started when requests wait for them. A stopped endpoint keeps its slots, so its requests wait as for a
//! busy one. A [`LauncherSignal`] wakes the launcher, which reports by [`OnDemand`] what it does with an endpoint.

mod client_wait;
mod launcher_signal;
mod life;
mod loading;

use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use super::latency::CoarseInstant;
use super::{EndpointRef, Endpoints, Model, RouteError};
use crate::admit::{Priority, SlotState};
use crate::gate;
pub(crate) use client_wait::ClientWait;
use client_wait::ClientWaits;
pub(crate) use launcher_signal::LauncherSignal;
pub(super) use launcher_signal::Launchers;
use life::EndpointLife;
pub(crate) use life::{Change, RefusalId, SuspicionSettled};
pub use life::{EndpointEnd, Suspicion};
pub use loading::LoadProgress;

/// The state that an endpoint shares with its launcher, and that all clones share.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand(Arc<OnDemandState>);

#[derive(Debug, Default)]
struct OnDemandState {
    /// The states, with their lock. Requests wait for its changes.
    life: watch::Sender<EndpointLife>,
    launcher: Arc<LauncherSignal>,
    /// The number of times that the endpoint became idle, and the bit [`AWAITED`].
    idled: AtomicU64,
    /// The time of the last end of a request: a [`CoarseInstant`].
    ended_at: AtomicU32,
    /// The level and the time of the last request that overtook a more urgent one.
    overtake: ArcSwapOption<(Priority, Instant)>,
    client_waits: ClientWaits,
    idle_connections: IdleConnections,
}

/// The closers of the pools that keep connections to the endpoint.
#[derive(Default)]
struct IdleConnections(Mutex<Vec<CloseIdle>>);

/// Closes the idle connections of a pool. Returns `false` if the pool is gone.
pub(crate) type CloseIdle = Box<dyn Fn() -> bool + Send>;

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

/// A bit of `idled` that is set while the launcher waits until the endpoint is idle.
const AWAITED: u64 = 1 << 63;

/// The reason why requests do not wait for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The start of the endpoint failed, and the next try is not before this time.
    StartFailed { retry_at: Instant },
    /// The endpoint is being unloaded by the operator.
    Unloaded,
    /// The launcher is gone, so nothing would start the endpoint.
    NoLauncher,
}

impl OnDemand {
    /// Returns the state of a new endpoint of this launcher.
    pub(crate) fn new(launcher: &Arc<LauncherSignal>) -> Self {
        Self(Arc::new(OnDemandState {
            launcher: Arc::clone(launcher),
            ..OnDemandState::default()
        }))
    }

    /// Returns `true` if this launcher starts the endpoint.
    pub(crate) fn is_of(&self, launcher: &Arc<LauncherSignal>) -> bool {
        Arc::ptr_eq(&self.0.launcher, launcher)
    }

    /// Returns the launcher that starts the endpoint.
    pub(crate) fn launcher(&self) -> &Arc<LauncherSignal> {
        &self.0.launcher
    }

    /// Returns `true` if the launcher is gone, so that another endpoint may take the name.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.launcher.is_gone()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.life.borrow().refusal().is_some()
    }

    /// Returns the error of a request for `model`, if requests are refused.
    pub(super) fn refusal(&self, model: &Arc<str>) -> Option<RouteError> {
        let refusal = self.0.life.borrow().refusal()?;
        let model = Arc::clone(model);
        Some(match refusal {
            Refusal::StartFailed { retry_at } => RouteError::ModelStartFailed {
                model,
                retry_after: retry_at.saturating_duration_since(gate::now()),
            },
            Refusal::Unloaded => RouteError::ModelUnloaded { model },
            Refusal::NoLauncher => return None,
        })
    }

    /// Adds a pool of connections to the endpoint.
    pub(crate) fn add_pool(&self, close_idle: CloseIdle) {
        self.pools().push(close_idle);
    }

    /// Closes the idle connections to the endpoint. The side that closes a connection first keeps its port busy for a while, and
    /// that should not be the endpoint's.
    pub(crate) fn close_idle_connections(&self) {
        self.pools().retain(|close_idle| close_idle());
    }

    fn pools(&self) -> MutexGuard<'_, Vec<CloseIdle>> {
        let pools = self.0.idle_connections.0.lock();
        pools.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the slots of a stopped endpoint.
    pub(super) fn slot_state(&self) -> SlotState {
        match self.0.life.borrow().loading() {
            None => SlotState::Stopped,
            Some(loading) => SlotState::Starting {
                progress: loading.progress(),
            },
        }
    }

    /// Counts that the endpoint became idle, and wakes the launcher if it waits for that.
    #[inline]
    pub(super) fn on_idle(&self) {
        // One word for both: either this sees the bit, or the launcher sees the count.
        if self.0.idled.fetch_add(1, SeqCst) & AWAITED != 0 {
            self.0.launcher.notify();
        }
    }

    /// Records a request of this level that got a slot as it arrived, if a more urgent one waits.
    pub(super) fn on_overtake(&self, level: Priority) {
        if self.0.launcher.is_overtaken_by(level) {
            let overtake = Arc::new((level, gate::now()));
            self.0.overtake.store(Some(overtake));
            self.0.launcher.notify();
        }
    }

    fn await_idleness(&self, is_awaited: bool) {
        match is_awaited {
            true => self.0.idled.fetch_or(AWAITED, SeqCst),
            false => self.0.idled.fetch_and(!AWAITED, SeqCst),
        };
    }

    /// Returns how many times the endpoint became idle, and the last end of a request, to the millisecond.
    pub(crate) fn idled(&self) -> (u64, Instant) {
        let times = self.0.idled.load(SeqCst) & !AWAITED;
        let ended_at = CoarseInstant(self.0.ended_at.load(Relaxed));
        (times, ended_at.instant())
    }

    /// Returns the level and the time of the last request that got a slot though a more urgent one waits for another
    /// endpoint.
    pub(crate) fn overtake(&self) -> Option<(Priority, Instant)> {
        self.0.overtake.load_full().map(|overtake| *overtake)
    }
}

impl PartialEq for OnDemand {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnDemand {}

impl EndpointRef {
    /// Returns the state that the endpoint shares with its launcher, if it is started on demand.
    #[inline]
    pub(crate) fn on_demand(&self) -> Option<&OnDemand> {
        match self.is_on_demand() {
            true => self.config().on_demand.as_ref(),
            false => None,
        }
    }

    /// Records the end of a request, before its slot comes back. For an endpoint that runs by itself it does not matter.
    #[inline]
    pub(crate) fn note_end(&self, at: CoarseInstant) {
        if let Some(on_demand) = self.on_demand() {
            on_demand.0.ended_at.store(at.0, Relaxed); // published by the slot that comes back
        }
    }

    /// Records that a request ends now, if the endpoint is started on demand.
    #[cold]
    pub(crate) fn note_end_now(&self) {
        if self.on_demand().is_some() {
            self.note_end(CoarseInstant::now());
        }
    }

    /// Returns `true` while the endpoint is closed, because it does not run, is about to stop, or is suspect.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().word.load().is_stopped()
    }

    /// Returns the number of parts of responses that came from the endpoint, which wraps around.
    pub(crate) fn parts_received(&self) -> u32 {
        self.state().cold.activity.load(Relaxed) // compared with an earlier count
    }
}

impl Endpoints {
    /// Adds a launcher. It is notified when requests wait for other endpoints than before, and when one of its endpoints becomes
    /// idle, if that is [awaited](Self::await_idleness).
    pub(crate) fn add_launcher(&self, launcher: &Arc<LauncherSignal>) {
        self.launchers.add(launcher);
    }

    /// Sets whether a launcher is notified when one of its endpoints becomes idle. The caller has to look again afterwards, at
    /// those that became idle just before.
    pub(crate) fn await_idleness(&self, launcher: &Arc<LauncherSignal>, is_awaited: bool) {
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        endpoints
            .filter_map(EndpointRef::on_demand)
            .filter(|on_demand| on_demand.is_of(launcher))
            .for_each(|on_demand| on_demand.await_idleness(is_awaited));
    }

    /// Returns the pools that could serve a lane, in the registry's order.
    pub(crate) fn pools_in_order(&self, lane: &super::Lane) -> Vec<crate::admit::PoolId> {
        self.table.load().pools_in_order(lane)
    }
}

/// Takes out the endpoints whose launcher is gone and whose names are those of `others`.
pub(crate) fn release_names(on_demand: &mut Vec<super::Endpoint>, others: &[super::Endpoint]) {
    let is_abandoned = |link: &Option<OnDemand>| link.as_ref().is_some_and(OnDemand::is_abandoned);
    on_demand.retain(|it| {
        !(is_abandoned(&it.on_demand) && others.iter().any(|other| other.name == it.name))
    });
}

/// Returns the endpoint of an instance that is started on demand, which gets its URL when it runs.
pub(crate) fn endpoint(
    name: &str,
    model: &Model,
    slots: u32,
    on_demand: OnDemand,
) -> super::Endpoint {
    let nowhere = http::Uri::from_static("http://127.0.0.1:9"); // the discard port: never connected to
    let mut endpoint = super::Endpoint::new(name, nowhere)
        .max_concurrent(slots)
        .model(model.clone());
    endpoint.on_demand = Some(on_demand);
    endpoint
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::admit::{Capacity, LeaseError};
    use crate::endpoints::{Registry, Requirements};

    /// An instance of `m` that runs at this port.
    fn registry(on_demand: &OnDemand, port: u16) -> Registry {
        let mut endpoint = endpoint("m", &Model::new("m"), 1, on_demand.clone());
        endpoint.url = format!("http://127.0.0.1:{port}").parse().unwrap();
        Registry::new(vec![endpoint]).unwrap()
    }

    #[test]
    fn a_slot_that_was_taken_by_an_old_table_is_of_the_endpoint_where_it_runs_now() {
        let on_demand = OnDemand::default();
        let endpoints = Endpoints::new(registry(&on_demand, 1));
        let old = endpoints.endpoints()[0].clone();
        let moved = endpoints.change(|_| Ok::<_, Infallible>((registry(&on_demand, 2), None)));
        assert_eq!(moved.unwrap().changed, ["m"]);
        let chosen = endpoints.chosen(&old);
        assert_eq!(chosen.url().port_u16(), Some(2));
        assert!(chosen == old, "its slots are the same");
    }

    fn started(on_demand: &OnDemand) -> Endpoints {
        let endpoints = Endpoints::new(registry(on_demand, 1));
        on_demand.started();
        on_demand.open();
        endpoints
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_end_is_when_the_body_noted_it_or_when_the_slot_comes_back() {
        let on_demand = OnDemand::default();
        let endpoints = started(&on_demand);
        let demand = endpoints.demand(&Requirements::new("m"));
        let second = Duration::from_secs(1);
        let near = |a: Instant, b: Instant| a.max(b) - a.min(b) < 2 * Duration::from_millis(1);
        for (times, is_end_noted) in [(1, false), (2, true), (3, false)] {
            let mut lease = endpoints.try_lease(&demand).unwrap();
            lease.is_end_noted = is_end_noted;
            let noted = gate::now();
            lease.endpoint().note_end(CoarseInstant::at(noted));
            assert_eq!(on_demand.idled().0, times - 1);
            tokio::time::advance(second).await;
            endpoints.release(lease);
            let end = if is_end_noted { noted } else { noted + second };
            tokio::time::advance(second).await;
            let (idled, at) = on_demand.idled();
            assert_eq!(idled, times);
            assert!(near(at, end), "{times}");
        }
    }

    #[test]
    fn idleness_that_is_awaited_is_notified_with_the_last_end() {
        let [launcher, other] = [(); 2].map(|()| Arc::new(LauncherSignal::default()));
        let on_demand = OnDemand::new(&launcher);
        let endpoints = started(&on_demand);
        endpoints.endpoints()[0].set_limit(2);
        let demand = endpoints.demand(&Requirements::new("m"));
        let is_notified = || launcher.notified().now_or_never().is_some();
        for is_awaited in [false, true, false] {
            endpoints.await_idleness(&launcher, is_awaited);
            endpoints.await_idleness(&other, !is_awaited);
            let [first, last] = [(); 2].map(|()| endpoints.try_lease(&demand).unwrap());
            endpoints.release(first);
            assert!(!is_notified());
            endpoints.release(last);
            assert_eq!(is_notified(), is_awaited);
        }
        assert_eq!(on_demand.idled().0, 3);
    }

    #[test]
    fn a_stopped_endpoint_is_busy_until_it_refuses() {
        let on_demand = OnDemand::default();
        let endpoints = Endpoints::new(registry(&on_demand, 1));
        let demand = endpoints.demand(&Requirements::new("m"));
        assert!(matches!(
            endpoints.try_lease(&demand),
            Err(LeaseError::Busy)
        ));
        let refusal = on_demand.refuse(Refusal::Unloaded).result;
        let refused = endpoints.try_lease(&demand).unwrap_err();
        let model = Arc::from("m");
        assert_eq!(
            refused,
            LeaseError::Unservable(RouteError::ModelUnloaded { model })
        );
        on_demand.end_refusal(refusal);
        on_demand.started();
        on_demand.open();
        let lease = endpoints.try_lease(&demand).unwrap();
        assert!(!on_demand.close_if_idle().result);
        endpoints.release(lease);
        assert!(on_demand.close_if_idle().result);
    }
}

//! Endpoints that are started when requests wait for them.
//!
//! A stopped endpoint gives no slot, so its requests wait for it as for a busy one. The driver in `swap` starts and
//! stops endpoints. [`Demanded`] notifies the driver of waiters, and the driver reports by [`OnDemand`] if requests
//! cannot wait for an endpoint.

mod client_wait;
mod life;
mod loading;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};

use super::endpoint_word::EndpointWord;
use super::latency::CoarseInstant;
use super::{Endpoint, EndpointRef, Endpoints, Model, RouteError};
use crate::admit::{Priority, SlotState};
use crate::gate;
use client_wait::ClientWaits;
pub(crate) use client_wait::{ClientWait, UploadWait};
use life::Life;
pub(crate) use life::{DoubtSettled, End};
pub(crate) use loading::Loading;
pub use loading::Progress;

/// The state that an endpoint shares with the driver that starts and stops it. Clones refer to the same state.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    refusal: ArcSwapOption<Refusal>,
    life: watch::Sender<Life>,
    /// The signal to the driver that a request got no answer, so that the endpoint may have ended.
    notify: Arc<Notify>,
    /// The number of times that the endpoint became idle, with the flag [`AWAITED`].
    idled: AtomicU64,
    /// The time at which the endpoint last ended a request.
    ended_at: EndedAt,
    loading: ArcSwapOption<Loading>,
    /// The level and the time of the last request that overtook a more urgent one.
    passed: Mutex<Option<(Priority, Instant)>>,
    client_waits: ClientWaits,
}

/// The time at which an endpoint last ended a request, as a [`CoarseInstant`]. An endpoint that is started on demand
/// shares it with its driver.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedAt(Arc<AtomicU32>);

impl EndedAt {
    /// Returns the shared time if `endpoint` is started on demand, and a time of its own otherwise.
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let on_demand = endpoint.on_demand.as_ref();
        on_demand.map_or_else(Self::default, |on_demand| on_demand.0.ended_at.clone())
    }

    /// Records the time of an end.
    #[inline]
    fn set(&self, at: CoarseInstant) {
        self.0.store(at.to_bits(), Relaxed); // the slot that comes back publishes it
    }

    /// Returns the time of the last end, to the millisecond.
    fn get(&self) -> Instant {
        CoarseInstant::from_bits(self.0.load(Relaxed)).instant()
    }
}

/// The bit of `idled` that is set while the driver has to know at once when the endpoint becomes idle.
const AWAITED: u64 = 1 << 63;

/// The reason why requests do not wait for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The start has failed, and is not tried again before `retry_at`.
    StartFailed { retry_at: Instant },
    /// The endpoint is being unloaded.
    Unloaded,
}

impl OnDemand {
    /// Makes the state that an endpoint shares with its driver. `notify` wakes the driver when a request got no answer.
    pub(crate) fn new(notify: &Arc<Notify>) -> Self {
        Self(Arc::new(Shared {
            notify: Arc::clone(notify),
            ..Shared::default()
        }))
    }

    /// Sets the reason for which requests are rejected while the endpoint is stopped, or lets them wait again. Returns
    /// the reason before.
    ///
    /// Call [`Gate::capacity_changed`](crate::Gate::capacity_changed) afterwards.
    pub(crate) fn set_refusal(&self, refusal: Option<Refusal>) -> Option<Refusal> {
        self.0.refusal.swap(refusal.map(Arc::new)).map(|it| *it)
    }

    /// Returns `true` if requests are rejected while the endpoint is stopped.
    pub(super) fn is_refused(&self) -> bool {
        self.0.refusal.load().is_some()
    }

    /// Returns the error of a request for `model`, if requests are rejected.
    pub(super) fn refusal(&self, model: &Arc<str>) -> Option<RouteError> {
        let refusal = self.0.refusal.load();
        let model = Arc::clone(model);
        Some(match **refusal.as_ref()? {
            Refusal::StartFailed { retry_at } => RouteError::ModelStartFailed {
                model,
                retry_after: retry_at.saturating_duration_since(gate::now()),
            },
            Refusal::Unloaded => RouteError::ModelUnloaded { model },
        })
    }

    /// Records that a start is under way, or that it has ended.
    pub(crate) fn set_loading(&self, loading: Option<Loading>) {
        self.0.loading.store(loading.map(Arc::new));
    }

    /// Returns the state of the slots of the endpoint while it is stopped.
    pub(super) fn slot_state(&self) -> SlotState {
        match &*self.0.loading.load() {
            None => SlotState::Unmade,
            Some(loading) => SlotState::Making {
                progress: loading.progress(),
            },
        }
    }

    /// Records that the endpoint has become idle. Returns `true` if the driver has to know it at once.
    // One word has the count and the flag. So either this call sees the flag, or the driver sees the new count.
    #[inline]
    fn on_idle(&self) -> bool {
        self.0.idled.fetch_add(1, SeqCst) & AWAITED != 0
    }

    /// Sets whether the driver has to know at once when the endpoint becomes idle.
    fn await_idleness(&self, is_awaited: bool) {
        match is_awaited {
            true => self.0.idled.fetch_or(AWAITED, SeqCst),
            false => self.0.idled.fetch_and(!AWAITED, SeqCst),
        };
    }

    /// Returns the number of times that the endpoint became idle, and the time of its last end to the millisecond.
    pub(crate) fn idled(&self) -> (u64, Instant) {
        let times = self.0.idled.load(SeqCst) & !AWAITED;
        (times, self.0.ended_at.get())
    }

    /// Returns the level and the time of the last request that overtook a more urgent one, which waits for another
    /// endpoint.
    pub(crate) fn passed(&self) -> Option<(Priority, Instant)> {
        *self.lock_passed()
    }

    fn lock_passed(&self) -> MutexGuard<'_, Option<(Priority, Instant)>> {
        self.0.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for OnDemand {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnDemand {}

/// The channel that notifies the driver if the first waiters have changed or if an endpoint has become idle.
#[derive(Debug)]
pub(super) struct Demanded {
    /// `true` once a driver has asked for notifications, because it starts endpoints on demand.
    is_on: AtomicBool,
    /// The version of the current routing table, which may lag behind by one.
    version: AtomicU64,
    /// The level of the most urgent request that waits for a stopped endpoint. It is `u8::MAX` while the queue for
    /// stopped endpoints is empty.
    most_urgent: AtomicU8,
    notify: Arc<Notify>,
}

impl Default for Demanded {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::default(),
            version: AtomicU64::default(),
            most_urgent: AtomicU8::new(u8::MAX),
            notify: Arc::default(),
        }
    }
}

impl Demanded {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// Counts a new table. Call this after the table was stored, and before an endpoint is started at its place in the
    /// new table.
    pub(super) fn on_new_table(&self) {
        self.version.fetch_add(1, SeqCst);
    }

    /// Notifies the driver that the first waiters have changed.
    pub(super) fn on_first_waiters(&self) {
        if self.is_on() {
            self.notify.notify_one();
        }
    }

    /// Records that a request of this level got a slot as it arrived. If it overtook a more urgent one that waits for a
    /// stopped endpoint, the driver is notified.
    pub(super) fn on_passed(&self, on_demand: &OnDemand, level: Priority) {
        if level.0 > self.most_urgent.load(SeqCst) {
            *on_demand.lock_passed() = Some((level, gate::now()));
            self.notify.notify_one();
        }
    }

    /// Records that an endpoint has become idle, and notifies the driver if it waits for that.
    #[inline]
    pub(super) fn on_idle(&self, on_demand: &OnDemand) {
        if on_demand.on_idle() {
            self.notify.notify_one();
        }
    }
}

impl Drop for Demanded {
    /// Wakes the driver so that it ends, because the router is gone.
    fn drop(&mut self) {
        self.notify.notify_one();
    }
}

impl EndpointRef {
    /// Returns the state that the endpoint shares with its driver, if it is started on demand.
    pub(crate) fn on_demand(&self) -> Option<&OnDemand> {
        self.config().on_demand.as_ref()
    }

    /// Records the time at which a request of this endpoint ends. Call this before the slot comes back.
    #[inline]
    pub(crate) fn note_end(&self, at: CoarseInstant) {
        self.ended_at().set(at);
    }

    /// Records that a request ends now, if the endpoint is started on demand. Other endpoints do not need the time.
    #[cold]
    pub(crate) fn note_end_now(&self) {
        if self.on_demand().is_some() {
            self.note_end(CoarseInstant::now());
        }
    }

    /// Returns `true` if the endpoint gives no slots, because it is stopped or about to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().word.is_stopped()
    }
}

impl Endpoints {
    /// Returns the signal that wakes the driver if the first waiters have changed. It also wakes the driver when an
    /// endpoint becomes idle, if that is [awaited](Self::await_idleness).
    pub(crate) fn watch_demand(&self) -> Arc<Notify> {
        self.demanded.is_on.store(true, SeqCst);
        Arc::clone(&self.demanded.notify)
    }

    /// Sets whether the driver is notified when an endpoint becomes idle. An endpoint that became idle just before does
    /// not notify it, so the driver has to look at all endpoints again.
    pub(crate) fn await_idleness(&self, is_awaited: bool) {
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        endpoints
            .filter_map(EndpointRef::on_demand)
            .for_each(|on_demand| on_demand.await_idleness(is_awaited));
    }

    /// Sets the level of the most urgent request that waits for a stopped endpoint. The driver is notified when a less
    /// urgent request gets a slot of another endpoint.
    pub(crate) fn await_passing(&self, most_urgent: Option<Priority>) {
        let level = most_urgent.map_or(u8::MAX, |level| level.0); // which every level stays within
        self.demanded.most_urgent.store(level, SeqCst);
    }

    /// Returns the pools that could serve a lane, in the order in which they are tried.
    pub(crate) fn pools_in_order(&self, lane: &super::Lane) -> Vec<crate::admit::PoolId> {
        self.table.load().pools_in_order(lane)
    }

    /// Returns the endpoint as the latest table has it, because an endpoint that is started on demand may have moved to
    /// another URL.
    #[cold]
    pub(super) fn present(&self, endpoint: &EndpointRef) -> EndpointRef {
        let table = self.table.load();
        let present = table.endpoint(endpoint.pool());
        let moved = present.filter(|it| it.is_same(endpoint) && endpoint.config().is_on_demand());
        moved.unwrap_or(endpoint).clone()
    }
}

impl EndpointWord {
    /// Stops the endpoint from giving slots. Requests that have a slot keep it.
    pub(crate) fn stop(&self) {
        _ = self.set_stopped(true);
    }

    /// Lets the endpoint give slots again.
    pub(crate) fn start(&self) {
        _ = self.set_stopped(false);
    }
}

/// Makes the endpoint of an instance that is started on demand, before its URL is known.
pub(crate) fn endpoint(
    name: &str,
    model: &Model,
    slots: u32,
    on_demand: OnDemand,
) -> super::Endpoint {
    let nowhere = http::Uri::from_static("http://127.0.0.1:9"); // the discard port, which is not connected to
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

    /// Makes the registry of an instance of `m` that runs at this port.
    fn registry(on_demand: &OnDemand, port: u16) -> Registry {
        let mut endpoint = endpoint("m", &Model::new("m"), 1, on_demand.clone());
        endpoint.url = format!("http://127.0.0.1:{port}").parse().unwrap();
        Registry::new(vec![endpoint]).unwrap()
    }

    #[test]
    fn a_slot_that_was_taken_by_an_old_table_is_of_the_endpoint_where_it_runs_now() {
        let on_demand = OnDemand::default();
        let endpoints = Endpoints::new(registry(&on_demand, 1));
        let table = endpoints.table.load_full();
        let old = table.endpoints[0].clone();
        let moved = endpoints.change(|_| Ok::<_, Infallible>((registry(&on_demand, 2), None)));
        assert_eq!(moved.unwrap().changed, ["m"]);
        let chosen = endpoints.chosen(&old, &table);
        assert_eq!(chosen.url().port_u16(), Some(2));
        assert!(chosen.is_same(&old), "its slots are the same");
    }

    fn started(on_demand: &OnDemand) -> Endpoints {
        let endpoints = Endpoints::new(registry(on_demand, 1));
        endpoints.endpoints()[0].state().word.start();
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
        let on_demand = OnDemand::default();
        let endpoints = started(&on_demand);
        endpoints.endpoints()[0].set_limit(2);
        let demand = endpoints.demand(&Requirements::new("m"));
        let notify = endpoints.watch_demand();
        let is_notified = || notify.notified().now_or_never().is_some();
        for is_awaited in [false, true, false] {
            endpoints.await_idleness(is_awaited);
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
        on_demand.set_refusal(Some(Refusal::Unloaded));
        let refused = endpoints.try_lease(&demand).unwrap_err();
        let model = Arc::from("m");
        assert_eq!(
            refused,
            LeaseError::Unservable(RouteError::ModelUnloaded { model })
        );
        on_demand.set_refusal(None);
        let all = endpoints.endpoints();
        let word = &all[0].state().word;
        word.start();
        let lease = endpoints.try_lease(&demand).unwrap();
        assert!(!word.stop_if_idle());
        endpoints.release(lease);
        assert!(word.stop_if_idle());
    }
}

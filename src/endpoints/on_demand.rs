//! Endpoints that are started when requests wait for them.
//!
//! One that is stopped gives no slot, so its requests wait as for a busy one. What starts it learns of them by
//! [`Demanded`], and says by [`OnDemand`] why it can't be waited for.

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

/// What an endpoint shares with what starts and stops it. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    refusal: ArcSwapOption<Refusal>,
    life: watch::Sender<Life>,
    /// Notified when the endpoint is doubted.
    notify: Arc<Notify>,
    /// How often it came to serve no request any more; and [`AWAITED`].
    idled: AtomicU64,
    /// When it last ended one.
    ended_at: EndedAt,
    loading: ArcSwapOption<Loading>,
    /// The last request that passed a more urgent one: its level, and when.
    passed: Mutex<Option<(Priority, Instant)>>,
    client_waits: ClientWaits,
}

/// When an endpoint last ended a request: a [`CoarseInstant`]. An endpoint that is started on demand shares it with what
/// starts it.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedAt(Arc<AtomicU32>);

impl EndedAt {
    /// That of an endpoint that is configured so.
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let on_demand = endpoint.on_demand.as_ref();
        on_demand.map_or_else(Self::default, |on_demand| on_demand.0.ended_at.clone())
    }

    #[inline]
    fn set(&self, at: CoarseInstant) {
        self.0.store(at.to_bits(), Relaxed); // published by the slot that comes back
    }

    /// To the millisecond.
    fn get(&self) -> Instant {
        CoarseInstant::from_bits(self.0.load(Relaxed)).instant()
    }
}

/// Set in `idled` while it matters at once that an endpoint serves no request any more.
const AWAITED: u64 = 1 << 63;

/// Why requests do not wait for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It could not be started, and is not tried again before that.
    StartFailed { retry_at: Instant },
    /// It is being unloaded.
    Unloaded,
}

impl OnDemand {
    /// What an endpoint shares with what starts it, which is notified when the endpoint is doubted.
    pub(crate) fn new(notify: &Arc<Notify>) -> Self {
        Self(Arc::new(Shared {
            notify: Arc::clone(notify),
            ..Shared::default()
        }))
    }

    /// From now on requests are refused while the endpoint is stopped; or wait again. The gate has to be told. Returns the
    /// refusal before.
    pub(crate) fn set_refusal(&self, refusal: Option<Refusal>) -> Option<Refusal> {
        self.0.refusal.swap(refusal.map(Arc::new)).map(|it| *it)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.refusal.load().is_some()
    }

    /// The error of a request for `model`.
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

    /// It is being started from now on, or not any more.
    pub(crate) fn set_loading(&self, loading: Option<Loading>) {
        self.0.loading.store(loading.map(Arc::new));
    }

    /// The state of the slots of an endpoint that is stopped.
    pub(super) fn slot_state(&self) -> SlotState {
        match &*self.0.loading.load() {
            None => SlotState::Stopped,
            Some(loading) => SlotState::Starting {
                progress: loading.progress(),
            },
        }
    }

    /// It serves no request any more. Returns whether that is awaited.
    // One word for both: either this sees that it is awaited, or what awaits it sees this.
    #[inline]
    fn on_idle(&self) -> bool {
        self.0.idled.fetch_add(1, SeqCst) & AWAITED != 0
    }

    /// Sets whether that is awaited.
    fn await_idleness(&self, is_awaited: bool) {
        match is_awaited {
            true => self.0.idled.fetch_or(AWAITED, SeqCst),
            false => self.0.idled.fetch_and(!AWAITED, SeqCst),
        };
    }

    /// How often it came to serve no request any more, and when it last ended one, to the millisecond.
    pub(crate) fn idled(&self) -> (u64, Instant) {
        let times = self.0.idled.load(SeqCst) & !AWAITED;
        (times, self.0.ended_at.get())
    }

    /// The last request that got a slot though a more urgent one waits for another endpoint: its level, and when.
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

/// Tells what starts endpoints that requests wait for others than before, or that an endpoint serves none any more.
#[derive(Debug)]
pub(super) struct Demanded {
    /// Whether any endpoint is started on demand.
    is_on: AtomicBool,
    /// That of the present table, or of one before.
    version: AtomicU64,
    /// The level of the most urgent request that waits for an endpoint that is stopped; the lowest if there is none.
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

    /// To be called after a new table was stored, and before any endpoint is started at its place in it.
    pub(super) fn on_new_table(&self) {
        self.version.fetch_add(1, SeqCst);
    }

    /// Notifies the launcher that requests may wait for other endpoints than before.
    pub(super) fn on_lane_heads_changed(&self) {
        self.notify.notify_one();
    }

    /// Records a request of this level that got a slot as it arrived, while others wait.
    pub(super) fn on_overtake(&self, on_demand: &OnDemand, level: Priority) {
        if level.0 > self.most_urgent.load(SeqCst) {
            *on_demand.lock_passed() = Some((level, gate::now()));
            self.notify.notify_one();
        }
    }

    /// An endpoint that is started on demand serves none any more.
    #[inline]
    pub(super) fn on_idle(&self, on_demand: &OnDemand) {
        if on_demand.on_idle() {
            self.notify.notify_one();
        }
    }
}

impl Drop for Demanded {
    /// The router is gone: what starts endpoints for it ends, too.
    fn drop(&mut self) {
        self.notify.notify_one();
    }
}

impl EndpointRef {
    /// What it shares with what starts it, if that is on demand.
    pub(crate) fn on_demand(&self) -> Option<&OnDemand> {
        self.config().on_demand.as_ref()
    }

    /// Records when a request of this endpoint ends. To be called before its slot comes back.
    #[inline]
    pub(crate) fn note_end(&self, at: CoarseInstant) {
        self.ended_at().set(at);
    }

    /// Records that a request ends now, if the endpoint is started on demand. For others it does not matter.
    #[cold]
    pub(crate) fn note_end_now(&self) {
        if self.on_demand().is_some() {
            self.note_end(CoarseInstant::now());
        }
    }

    /// Whether it gives no slot because it does not run, or is about to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().word.is_stopped()
    }
}

impl Endpoints {
    /// Notified when requests wait for others than before; and when an endpoint serves none any more, if that is
    /// [awaited](Self::await_idleness).
    pub(crate) fn watch_demand(&self) -> Arc<Notify> {
        self.demanded.is_on.store(true, SeqCst);
        Arc::clone(&self.demanded.notify)
    }

    /// Sets whether it is notified when an endpoint serves no request any more. One that came to that just before is not
    /// notified: it has to be looked at again.
    pub(crate) fn await_idleness(&self, is_awaited: bool) {
        let table = self.table.load();
        let endpoints = table.endpoints.iter().chain(&table.leaving);
        endpoints
            .filter_map(EndpointRef::on_demand)
            .for_each(|on_demand| on_demand.await_idleness(is_awaited));
    }

    /// Sets the level of the most urgent request that waits for an endpoint that is stopped. It is notified when one that is
    /// less urgent gets a slot of another endpoint.
    pub(crate) fn await_passing(&self, most_urgent: Option<Priority>) {
        let level = most_urgent.map_or(u8::MAX, |level| level.0); // above which there is none
        self.demanded.most_urgent.store(level, SeqCst);
    }

    /// The pools that could serve a lane, in the registry's order.
    pub(crate) fn pools_in_order(&self, lane: &super::Lane) -> Vec<crate::admit::PoolId> {
        self.table.load().pools_in_order(lane)
    }

    /// The endpoint as the latest table has it: one that is started on demand may run at another URL by now.
    #[cold]
    pub(super) fn present(&self, endpoint: &EndpointRef) -> EndpointRef {
        let table = self.table.load();
        let present = table.endpoint(endpoint.pool());
        let moved = present.filter(|it| it.is_same(endpoint) && endpoint.config().is_on_demand());
        moved.unwrap_or(endpoint).clone()
    }
}

impl EndpointWord {
    /// Gives no more slots. Requests that have one keep it.
    pub(crate) fn stop(&self) {
        _ = self.set_stopped(true);
    }

    /// Gives slots again.
    pub(crate) fn start(&self) {
        _ = self.set_stopped(false);
    }
}

/// The endpoint of an instance that is started on demand. Where it will run is not known yet.
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

//! What belongs to callers is dropped without the gate's lock: a destructor may use the gate.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tower_triage::admit::Tenant;
use tower_triage::admit::{Capacity, LeaseError, PoolId, PoolSet, SlotUsage};
use tower_triage::gate::{Acquire, Gate};
use tower_triage::{Discipline, Priority, SlotPool};
use tower_triage::{Ticket, WaitingRoomConfig};

const GUARD: Duration = Duration::from_secs(60);

#[test]
fn a_demand_s_destructor_may_use_the_gate() {
    within_guard(|| {
        let gate = Gate::new(Curious(SlotPool::new(1)), WaitingRoomConfig::default());
        let looks = Looks::default();
        assert!(looks.0.set(gate.clone()).is_ok());
        let demand = || looks.clone();
        let acquire = || gate.acquire(ticket(), demand());

        let held = ready(&mut acquire()).expect("a slot is free");
        let mut granted = acquire();
        assert!(poll(&mut granted).is_pending());
        let mut cancelled = acquire();
        assert!(poll(&mut cancelled).is_pending());
        drop(cancelled);
        assert!(granted.set_ticket(ticket(), demand()));
        drop(held);
        assert!(!granted.set_ticket(ticket(), demand()));
        drop(ready(&mut granted));
        drop(ready(&mut acquire()));

        let _held = ready(&mut acquire());
        let mut closed = acquire();
        assert!(poll(&mut closed).is_pending());
        gate.close();
        assert!(matches!(poll(&mut closed), Poll::Ready(Err(_))));
        assert!(matches!(poll(&mut acquire()), Poll::Ready(Err(_))));
    });
}

#[test]
fn a_tenant_name_s_destructor_may_use_the_gate() {
    within_guard(|| {
        let mut config = WaitingRoomConfig::default();
        config.discipline = Discipline::Fair;
        config.max_size_per_tenant = Some(2);
        let gate = Gate::new(SlotPool::new(1), config);
        let acquire = || {
            let owner = LookingBytes(gate.clone());
            gate.acquire(ticket().tenant(Tenant::from(Bytes::from_owner(owner))), ())
        };
        let held = gate.try_acquire(&());
        let mut all: Vec<_> = (0..3).map(|_| acquire()).collect();
        let answers: Vec<_> = all.iter_mut().map(poll).collect();
        let owner = LookingBytes(gate.clone());
        let other = ticket().tenant(Tenant::from(Bytes::from_owner(owner)));
        assert!(all[0].set_ticket(other, ()));
        assert!(answers[2].is_ready(), "its share is full");
        drop(held);
        drop(answers);
        drop(all);
        assert_eq!(gate.status().depth, 0);
    });
}

/// Fails if `act` does not end.
fn within_guard(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        act();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(GUARD).expect("it hangs, or panicked");
}

#[derive(Clone, Default)]
struct Looks(Arc<OnceLock<Gate<Curious>>>);

impl Drop for Looks {
    fn drop(&mut self) {
        if let Some(gate) = self.0.get() {
            let _ = gate.status();
        }
    }
}

struct LookingBytes(Gate<SlotPool>);

impl AsRef<[u8]> for LookingBytes {
    fn as_ref(&self) -> &[u8] {
        b"tenant"
    }
}

impl Drop for LookingBytes {
    fn drop(&mut self) {
        let _ = self.0.status();
    }
}

/// Slots for demands with a destructor.
struct Curious(SlotPool);

impl Capacity for Curious {
    type Demand = Looks;
    type Lease = <SlotPool as Capacity>::Lease;
    type Lane = ();
    type Unservable = Infallible;

    fn try_lease(&self, _: &Looks) -> Result<Self::Lease, LeaseError<Infallible>> {
        self.0.try_lease(&())
    }

    fn release(&self, lease: Self::Lease) -> PoolId {
        self.0.release(lease)
    }

    fn pool(&self, lease: &Self::Lease) -> PoolId {
        self.0.pool(lease)
    }

    fn lane(&self, _: &Looks) {}

    fn pools(&self, lane: &()) -> PoolSet {
        self.0.pools(lane)
    }

    fn usage(&self) -> SlotUsage {
        self.0.usage()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}

fn ticket() -> Ticket {
    Ticket::new(Priority::HIGHEST, Instant::now())
}

fn poll<C: Capacity>(acquire: &mut Acquire<C>) -> Poll<<Acquire<C> as Future>::Output> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<C: Capacity>(acquire: &mut Acquire<C>) -> Option<tower_triage::gate::Permit<C>> {
    match poll(acquire) {
        Poll::Ready(Ok(permit)) => Some(permit),
        _ => None,
    }
}

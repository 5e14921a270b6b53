//! The states of an endpoint on demand: random calls beside a naive machine, and threads that take slots meanwhile.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy as _, any};
use proptest::{prop_oneof, proptest};

use super::*;
use crate::endpoints::on_demand::{self, EndpointEnd, OnDemand, Refusal};

const SLOTS: u32 = 2;

fn stopped() -> (Endpoints, OnDemand) {
    let on_demand = OnDemand::default();
    let link = on_demand.clone();
    let endpoints = capacity([on_demand::endpoint("m", &Model::new("m"), SLOTS, link)]);
    (endpoints, on_demand)
}

/// A call of the launcher, or a step of a request.
#[derive(Debug, Clone, Copy)]
enum Call {
    Open,
    Close,
    CloseIfIdle,
    Start,
    End(EndpointEnd),
    /// A request gets no answer.
    Suspect,
    TakeSuspicion,
    SettleSuspicion,
    Refuse(bool),
    TakeSlot,
    ReleaseSlot,
}

fn call() -> impl proptest::strategy::Strategy<Value = Call> {
    prop_oneof![
        1 => Just(Call::Open),
        1 => Just(Call::Close),
        1 => Just(Call::CloseIfIdle),
        1 => Just(Call::Start),
        1 => Just(Call::End(EndpointEnd::Crashed)),
        1 => Just(Call::End(EndpointEnd::Killed)),
        1 => Just(Call::Suspect),
        1 => Just(Call::TakeSuspicion),
        1 => Just(Call::SettleSuspicion),
        1 => any::<bool>().prop_map(Call::Refuse),
        3 => Just(Call::TakeSlot),
        3 => Just(Call::ReleaseSlot),
    ]
}

/// The states as they are meant.
#[derive(Debug, Default)]
struct Naive {
    is_open: bool,
    in_use: u32,
    idled: u64,
    starts: u64,
    end: Option<EndpointEnd>,
    /// The suspicions that the launcher has not taken.
    new: u32,
    is_refused: bool,
}

/// The endpoint under test, with the slots that are taken.
struct Tested {
    endpoints: Endpoints,
    on_demand: OnDemand,
    leases: Vec<EndpointLease>,
}

impl Tested {
    /// Makes a call on both, and compares what it returns.
    fn call(&mut self, call: Call, naive: &mut Naive) {
        let Self {
            endpoints,
            on_demand,
            leases,
        } = self;
        let endpoint = endpoints.endpoints()[0].clone();
        match call {
            Call::Open => {
                endpoint.open_slots();
                naive.is_open = true;
            }
            Call::Close => {
                endpoint.close_slots();
                naive.is_open = false;
            }
            Call::CloseIfIdle => {
                let is_closed = endpoint.close_slots_if_idle();
                assert_eq!(is_closed, naive.in_use == 0);
                naive.is_open &= !is_closed;
            }
            Call::Start => {
                on_demand.set_started();
                (naive.starts, naive.end, naive.new) = (naive.starts + 1, None, 0);
            }
            Call::End(end) => {
                endpoint.close_slots();
                on_demand.set_end(end);
                naive.is_open = false;
                naive.end.get_or_insert(end);
            }
            Call::Suspect => {
                endpoint.suspect();
                (naive.is_open, naive.new) = (false, naive.new + 1);
            }
            Call::TakeSuspicion => {
                assert_eq!(on_demand.take_suspicion(), naive.new > 0);
                naive.new = 0;
            }
            Call::SettleSuspicion => assert_eq!(on_demand.settle_suspicion(), naive.new == 0),
            Call::Refuse(is_refused) => {
                let refusal = is_refused.then_some(Refusal::Unloaded);
                let before = on_demand.set_refusal(refusal);
                assert_eq!(before.is_some(), naive.is_refused);
                naive.is_refused = is_refused;
            }
            Call::TakeSlot => match lease(endpoints, &Requirements::new("m")) {
                Ok(lease) => {
                    assert!(naive.is_open && naive.in_use < SLOTS);
                    leases.push(lease);
                    naive.in_use += 1;
                }
                Err(LeaseError::Busy) => {
                    let waits = naive.is_open || !naive.is_refused;
                    assert!(waits && !(naive.is_open && naive.in_use < SLOTS));
                }
                Err(LeaseError::Unservable(error)) => {
                    assert!(!naive.is_open && naive.is_refused, "{error}");
                }
            },
            Call::ReleaseSlot => {
                if let Some(lease) = leases.pop() {
                    endpoints.release(lease);
                    naive.in_use -= 1;
                    naive.idled += u64::from(naive.in_use == 0);
                }
            }
        }
    }

    fn assert_is(&self, naive: &Naive) {
        let endpoint = &self.endpoints.endpoints()[0];
        assert_eq!(endpoint.is_stopped(), !naive.is_open);
        assert_eq!(endpoint.in_flight(), naive.in_use);
        assert_eq!(self.on_demand.idled().0, naive.idled);
        assert_eq!(self.on_demand.starts(), naive.starts);
        assert_eq!(self.on_demand.end(), naive.end);
    }
}

proptest! {
    #[test]
    fn random_calls_lead_to_the_states_of_a_naive_machine(calls in vec(call(), 1..60)) {
        let (endpoints, on_demand) = stopped();
        let mut tested = Tested { endpoints, on_demand, leases: Vec::new() };
        let mut naive = Naive::default();
        for call in calls {
            tested.call(call, &mut naive);
            tested.assert_is(&naive);
        }
        for lease in tested.leases {
            tested.endpoints.release(lease);
        }
    }
}

#[test]
fn no_thread_gets_a_slot_after_an_idle_endpoint_was_closed() {
    const THREADS: usize = 3;
    const CLOSINGS: u32 = 100;
    let (endpoints, on_demand) = stopped();
    let endpoint = &endpoints.endpoints()[0];
    let (is_closed, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let wrong_grants = AtomicU32::new(0); // asserted at the end, because a panic would leave the other threads running
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let demand = endpoints.demand(&Requirements::new("m"));
                while !is_over.load(SeqCst) {
                    if let Ok(lease) = endpoints.try_lease(&demand) {
                        wrong_grants.fetch_add(is_closed.load(SeqCst).into(), SeqCst);
                        endpoints.release(lease);
                        thread::yield_now(); // a thread that is suspended rarely has a slot then
                    }
                }
            });
        }
        for _ in 0..CLOSINGS {
            let (before, _) = on_demand.idled();
            endpoint.open_slots();
            while on_demand.idled().0 == before || !endpoint.close_slots_if_idle() {
                thread::yield_now();
            }
            is_closed.store(true, SeqCst);
            let served = (0..100).map(|_| endpoint.in_flight()).sum();
            wrong_grants.fetch_add(served, SeqCst);
            is_closed.store(false, SeqCst);
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(wrong_grants.into_inner(), 0);
}

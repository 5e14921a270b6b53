//! The states of an endpoint on demand: random calls beside a naive machine, and threads that take slots meanwhile.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy as _, any};
use proptest::{prop_oneof, proptest};

use super::*;
use crate::admit::{OnDemandCapacity, SlotState};
use crate::endpoints::on_demand::{self, EndpointEnd, OnDemand, Refusal, RefusalId, Suspicion};

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
    Start,
    Started,
    Stopped,
    Ended(EndpointEnd),
    Open,
    Close,
    CloseIfIdle,
    /// A request gets no answer.
    Suspect,
    TakeSuspicion,
    /// The oldest or the newest suspicion is dropped.
    DropSuspicion {
        is_oldest: bool,
    },
    /// The launcher looks, and leaves the suspicions that it saw at its last look to themselves.
    Forget,
    Refuse,
    EndRefusal {
        is_first: bool,
    },
    TakeSlot,
    ReleaseSlot,
}

fn call() -> impl proptest::strategy::Strategy<Value = Call> {
    prop_oneof![
        1 => Just(Call::Start),
        2 => Just(Call::Started),
        1 => Just(Call::Stopped),
        1 => Just(Call::Ended(EndpointEnd::Crashed)),
        1 => Just(Call::Ended(EndpointEnd::Killed)),
        3 => Just(Call::Open),
        1 => Just(Call::Close),
        1 => Just(Call::CloseIfIdle),
        2 => Just(Call::Suspect),
        2 => Just(Call::TakeSuspicion),
        2 => any::<bool>().prop_map(|is_oldest| Call::DropSuspicion { is_oldest }),
        2 => Just(Call::Forget),
        1 => Just(Call::Refuse),
        1 => any::<bool>().prop_map(|is_first| Call::EndRefusal { is_first }),
        4 => Just(Call::TakeSlot),
        4 => Just(Call::ReleaseSlot),
    ]
}

/// A call that matters while a server is suspect.
fn call_of_suspicions() -> impl proptest::strategy::Strategy<Value = Call> {
    prop_oneof![
        2 => Just(Call::Suspect),
        2 => Just(Call::TakeSuspicion),
        1 => any::<bool>().prop_map(|is_oldest| Call::DropSuspicion { is_oldest }),
        3 => Just(Call::Forget),
    ]
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Stopped,
    Starting,
    Running,
}

/// The states as they are meant.
#[derive(Debug, Default)]
struct Naive {
    phase: Phase,
    may_be_open: bool,
    in_use: u32,
    idled: u64,
    starts: u64,
    end: Option<EndpointEnd>,
    /// The number of suspicions.
    suspicions: u32,
    /// The unsettled suspicions that the launcher may still take, with `true` for those that it saw at its last look.
    new: Vec<(u32, bool)>,
    /// The unsettled suspicions that are left to themselves.
    forgotten: Vec<u32>,
    /// The last suspicions of those that the launcher holds.
    held: Vec<u32>,
    refusals: usize,
}

impl Naive {
    fn is_open(&self) -> bool {
        let runs = self.phase == Phase::Running && self.end.is_none();
        let is_suspect =
            !(self.new.is_empty() && self.forgotten.is_empty() && self.held.is_empty());
        runs && self.may_be_open && !is_suspect
    }

    /// Leaves suspicions that were seen before to themselves, and sees the others.
    fn forget(&mut self) {
        let seen = self.new.iter().filter(|(_, is_seen)| *is_seen);
        self.forgotten.extend(seen.map(|(number, _)| *number));
        self.new.retain(|(_, is_seen)| !is_seen);
        self.new.iter_mut().for_each(|(_, is_seen)| *is_seen = true);
        self.settle(0);
    }

    /// Settles the suspicions up to this one, and the forgotten ones if none is held.
    fn settle(&mut self, number: u32) {
        self.new.retain(|&(other, _)| other > number);
        self.held.retain(|&other| other > number);
        self.forgotten
            .retain(|&other| other > number && !self.held.is_empty());
    }

    fn slot_state(&self) -> SlotState {
        match self.phase {
            Phase::Starting => SlotState::Starting { progress: None },
            _ if self.is_open() => SlotState::Ready,
            _ => SlotState::Stopped,
        }
    }
}

/// The endpoint under test, with what requests and the launcher hold.
struct Tested {
    endpoints: Endpoints,
    on_demand: OnDemand,
    leases: Vec<EndpointLease>,
    /// The suspicions that the launcher holds, with their numbers.
    suspicions: Vec<(Suspicion, u32)>,
    refusals: Vec<RefusalId>,
}

impl Tested {
    /// Makes a call on both, and compares what it returns.
    fn call(&mut self, call: Call, naive: &mut Naive) {
        match call {
            Call::Start => {
                let is_stopped = naive.phase == Phase::Stopped;
                assert_eq!(self.on_demand.is_startable(), is_stopped);
                assert_eq!(self.on_demand.start(None).result.is_some(), is_stopped);
                if is_stopped {
                    naive.phase = Phase::Starting;
                }
            }
            Call::Started => {
                self.on_demand.started();
                (naive.phase, naive.may_be_open) = (Phase::Running, false);
                (naive.starts, naive.end) = (naive.starts + 1, None);
                naive.settle(naive.suspicions);
            }
            Call::Stopped => {
                self.on_demand.stopped();
                (naive.phase, naive.may_be_open) = (Phase::Stopped, false);
            }
            Call::Ended(end) => {
                self.on_demand.ended(end);
                if naive.phase == Phase::Running {
                    naive.phase = Phase::Stopped;
                }
                naive.may_be_open = false;
                naive.end.get_or_insert(end);
            }
            Call::Open => {
                self.on_demand.open();
                naive.may_be_open = naive.phase == Phase::Running;
            }
            Call::Close => {
                self.on_demand.close();
                naive.may_be_open = false;
            }
            Call::CloseIfIdle => {
                let is_closed = self.on_demand.close_if_idle().result;
                assert_eq!(is_closed, naive.in_use == 0);
                naive.may_be_open &= !is_closed;
            }
            Call::Suspect | Call::TakeSuspicion | Call::DropSuspicion { .. } | Call::Forget => {
                self.suspicion(call, naive);
            }
            Call::Refuse => {
                let refusal = self.on_demand.refuse(Refusal::Unloaded).result;
                self.refusals.push(refusal);
                naive.refusals += 1;
            }
            Call::EndRefusal { is_first } => {
                if let Some(nth) = self.refusals.len().checked_sub(1) {
                    let ended = self.refusals.remove(if is_first { 0 } else { nth });
                    self.on_demand.end_refusal(ended);
                    naive.refusals -= 1;
                }
            }
            Call::TakeSlot | Call::ReleaseSlot => self.slot(call, naive),
        }
    }

    fn suspicion(&mut self, call: Call, naive: &mut Naive) {
        match call {
            Call::Suspect => {
                self.endpoints.endpoints()[0].suspect();
                naive.suspicions += 1;
                naive.new.push((naive.suspicions, false));
            }
            Call::Forget => {
                let is_noticed = naive.new.iter().any(|(_, is_seen)| *is_seen);
                assert_eq!(self.on_demand.has_noticed(), is_noticed);
                self.on_demand.forget_noticed();
                naive.forget();
            }
            Call::TakeSuspicion => {
                let taken = self.on_demand.take_suspicion();
                assert_eq!(taken.is_some(), !naive.new.is_empty());
                if let Some(taken) = taken {
                    self.suspicions.push((taken, naive.suspicions));
                    naive.held.push(naive.suspicions);
                    naive.new.clear();
                }
            }
            _ => {
                let is_oldest = matches!(call, Call::DropSuspicion { is_oldest: true });
                if let Some(nth) = self.suspicions.len().checked_sub(1) {
                    let (dropped, number) = self.suspicions.remove(if is_oldest { 0 } else { nth });
                    drop(dropped);
                    naive.settle(number);
                }
            }
        }
    }

    fn slot(&mut self, call: Call, naive: &mut Naive) {
        let is_free = naive.is_open() && naive.in_use < SLOTS;
        if matches!(call, Call::ReleaseSlot) {
            if let Some(lease) = self.leases.pop() {
                self.endpoints.release(lease);
                naive.in_use -= 1;
                naive.idled += u64::from(naive.in_use == 0);
            }
            return;
        }
        match lease(&self.endpoints, &Requirements::new("m")) {
            Ok(lease) => {
                assert!(is_free);
                self.leases.push(lease);
                naive.in_use += 1;
            }
            Err(LeaseError::Busy) => {
                assert!(!is_free && (naive.is_open() || naive.refusals == 0));
            }
            Err(LeaseError::Unservable(error)) => {
                assert!(!naive.is_open() && naive.refusals > 0, "{error}");
            }
        }
    }

    fn assert_is(&self, naive: &Naive) {
        let endpoint = &self.endpoints.endpoints()[0];
        assert_eq!(endpoint.is_stopped(), !naive.is_open());
        assert_eq!(endpoint.in_flight(), naive.in_use);
        assert_eq!(self.on_demand.idled().0, naive.idled);
        assert_eq!(self.on_demand.starts(), naive.starts);
        assert_eq!(self.on_demand.end(), naive.end);
        assert_eq!(
            self.endpoints.slot_state(endpoint.pool()),
            naive.slot_state()
        );
    }
}

/// Makes calls on both, and compares the states after each.
fn compare(calls: impl IntoIterator<Item = Call>) {
    let (endpoints, on_demand) = stopped();
    let mut tested = Tested {
        endpoints,
        on_demand,
        leases: Vec::new(),
        suspicions: Vec::new(),
        refusals: Vec::new(),
    };
    let mut naive = Naive::default();
    for call in calls {
        tested.call(call, &mut naive);
        tested.assert_is(&naive);
    }
    for lease in tested.leases {
        tested.endpoints.release(lease);
    }
}

proptest! {
    #[test]
    fn random_calls_lead_to_the_states_of_a_naive_machine(calls in vec(call(), 1..60)) {
        compare(calls);
    }

    #[test]
    fn random_suspicions_close_a_server_as_in_a_naive_machine(
        calls in vec(call_of_suspicions(), 1..30),
    ) {
        compare([Call::Started, Call::Open].into_iter().chain(calls));
    }
}

#[test]
fn no_thread_gets_a_slot_after_an_idle_endpoint_was_closed() {
    const THREADS: usize = 3;
    const CLOSINGS: u32 = 100;
    let (endpoints, on_demand) = stopped();
    let endpoint = &endpoints.endpoints()[0];
    on_demand.started();
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
        for nth in 0..CLOSINGS {
            let (before, _) = on_demand.idled();
            // Half of the times it opens by the end of a suspicion.
            if nth % 2 == 0 {
                endpoint.suspect();
            }
            let suspicion = on_demand.take_suspicion();
            on_demand.open();
            drop(suspicion);
            while on_demand.idled().0 == before || !on_demand.close_if_idle().result {
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

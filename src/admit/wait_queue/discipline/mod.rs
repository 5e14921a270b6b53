//! Disciplines, which define the order within one level of one lane.
//!
//! A [`LevelQueue`] returns its head together with a [`DispatchKey`], which is comparable between lanes of the same
//! discipline. If two lanes can use the same slot, the smaller key goes first.

mod deadline;
mod debts;
mod fair;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::admit::Share;
use crate::admit::flow::FlowWeights;
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::ordered_queue::{ArrivalKey, List, OrderedQueue};
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Tenant};
use deadline::DeadlineQueue;
pub(super) use deadline::key_of as deadline_key;
use debts::Debts;
pub(crate) use fair::UNIT;
use fair::{FairQueue, Rate};

/// The rank of a head within a discipline: the discipline's own key, then a number that decides between equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DispatchKey {
    /// The high and the low word of the discipline's key. A `u128` would be aligned to 16 bytes, and would make the
    /// whole key 32 bytes long instead of 24.
    key: (u64, u64),
    tie_break: u64,
}

impl DispatchKey {
    /// The key that goes after all others.
    const LAST: Self = Self {
        key: (u64::MAX, u64::MAX),
        tie_break: u64::MAX,
    };

    #[inline]
    fn new(high: u64, low: u64, tie_break: u64) -> Self {
        // The two words compare as one number, because the high word comes first.
        let key = (high, low);
        Self { key, tie_break }
    }

    fn of_tag(tag: u128, tie_break: u64) -> Self {
        Self::new((tag >> 64) as u64, tag as u64, tie_break)
    }

    /// Returns the virtual time of a key that was made by [`of_tag`](Self::of_tag).
    fn tag(self) -> u128 {
        u128::from(self.key.0) << 64 | u128::from(self.key.1)
    }
}

/// The service that a tenant's flow has had so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowState {
    /// The virtual time at which the service of the flow's head begins.
    pub(crate) start: u128,
    /// The number of the dispatch since which the flow has its present head. It decides between equal tags.
    pub(crate) since: u64,
}

/// A request that has not been queued, with the data that decide on its position in the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer<'a> {
    pub(crate) key: ArrivalKey,
    pub(crate) level: u8,
    pub(crate) tenant: &'a Tenant,
    pub(crate) cost: u128,
    /// The end of the request's wait.
    pub(crate) end: Nanos,
}

static NO_TENANT: Tenant = Tenant::NONE;

impl Newcomer<'static> {
    /// Returns a newcomer without a tenant that arrives now and goes behind all others of this level.
    pub(crate) fn after_all(level: u8, now: Nanos) -> Self {
        Self {
            key: (now, u64::MAX),
            level,
            tenant: &NO_TENANT,
            cost: 1,
            end: NEVER,
        }
    }
}

/// The waiters of one level of one lane, in the order of the discipline. If levels have weights, one queue has all
/// levels of the lane.
#[derive(Debug)]
pub(crate) enum LevelQueue {
    /// First come, first served.
    Fifo(OrderedQueue),
    /// A queue of flows, boxed because it is much larger than the others.
    Fair(Box<FairQueue>),
    Deadline(DeadlineQueue),
}

impl LevelQueue {
    /// Creates an empty queue.
    pub(crate) fn new(discipline: Discipline, weights: &Arc<FlowWeights>) -> Self {
        match discipline {
            Discipline::Fifo if !weights.have_levels() => Self::Fifo(OrderedQueue::new(List::Lane)),
            Discipline::Fifo | Discipline::Fair => {
                let queue = FairQueue::new(discipline, Arc::clone(weights));
                Self::Fair(Box::new(queue))
            }
            Discipline::Deadline => Self::Deadline(DeadlineQueue::default()),
        }
    }

    /// Adds a waiter, and returns `true` if the head may be another now. `flow` is the state of the waiter's flow if
    /// that has to be opened.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, flow: FlowState) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(waiters, idx),
            Self::Fair(queue) => queue.push(waiters, idx, flow),
            Self::Deadline(queue) => queue.push(waiters, idx),
        }
    }

    /// Removes a waiter that got a slot, and returns the virtual time at which its service ends. `dispatch` is the
    /// number of this dispatch.
    #[inline]
    pub(crate) fn serve<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, dispatch: u64) -> u128 {
        match self {
            Self::Fair(queue) => queue.serve(waiters, idx, dispatch),
            _ => {
                self.remove(waiters, idx);
                // Without flows there is no clock that would use the time.
                0
            }
        }
    }

    /// Removes a waiter that leaves without a slot, and returns `true` if the head may be another now.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.remove(waiters, idx),
            Self::Fair(queue) => queue.remove(waiters, idx),
            Self::Deadline(queue) => queue.remove(waiters, idx),
        }
    }

    /// Removes a waiter until it is restored, and returns `true` if the head may be another now. Its flow keeps its
    /// state.
    pub(crate) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fair(queue) => queue.skip(waiters, idx),
            _ => self.remove(waiters, idx),
        }
    }

    /// Adds a waiter that was skipped, and returns `true` if the head may be another now.
    pub(crate) fn restore<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(waiters, idx),
            Self::Fair(queue) => queue.restore(waiters, idx),
            Self::Deadline(queue) => queue.push(waiters, idx),
        }
    }

    /// Returns the waiter that goes next in this queue.
    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        match self {
            Self::Fifo(queue) => queue.head(),
            Self::Fair(queue) => queue.head(),
            Self::Deadline(queue) => queue.head(),
        }
    }

    /// Returns the key of the head, which orders it among the heads of other lanes.
    #[inline]
    pub(crate) fn head_key<T>(&self, waiters: &Waiters<T>, head: u32) -> DispatchKey {
        match self {
            Self::Fifo(_) => fifo_key(waiters.meta(head).key()),
            Self::Fair(queue) => queue.head_key(),
            Self::Deadline(_) => deadline::key(deadline::key_of(waiters, head)),
        }
    }

    /// Returns the key that a newcomer would have, or `None` if another waiter of its flow goes before it. `flow` is
    /// the state of its flow if that had to be opened.
    pub(crate) fn newcomer_key<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        flow: FlowState,
    ) -> Option<DispatchKey> {
        match self {
            Self::Fifo(_) => Some(fifo_key(newcomer.key)),
            Self::Fair(queue) => queue.newcomer_key(waiters, newcomer, flow),
            Self::Deadline(_) => Some(deadline::key(deadline::place(newcomer.end, newcomer.key))),
        }
    }

    /// Returns the virtual time at which a newcomer's turn is due in this queue, or 0 without flows. `flow` is the state
    /// of its flow if that had to be opened.
    pub(crate) fn turn(&self, newcomer: Newcomer<'_>, flow: FlowState) -> u128 {
        match self {
            Self::Fair(queue) => queue.turn(newcomer, flow),
            _ => 0,
        }
    }

    /// Estimates the number of these waiters that go before a newcomer of the same group, whose turn is due at `tag`.
    pub(crate) fn ahead<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        tag: u128,
    ) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
            Self::Fair(queue) => queue.ahead(waiters, tag),
            Self::Deadline(queue) => queue.ahead(deadline::place(newcomer.end, newcomer.key)),
        }
    }

    /// Charges a share this many units of cost, which are negative for a repayment, and returns `true` if the head may
    /// be another now. `clock` is the virtual time at which a flow of the share would begin.
    pub(crate) fn charge<T>(
        &mut self,
        waiters: &Waiters<T>,
        share: &Share,
        units: i128,
        clock: u128,
    ) -> bool {
        match self {
            Self::Fair(queue) => queue.charge(waiters, share, units, clock),
            _ => false,
        }
    }

    /// Returns the debts of tenants, if they have shares.
    pub(crate) fn debts(&self) -> Option<&Debts> {
        match self {
            Self::Fair(queue) => Some(&queue.debts),
            _ => None,
        }
    }

    /// Takes over the debts of tenants in another queue. `old_clock` and `clock` are the virtual times there and here.
    pub(crate) fn inherit_debts(&mut self, old: &Self, old_clock: u128, clock: u128) {
        if let (Self::Fair(queue), Some(old)) = (self, old.debts()) {
            queue.debts.inherit(old, old_clock, clock);
        }
    }

    /// Returns the state of the waiter's flow, if there are flows.
    pub(crate) fn flow_state<T>(&self, waiters: &Waiters<T>, idx: u32) -> Option<FlowState> {
        match self {
            Self::Fair(queue) => Some(queue.flow_state(waiters, idx)),
            _ => None,
        }
    }

    /// Gives back the memory that the present waiters can do without.
    pub(crate) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        // The other queues have only links, which belong to the waiters.
        if let Self::Fair(queue) = self {
            queue.trim(waiters);
        }
    }

    /// Adds all waiters to `flows`, for a [`forecast`].
    pub(crate) fn snapshot<T>(&self, waiters: &Waiters<T>, flows: &mut Vec<FlowSnapshot>) {
        match self {
            Self::Fifo(queue) => {
                let key = |idx: u32| fifo_key(waiters.meta(idx).key());
                let all = queue.to_vec(waiters).into_iter();
                flows.extend(all.map(|idx| FlowSnapshot::one(key(idx), idx)));
            }
            Self::Fair(queue) => flows.extend(queue.snapshot(waiters)),
            Self::Deadline(queue) => flows.extend(queue.snapshot()),
        }
    }
}

/// Returns the key of a waiter in the order of arrival, which orders it among the heads of other lanes.
#[inline]
fn fifo_key((since, seq): ArrivalKey) -> DispatchKey {
    DispatchKey::new(since, seq, 0)
}

/// A sequence of waiters that keep their order among each other, which is a flow or a single waiter.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowSnapshot {
    /// The key of the sequence's head.
    key: DispatchKey,
    /// The rate at which the key grows from one waiter to the next.
    rate: Rate,
    /// The waiters in reverse order, because the head is cheap to take from the end.
    line: Vec<u32>,
}

impl FlowSnapshot {
    fn one(key: DispatchKey, idx: u32) -> Self {
        Self::new(key, Rate::ONE, vec![idx])
    }

    fn new(key: DispatchKey, rate: Rate, mut line: Vec<u32>) -> Self {
        // `forecast` takes from the end.
        line.reverse();
        Self { key, rate, line }
    }
}

/// Returns the order in which the waiters of one level would be served if all arrivals stopped. `dispatches` is the
/// number of the latest dispatch.
pub(crate) fn forecast<T>(
    waiters: &Waiters<T>,
    flows: Vec<FlowSnapshot>,
    mut dispatches: u64,
) -> Vec<u32> {
    let mut flows: BinaryHeap<Reverse<FlowSnapshot>> = flows.into_iter().map(Reverse).collect();
    let mut order = Vec::new();
    // The loop ends because each round takes a waiter.
    while let Some(Reverse(mut flow)) = flows.pop() {
        order.extend(flow.line.pop());
        if let Some(&next) = flow.line.last() {
            // The key moves on as in `FairQueue::serve`. In other disciplines every flow has only one waiter.
            dispatches += 1;
            let price = flow.rate.price(waiters.meta(next).cost());
            flow.key = DispatchKey::of_tag(flow.key.tag() + price, dispatches);
            flows.push(Reverse(flow));
        }
    }
    order
}

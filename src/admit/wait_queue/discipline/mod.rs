//! Disciplines: the order within one level of one lane.
//!
//! A [`LevelQueue`] names its head together with a [`DispatchKey`], which is comparable between lanes of the same
//! discipline: where two lanes can use the same slot, the smaller key goes first.

mod deadline;
mod debts;
mod fair;
mod fifo;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::admit::account::Share;
use crate::admit::age_order::AgeOrder;
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Tenant, WaitingRoomConfig};
use deadline::DeadlineQueue;
pub(super) use deadline::key_of as deadline_key;
use fair::{FairQueue, Rate};
use fifo::FifoQueue;

/// The order of heads within a discipline: its own key, then a number that decides between equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DispatchKey {
    /// The high and the low word. A `u128` would be aligned to 16 bytes, and make the key 32 bytes long instead of 24.
    key: (u64, u64),
    tie_break: u64,
}

impl DispatchKey {
    /// After all others.
    const LAST: Self = Self {
        key: (u64::MAX, u64::MAX),
        tie_break: u64::MAX,
    };

    #[inline]
    fn new(high: u64, low: u64, tie_break: u64) -> Self {
        // Compared as one number, the high word first.
        let key = (high, low);
        Self { key, tie_break }
    }

    /// The key of a virtual time.
    fn of_tag(tag: u128, tie_break: u64) -> Self {
        Self::new((tag >> 64) as u64, tag as u64, tie_break)
    }

    /// The virtual time of a key that was made of one.
    fn tag(self) -> u128 {
        u128::from(self.key.0) << 64 | u128::from(self.key.1)
    }
}

/// The service that a tenant's flow has had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowState {
    /// The virtual time at which its head's service begins.
    pub(crate) start: u128,
    /// Decides between equal tags: the number of the dispatch since which its head is the head.
    pub(crate) since: u64,
}

/// A request that has not been queued: what decides on its place in the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer<'a> {
    pub(crate) key: ArrivalKey,
    pub(crate) level: u8,
    pub(crate) tenant: &'a Tenant,
    pub(crate) cost: u128,
    /// The end of its wait.
    pub(crate) end: Nanos,
}

static NO_TENANT: Tenant = Tenant::NONE;

impl Newcomer<'static> {
    /// One of no tenant that arrives now, behind all of this level.
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

/// The waiters of one level of one lane, or of all levels if those have weights, in the order of the discipline.
#[derive(Debug)]
pub(crate) enum LevelQueue {
    Fifo(FifoQueue),
    /// Boxed: it is much larger than the others.
    Fair(Box<FairQueue>),
    Deadline(DeadlineQueue),
}

impl LevelQueue {
    /// `is_weighted`: whether levels have weights.
    pub(crate) fn new(discipline: Discipline, is_weighted: bool, order: AgeOrder) -> Self {
        match discipline {
            Discipline::Fifo if !is_weighted => Self::Fifo(FifoQueue::new(order)),
            Discipline::Fifo | Discipline::Fair => {
                Self::Fair(Box::new(FairQueue::new(discipline, order)))
            }
            Discipline::Deadline => Self::Deadline(DeadlineQueue::default()),
        }
    }

    /// Adds a waiter, and says whether the head may be another now. `flow` is the state of its tenant's flow, if that has to
    /// be opened.
    #[inline]
    pub(crate) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        idx: u32,
        flow: FlowState,
        config: &WaitingRoomConfig,
    ) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(waiters, idx),
            Self::Fair(queue) => queue.push(waiters, idx, flow, config),
            Self::Deadline(queue) => queue.push(waiters, idx),
        }
    }

    /// Sets which of equals goes next. O(flows).
    pub(crate) fn set_age_order<T>(&mut self, waiters: &Waiters<T>, order: AgeOrder) {
        match self {
            Self::Fifo(queue) => queue.order = order,
            Self::Fair(queue) => queue.set_age_order(waiters, order),
            Self::Deadline(_) => {}
        }
    }

    /// Removes a waiter that got a slot, and returns the virtual time at which its service ends. `dispatch` is the number of
    /// this dispatch.
    #[inline]
    pub(crate) fn serve<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, dispatch: u64) -> u128 {
        match self {
            Self::Fair(queue) => queue.serve(waiters, idx, dispatch),
            _ => {
                self.remove(waiters, idx);
                // No clock asks for it.
                0
            }
        }
    }

    /// Removes a waiter for any other reason, and says whether the head may be another now.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.remove(waiters, idx),
            Self::Fair(queue) => queue.remove(waiters, idx),
            Self::Deadline(queue) => queue.remove(waiters, idx),
        }
    }

    /// As [`remove`](Self::remove), until the waiter is restored. Its flow keeps its state.
    pub(crate) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fair(queue) => queue.skip(waiters, idx),
            _ => self.remove(waiters, idx),
        }
    }

    /// Adds a waiter that was skipped, and says whether the head may be another now.
    pub(crate) fn restore<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(waiters, idx),
            Self::Fair(queue) => queue.restore(waiters, idx),
            Self::Deadline(queue) => queue.push(waiters, idx),
        }
    }

    /// The waiter that goes next in this queue.
    #[inline]
    pub(crate) fn head<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        match self {
            Self::Fifo(queue) => queue.head(waiters),
            Self::Fair(queue) => queue.head(waiters),
            Self::Deadline(queue) => queue.head(),
        }
    }

    /// The key of that waiter, which orders it among those of other lanes.
    #[inline]
    pub(crate) fn head_key<T>(&self, waiters: &Waiters<T>, head: u32) -> DispatchKey {
        match self {
            Self::Fifo(queue) => queue.key(waiters.meta(head).key()),
            Self::Fair(queue) => queue.head_key(),
            Self::Deadline(_) => deadline::key(deadline::key_of(waiters, head)),
        }
    }

    /// The key that a newcomer would have; `None` if another waiter of its flow goes before it. `flow` is the state of its
    /// tenant's flow, if that had to be opened.
    pub(crate) fn newcomer_key<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        flow: FlowState,
        config: &WaitingRoomConfig,
    ) -> Option<DispatchKey> {
        match self {
            Self::Fifo(queue) => Some(queue.key(newcomer.key)),
            Self::Fair(queue) => queue.newcomer_key(waiters, newcomer, flow, config),
            Self::Deadline(_) => Some(deadline::key(deadline::place(newcomer.end, newcomer.key))),
        }
    }

    /// The virtual time at which a newcomer's turn is due in this queue; 0 where there are no flows. `flow` as for
    /// [`newcomer_key`](Self::newcomer_key).
    pub(crate) fn newcomer_tag(
        &self,
        newcomer: Newcomer<'_>,
        flow: FlowState,
        config: &WaitingRoomConfig,
    ) -> u128 {
        match self {
            Self::Fair(queue) => queue.newcomer_tag(newcomer, flow, config),
            _ => 0,
        }
    }

    /// About how many of these waiters go before a newcomer of the same group, whose turn is due at `tag`. `passed`: the
    /// flow of which none does.
    pub(crate) fn ahead<T>(
        &self,
        waiters: &Waiters<T>,
        newcomer: Newcomer<'_>,
        tag: u128,
        passed: Option<u32>,
    ) -> usize {
        match self {
            // Not asked for: `backlog` counts a group in the order of arrival as a whole.
            Self::Fifo(queue) => queue.len(),
            Self::Fair(queue) => queue.ahead(waiters, tag, passed),
            Self::Deadline(queue) => queue.ahead(deadline::place(newcomer.end, newcomer.key)),
        }
    }

    /// The flow of which no waiter goes before a newcomer, if there is one.
    pub(crate) fn passed(&self, newcomer: Newcomer<'_>, config: &WaitingRoomConfig) -> Option<u32> {
        match self {
            Self::Fair(queue) => queue.passed(newcomer, config),
            _ => None,
        }
    }

    /// Charges a share `cost` units more, and says whether the head may be another now. `clock` is the virtual time at
    /// which a flow of it would begin.
    pub(crate) fn charge<T>(
        &mut self,
        waiters: &Waiters<T>,
        share: &Share,
        cost: u32,
        clock: u128,
        config: &WaitingRoomConfig,
    ) -> bool {
        match self {
            Self::Fair(queue) => queue.charge(waiters, share, cost, clock, config),
            _ => false,
        }
    }

    /// Whether a tenant owes anything.
    pub(crate) fn has_debts(&self) -> bool {
        match self {
            Self::Fair(queue) => queue.has_debts(),
            _ => false,
        }
    }

    /// Takes over what tenants owe in another queue. `old_clock` and `clock`: the virtual times there and here.
    pub(crate) fn inherit_debts(&mut self, old: &Self, old_clock: u128, clock: u128) {
        if let (Self::Fair(queue), Self::Fair(old)) = (self, old) {
            queue.inherit_debts(old, old_clock, clock);
        }
    }

    /// The state of the waiter's flow, if there are flows.
    pub(crate) fn flow_state<T>(&self, waiters: &Waiters<T>, idx: u32) -> Option<FlowState> {
        match self {
            Self::Fair(queue) => Some(queue.flow_state(waiters, idx)),
            _ => None,
        }
    }

    /// Gives back memory that the present waiters do not need.
    pub(crate) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        // The links of the others are those of the waiters.
        if let Self::Fair(queue) = self {
            queue.trim(waiters);
        }
    }

    /// Adds all waiters to `flows`, for a [`forecast`].
    pub(crate) fn snapshot<T>(&self, waiters: &Waiters<T>, flows: &mut Vec<FlowSnapshot>) {
        match self {
            Self::Fifo(queue) => flows.extend(queue.snapshot(waiters)),
            Self::Fair(queue) => flows.extend(queue.snapshot(waiters)),
            Self::Deadline(queue) => flows.extend(queue.snapshot()),
        }
    }
}

/// A sequence of waiters that keep their order among each other: a flow, or one waiter.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowSnapshot {
    /// The key of its head.
    key: DispatchKey,
    /// By what its next key grows.
    rate: Rate,
    /// The head is last, where it is cheap to take.
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

/// The order in which the waiters of one level would be served if no other request arrived. `dispatches` is the number of
/// the latest dispatch.
pub(crate) fn forecast<T>(
    waiters: &Waiters<T>,
    flows: Vec<FlowSnapshot>,
    mut dispatches: u64,
) -> Vec<u32> {
    let mut flows: BinaryHeap<Reverse<FlowSnapshot>> = flows.into_iter().map(Reverse).collect();
    let mut order = Vec::new();
    // Ends because each round takes a waiter.
    while let Some(Reverse(mut flow)) = flows.pop() {
        order.extend(flow.line.pop());
        if let Some(&next) = flow.line.last() {
            // As `FairQueue::serve` does. Other disciplines have no second waiter in a flow.
            dispatches += 1;
            let price = flow.rate.price(waiters.meta(next).cost());
            flow.key = DispatchKey::of_tag(flow.key.tag() + price, dispatches);
            flows.push(Reverse(flow));
        }
    }
    order
}

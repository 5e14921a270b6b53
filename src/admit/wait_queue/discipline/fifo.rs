//! The discipline `fifo`: first come, first served.

use super::{DispatchKey, FlowSnapshot};
use crate::admit::ordered_queue::{ArrivalKey, OrderedQueue};
use crate::admit::waiters::Waiters;

/// The key of a waiter among the heads of other lanes.
#[inline]
pub(super) fn key((since, seq): ArrivalKey) -> DispatchKey {
    DispatchKey::new(since, seq, 0)
}

/// All waiters of one level of one lane, in the order of arrival.
pub(super) fn snapshot<T>(
    queue: &OrderedQueue,
    waiters: &Waiters<T>,
) -> impl Iterator<Item = FlowSnapshot> {
    let all = queue.to_vec(waiters).into_iter();
    all.map(|idx| FlowSnapshot::one(key(waiters.meta(idx).key()), idx))
}

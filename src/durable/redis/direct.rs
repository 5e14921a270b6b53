//! Requests that begin in the same step in which they are stored, because a worker of this process has a free slot.

use std::sync::{Mutex, PoisonError, Weak};

use bytes::Bytes;
use redis::Value;

use super::batch::Item;
use super::reply::{self, Unexpected};
use super::shared::Shared;
use crate::durable::{Fetched, FreePlace, IdleWorker, Lease};

/// The workers of this process.
#[derive(Default)]
pub(super) struct IdleWorkers(Mutex<Vec<Weak<dyn IdleWorker>>>);

impl IdleWorkers {
    pub(super) fn add(&self, worker: Weak<dyn IdleWorker>) {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|known| known.strong_count() > 0);
        workers.push(worker);
    }

    /// Returns a place for a request of this queue, from the first worker that has one.
    fn try_place(&self, queue: &str) -> Option<FreePlace> {
        let workers: Vec<_> = {
            let workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            workers.iter().filter_map(Weak::upgrade).collect()
        };
        workers.iter().find_map(|worker| worker.try_place(queue))
    }
}

/// A new request that may begin as soon as it is stored.
pub(super) struct Startable {
    pub(super) queue: String,
    pub(super) request: Bytes,
}

/// The places for the requests of one call that stores requests. Dropping it frees them.
pub(super) struct Direct<'a> {
    shared: &'a Shared,
    places: Vec<Option<(FreePlace, Startable)>>,
    /// The number of this call among the fetches, because the call may return leases.
    number: u64,
}

impl<'a> Direct<'a> {
    /// Takes a place for each request that may begin, and tells the script of it in one more argument of its item.
    ///
    /// This happens just before the call, because a slot must not wait for the calls before it.
    pub(super) fn new(
        shared: &'a Shared,
        items: &mut [Item],
        startable: Vec<Option<Startable>>,
    ) -> Self {
        let mut places = Vec::with_capacity(items.len());
        for (item, startable) in items.iter_mut().zip(startable) {
            let place = startable.and_then(|startable| {
                let place = shared.workers.try_place(&startable.queue)?;
                Some((place, startable))
            });
            item.push(vec![if place.is_some() { b'1' } else { b'0' }]);
            places.push(place);
        }
        Self {
            shared,
            places,
            number: shared.leases.begin_fetch(),
        }
    }

    /// Runs the requests that have begun, and returns the replies as if these requests were queued.
    pub(super) fn finish(
        mut self,
        items: &[Item],
        mut replies: Vec<Value>,
    ) -> Result<Vec<Value>, Unexpected> {
        let places = std::mem::take(&mut self.places).into_iter();
        for ((reply, item), place) in replies.iter_mut().zip(items).zip(places) {
            // The reply of another length is a request that was known before.
            if let (Value::Array(parts), Some((place, startable))) = (&*reply, place)
                && let [_, now, state, fence] = parts.as_slice()
            {
                let (now, state, fence) = (now.clone(), state.clone(), fence.clone());
                place(self.fetched(item, state, fence, startable)?);
                *reply = now;
            }
        }
        Ok(replies)
    }

    /// Returns a request that has begun, and adds its lease.
    fn fetched(
        &self,
        item: &Item,
        state: Value,
        fence: Value,
        startable: Startable,
    ) -> Result<Fetched, Unexpected> {
        let of_item = |index: usize| item.get(index).cloned().map(Value::BulkString);
        let (id, facts) = of_item(0).zip(of_item(1)).ok_or(Unexpected)?;
        let info = reply::info(Value::Array(vec![id, facts, state]))?;
        let lease = Lease::new(info.id, info.attempts, reply::text(fence)?);
        self.shared.leases.add(std::iter::once(&lease));
        Ok(Fetched::new(lease, info, startable.request))
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.shared.leases.end_fetch(self.number);
        // If the reply was lost, the renewal task finds the leases as strays.
        if self.places.iter().any(Option::is_some) {
            self.shared.claim.notify_one();
        }
    }
}

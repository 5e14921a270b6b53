//! Estimates of the remaining wait of a request, made from the requests that were served lately.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Listing, RequestStatus, Store, StoreError};

/// The recent pace of each queue, measured when a page asks for it and then reused for a few seconds.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    queues: Mutex<HashMap<String, Measured>>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    /// The time from one start to the next, or `None` if the queue has yet to serve a request. It outlasts the requests
    /// that it was measured from.
    per_request: Option<Duration>,
}

impl Estimates {
    /// Returns the time that a request at this position of a queue will probably still wait. Returns `None` as long as
    /// the queue has served nothing that could be measured.
    pub(super) async fn of(
        &self,
        store: &dyn Store,
        queue: &str,
        position: u64,
    ) -> Result<Option<Duration>, StoreError> {
        let known = self.lock().get(queue).copied();
        let per_request = match known {
            Some(known) if known.at.elapsed() < KEPT => known.per_request,
            _ => {
                let per_request = measure(store, queue).await?;
                let per_request = per_request.or(known.and_then(|known| known.per_request));
                let at = Instant::now();
                let mut queues = self.lock();
                // Dropping all measurements bounds the memory, and each of them is soon made again on demand.
                if queues.len() >= MOST_QUEUES {
                    queues.clear();
                }
                queues.insert(queue.to_owned(), Measured { at, per_request });
                per_request
            }
        };
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        Ok(per_request.map(|per_request| per_request.saturating_mul(position)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Measured>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time for which a measurement is reused.
const KEPT: Duration = Duration::from_secs(5);

/// The number of queues at which all measurements are dropped, which bounds their memory.
const MOST_QUEUES: usize = 1_024;

/// The number of served requests, over all queues, that a measurement looks at together.
const PAGE: usize = 100;

/// The largest number of pages that a measurement looks at until it finds a request of its queue.
const MOST_PAGES: usize = 10;

/// Returns the service times of the latest requests of a queue. Requests of busier queues may lie between them, so a
/// queue that has no request on the first page of the list is looked for on the next ones.
async fn latest_times(store: &dyn Store, queue: &str) -> Result<Vec<Duration>, StoreError> {
    let mut listing = Listing {
        status: Some(RequestStatus::Succeeded),
        limit: PAGE,
        ..Listing::default()
    };
    for _ in 0..MOST_PAGES {
        let page = store.list(listing.clone()).await?;
        let of_queue = page.requests.iter().filter(|info| info.queue == queue);
        let times = of_queue.filter_map(|info| info.ended?.duration_since(info.started?).ok());
        let times: Vec<Duration> = times.collect();
        if !times.is_empty() {
            return Ok(times);
        }
        listing.after = page.requests.last().map(|info| info.id);
        if !page.has_more {
            break;
        }
    }
    Ok(Vec::new())
}

/// Returns the mean service time of the latest requests, divided by the number of requests that run in parallel.
async fn measure(store: &dyn Store, queue: &str) -> Result<Option<Duration>, StoreError> {
    let times = latest_times(store, queue).await?;
    let Ok(count @ 1..) = u32::try_from(times.len()) else {
        return Ok(None);
    };
    let mean = times.iter().sum::<Duration>() / count;
    let depths = store.depths().await?;
    let of_queue = depths.iter().filter(|depth| depth.queue == queue);
    let running = of_queue.map(|depth| depth.running).sum::<u64>().max(1);
    Ok(Some(mean / u32::try_from(running).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::stub::Stub;
    use crate::{RequestId, RequestInfo};

    fn serve(store: &Stub, queue: &str, time: Duration) {
        let id = RequestId::random().unwrap();
        let began = SystemTime::UNIX_EPOCH;
        let mut info = RequestInfo::queued(id, began);
        info.queue = queue.to_owned();
        info.status = RequestStatus::Succeeded;
        (info.started, info.ended) = (Some(began), Some(began + time));
        store.requests.lock().unwrap().push(info);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rare_queue_beside_a_busy_one_has_an_estimate() {
        let store = Stub::default();
        let estimates = Estimates::default();
        let second = Duration::from_secs(1);
        serve(&store, "rare", 3 * second);
        for _ in 0..2 * PAGE {
            serve(&store, "busy", second);
        }
        let of = async |queue| estimates.of(&store, queue, 2).await.unwrap();
        assert_eq!(of("rare").await, Some(6 * second));
        assert_eq!(of("busy").await, Some(2 * second));
        assert_eq!(of("unknown").await, None);
        // An estimate outlasts the requests that it was made from.
        for _ in 0..PAGE * MOST_PAGES {
            serve(&store, "busy", second);
        }
        tokio::time::sleep(2 * KEPT).await;
        assert_eq!(of("rare").await, Some(6 * second));
    }
}

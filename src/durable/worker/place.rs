//! A service that is ready, and a slot for its next call.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_service::Service;

use super::{NoSlot, Shared, Slot, SlotWait};
use crate::admit::Tenant;
use crate::durable::QueueHead;
use crate::{Priority, Ticket};

/// A wait for the readiness of a service, and then for a slot.
///
/// In this order: where the service reserves something when it is ready, such as a place in a waiting room, a slot is not held
/// up by that.
pub(super) struct Place<S> {
    queue: Arc<str>,
    service: Option<S>,
    is_ready: bool,
    /// `None` before the service is ready, and where its readiness is the slot.
    wait: Option<Box<dyn SlotWait>>,
    /// The time at which the wait began.
    since: Since,
    ticket: Ticket,
}

/// One instant by both clocks.
#[derive(Clone, Copy)]
struct Since {
    instant: Instant,
    time: SystemTime,
}

/// The needs of one call: a service that is ready, and a slot.
pub(super) struct Start<S> {
    pub(super) service: S,
    pub(super) slot: Slot,
}

/// The reason why there is no place.
pub(super) enum NoPlace {
    NoSlot(NoSlot),
    /// The service failed when it was asked whether it is ready.
    Service(Box<dyn Error + Send + Sync>),
}

impl<S> Place<S>
where
    S: Service<Request<Full<Bytes>>, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    /// Begins to wait for a queue's most urgent request.
    pub(super) fn new(queue: Arc<str>, service: S, head: &QueueHead) -> Self {
        let since = Since {
            instant: tokio::time::Instant::now().into_std(),
            time: SystemTime::now(),
        };
        Self {
            queue,
            service: Some(service),
            is_ready: false,
            wait: None,
            since,
            ticket: ticket(head, since),
        }
    }

    /// Waits on for another request. Returns `false` if that is too late, because the slot is there.
    pub(super) fn set_head(&mut self, head: &QueueHead) -> bool {
        self.ticket = ticket(head, self.since);
        match &mut self.wait {
            Some(wait) => wait.set_ticket(self.ticket.clone()),
            None => true,
        }
    }

    pub(super) fn poll(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Start<S>, NoPlace>> {
        let Some(service) = &mut self.service else {
            return Poll::Pending; // it was taken
        };
        if !self.is_ready {
            let is_ready = ready!(service.poll_ready(cx));
            is_ready.map_err(|error| NoPlace::Service(error.into()))?;
            self.is_ready = true;
        }
        let slot = match &shared.settings.slots {
            Some(slots) => {
                let begin = || slots.wait(&self.queue, self.ticket.clone());
                let wait = self.wait.get_or_insert_with(begin);
                ready!(wait.poll_slot(cx)).map_err(NoPlace::NoSlot)?
            }
            None => Slot::of_ready_service(),
        };
        Poll::Ready(match self.service.take() {
            Some(service) => Ok(Start { service, slot }),
            None => return Poll::Pending,
        })
    }
}

/// Returns the ticket of a request that its queue waits with since `since`.
fn ticket(head: &QueueHead, since: Since) -> Ticket {
    let after = |time: SystemTime| time.duration_since(since.time).unwrap_or_default();
    // The wait's own time: with that of the oldest request, a long backlog would pass all that arrived after it.
    let arrival = since.instant + after(head.info.created);
    let mut ticket = Ticket::new(Priority(head.info.level), arrival)
        .tenant(Tenant::from(Bytes::copy_from_slice(&head.info.tenant)))
        .cost(head.cost);
    let deadline = head.info.deadline.map(after);
    ticket.deadline = deadline.and_then(|after| since.instant.checked_add(after));
    ticket
}

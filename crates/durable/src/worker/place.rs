//! A wait for both a ready service and a slot.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_service::Service;

use super::{NoSlot, Shared, Slot, SlotWait};
use crate::QueueHead;
use tower_triage::admit::Tenant;
use tower_triage::{Priority, Ticket};

/// A wait for the readiness of a service, and then for a slot.
///
/// The service comes first because it may reserve something when it is ready, such as a place in a waiting room. In the
/// other order, a slot would be idle during that wait.
pub(super) struct Place<S> {
    queue: Arc<str>,
    service: Option<S>,
    is_ready: bool,
    /// The wait for the slot. It is `None` until the service is ready, and also if the readiness of the service is the
    /// slot.
    wait: Option<Box<dyn SlotWait>>,
    /// The time at which this wait began.
    since: Since,
    /// The ticket with which the slot is requested.
    ticket: Ticket,
}

/// A single instant on both clocks, so that a time on one clock can be converted to the other.
#[derive(Clone, Copy)]
struct Since {
    instant: Instant,
    time: SystemTime,
}

/// A ready service and a slot, which together allow one call.
pub(super) struct Start<S> {
    pub(super) service: S,
    pub(super) slot: Slot,
}

/// The reason why a wait ended without a place.
pub(super) enum NoPlace {
    /// The source of slots refused the wait or is closed.
    NoSlot(NoSlot),
    /// The service failed in its `poll_ready`.
    Service(Box<dyn Error + Send + Sync>),
}

impl<S> Place<S>
where
    S: Service<Request<Full<Bytes>>, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    /// Begins a wait on behalf of the most urgent request of a queue.
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

    /// Continues the wait on behalf of another request. Returns `false` if the slot was granted already.
    pub(super) fn set_head(&mut self, head: &QueueHead) -> bool {
        self.ticket = ticket(head, self.since);
        match &mut self.wait {
            Some(wait) => wait.set_ticket(self.ticket.clone()),
            None => true,
        }
    }

    /// Polls for the service and the slot. After it has returned them, further polls stay pending.
    pub(super) fn poll(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Start<S>, NoPlace>> {
        let Some(service) = &mut self.service else {
            return Poll::Pending; // the place was handed out before
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

/// Returns the ticket for the head of a queue that has waited for a slot since `since`.
fn ticket(head: &QueueHead, since: Since) -> Ticket {
    let after = |time: SystemTime| time.duration_since(since.time).unwrap_or_default();
    // The arrival is the start of this wait, or the creation of the request if that is later. With the arrival of the
    // oldest request, a long backlog would pass every online request that arrived after that.
    let arrival = since.instant + after(head.info.created);
    let mut ticket = Ticket::new(Priority(head.info.level), arrival)
        .tenant(Tenant::from(Bytes::copy_from_slice(&head.info.tenant)))
        .cost(head.cost);
    let deadline = head.info.deadline.map(after);
    ticket.deadline = deadline.and_then(|after| since.instant.checked_add(after));
    ticket
}

//! Who reads a request's ticket.

use std::time::Instant;

use crate::admit::Ticket;
use crate::http::HeaderClassifier;

/// Reads the ticket of a request that has to wait.
///
/// Implemented by [`FromHeaders`], by [`DefaultPriority`], and by every closure `Fn(&Req, Instant) -> Ticket`, which
/// gets the request and the instant of its arrival. It is not asked about requests that find a free slot,
/// nor about those that find every chair taken where no ticket could change that. If it panics, nothing is held.
///
/// Those who need no more than a closure lose what the headers say. One that adds to it:
///
/// ```
/// use std::time::Instant;
/// use http::Request;
/// use tower_triage::queue::HeaderClassifier;
/// use tower_triage::queue::Classify;
/// use tower_triage::{Discipline, QueueConfig, QueueLayer, Ticket};
///
/// /// Long prompts take more of their tenant's share.
/// #[derive(Clone)]
/// struct ByLength;
///
/// impl<B> Classify<Request<B>> for ByLength {
///     fn ticket(&self, request: &Request<B>, headers: &HeaderClassifier, arrival: Instant) -> Ticket {
///         let length = request.headers().get("content-length");
///         let bytes: u32 = length.and_then(|n| n.to_str().ok()?.parse().ok()).unwrap_or(0);
///         headers.ticket(request.headers(), arrival).cost(1 + bytes / 1024)
///     }
/// }
///
/// let queue = QueueLayer::new(QueueConfig::new(8).discipline(Discipline::Fair)).classify(ByLength);
/// ```
pub trait Classify<Req> {
    /// The ticket of `request`, which arrived at `arrival`. `headers` reads what the configuration says is
    /// in them, and knows the names of the levels.
    fn ticket(&self, request: &Req, headers: &HeaderClassifier, arrival: Instant) -> Ticket;
}

/// Tickets from the headers that the configuration names.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromHeaders;

impl<B> Classify<http::Request<B>> for FromHeaders {
    fn ticket(
        &self,
        request: &http::Request<B>,
        headers: &HeaderClassifier,
        arrival: Instant,
    ) -> Ticket {
        headers.ticket(request.headers(), arrival)
    }
}

/// The default priority for everyone: for requests that are not HTTP.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultPriority;

impl<Req> Classify<Req> for DefaultPriority {
    fn ticket(&self, _: &Req, headers: &HeaderClassifier, arrival: Instant) -> Ticket {
        Ticket::new(headers.default_priority(), arrival)
    }
}

impl<Req, F> Classify<Req> for F
where
    F: Fn(&Req, Instant) -> Ticket,
{
    fn ticket(&self, request: &Req, _: &HeaderClassifier, arrival: Instant) -> Ticket {
        self(request, arrival)
    }
}

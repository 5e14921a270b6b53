//! Who reads a request's ticket.

use std::time::Instant;

use crate::admit::Ticket;
use crate::http::HeaderClassifier;

/// Reads the ticket of a request that has to wait.
///
/// Implemented by [`ByHeaders`], by [`Everyone`], and by every closure `Fn(&Req, Instant) -> Ticket`, which
/// gets the request and the instant of its arrival. It is not asked about requests that find a free slot,
/// nor about those that find every chair taken where no ticket could change that. If it panics, nothing is held.
pub trait Classify<Req> {
    /// The ticket of `request`, which arrived at `arrival`.
    fn ticket(&self, request: &Req, headers: &HeaderClassifier, arrival: Instant) -> Ticket;
}

/// Tickets from the headers that the configuration names.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByHeaders;

impl<B> Classify<http::Request<B>> for ByHeaders {
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
pub struct Everyone;

impl<Req> Classify<Req> for Everyone {
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

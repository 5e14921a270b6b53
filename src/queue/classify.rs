//! Classifiers, which read the tickets of requests.

use std::time::Instant;

use http::HeaderMap;

use crate::admit::{Priority, PriorityLevels, Ticket};
use crate::clock;
use crate::http::HeaderClassifier;

/// A classifier, which reads the ticket of a request that has to wait. It may be called more than once for a request.
///
/// Implemented by [`FromHeaders`], by [`DefaultPriority`], and by every closure `Fn(&Req, &ClassifyContext<'_>) ->
/// Ticket`. It is not called for a request that finds a free slot and the inner service ready, unless tenants are charged
/// for their slots under [`Fair`](crate::Discipline::Fair), or for a request that a full room rejects whatever its ticket
/// says. If it panics, the request holds neither a slot nor a place.
///
/// A [`ClassifyContext`] offers the values of the headers and of the configuration to build on. Pass a type of your own
/// to `classify_with`, and a closure to `classify`:
///
/// ```
/// use http::Request;
/// use tower_triage::queue::{Classify, ClassifyContext};
/// use tower_triage::{Discipline, QueueConfig, QueueLayer, Ticket};
///
/// /// Long prompts take more of their tenant's share.
/// #[derive(Clone)]
/// struct ByLength;
///
/// impl<B> Classify<Request<B>> for ByLength {
///     fn ticket(&self, request: &Request<B>, context: &ClassifyContext<'_>) -> Ticket {
///         let length = request.headers().get("content-length");
///         let bytes: u32 = length.and_then(|n| n.to_str().ok()?.parse().ok()).unwrap_or(0);
///         context.ticket_from_headers(request.headers()).cost(1 + bytes / 1024)
///     }
/// }
///
/// let queue = QueueLayer::new(QueueConfig::new(8).discipline(Discipline::Fair)).classify_with(ByLength);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't classify requests of the type `{Req}`",
    label = "reads no ticket from a `{Req}`",
    note = "a classifier is `FromHeaders` (of `http::Request`), `DefaultPriority`, a closure `|request: &{Req}, context| -> Ticket`, or a type that implements `Classify<{Req}>`",
    note = "for a service that is not HTTP, make the layer with `QueueLayer::plain`"
)]
pub trait Classify<Req> {
    /// Returns the ticket of `request`.
    fn ticket(&self, request: &Req, context: &ClassifyContext<'_>) -> Ticket;

    /// Returns the priority of `request`, if it can be read without the rest of the ticket.
    ///
    /// The priority has to be the same as in the ticket. A full room then rejects the request faster if it cannot
    /// displace a waiter. Return `None` if the ticket may name an earlier arrival, because promotions (`promote_after`)
    /// count from the arrival. Default `None`.
    fn priority(&self, _request: &Req, _context: &ClassifyContext<'_>) -> Option<Priority> {
        None
    }
}

/// The context of a request for a classifier: its arrival and the configuration.
///
/// ```
/// use tower_triage::queue::{Classify, ClassifyContext};
/// use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};
///
/// struct Job {
///     level: String,
/// }
///
/// #[derive(Clone)]
/// struct ByLevel;
///
/// impl Classify<Job> for ByLevel {
///     fn ticket(&self, job: &Job, context: &ClassifyContext<'_>) -> Ticket {
///         Ticket::new(context.priority(&job.level), context.arrival())
///     }
///
///     fn priority(&self, job: &Job, context: &ClassifyContext<'_>) -> Option<Priority> {
///         Some(context.priority(&job.level))
///     }
/// }
///
/// let queue = QueueLayer::plain(QueueConfig::new(8)).classify_with(ByLevel);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ClassifyContext<'a> {
    /// `None` if the request arrives now. A full room rejects a request without reading the clock.
    arrival: Option<Instant>,
    headers: &'a HeaderClassifier,
}

impl<'a> ClassifyContext<'a> {
    pub(crate) fn new(arrival: Option<Instant>, headers: &'a HeaderClassifier) -> Self {
        Self { arrival, headers }
    }

    /// Returns the time at which the request arrived.
    #[must_use]
    #[inline]
    pub fn arrival(&self) -> Instant {
        self.arrival.unwrap_or_else(clock::now)
    }

    /// Returns the priority levels of the waiting room.
    #[must_use]
    pub fn levels(&self) -> &'a PriorityLevels {
        self.headers.levels()
    }

    /// Returns the level of this name, in upper or lower case, or the default level if the name is unknown.
    #[must_use]
    pub fn priority(&self, name: &str) -> Priority {
        self.levels().parse(name.as_bytes())
    }

    /// Returns the ticket of a request with these headers, read from the headers that the configuration names. This is
    /// the ticket that [`FromHeaders`] returns.
    #[must_use]
    #[inline]
    pub fn ticket_from_headers(&self, headers: &HeaderMap) -> Ticket {
        self.headers.ticket(headers, self.arrival())
    }

    /// Returns the priority of the [ticket](Self::ticket_from_headers) of a request with these headers.
    #[must_use]
    pub fn priority_from_headers(&self, headers: &HeaderMap) -> Priority {
        self.headers.priority(headers)
    }

    /// Returns a ticket of the default priority, without a tenant or a deadline.
    #[must_use]
    pub fn default_ticket(&self) -> Ticket {
        Ticket::new(self.levels().default_priority(), self.arrival())
    }
}

/// A classifier that reads tickets from the headers that the configuration names.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromHeaders;

impl<B> Classify<http::Request<B>> for FromHeaders {
    #[inline]
    fn ticket(&self, request: &http::Request<B>, context: &ClassifyContext<'_>) -> Ticket {
        context.ticket_from_headers(request.headers())
    }

    fn priority(
        &self,
        request: &http::Request<B>,
        context: &ClassifyContext<'_>,
    ) -> Option<Priority> {
        Some(context.priority_from_headers(request.headers()))
    }
}

/// A classifier that gives all requests tickets of the default priority.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultPriority;

impl<Req> Classify<Req> for DefaultPriority {
    fn ticket(&self, _: &Req, context: &ClassifyContext<'_>) -> Ticket {
        context.default_ticket()
    }

    fn priority(&self, _: &Req, context: &ClassifyContext<'_>) -> Option<Priority> {
        Some(context.levels().default_priority())
    }
}

impl<Req, F> Classify<Req> for F
where
    F: Fn(&Req, &ClassifyContext<'_>) -> Ticket,
{
    fn ticket(&self, request: &Req, context: &ClassifyContext<'_>) -> Ticket {
        self(request, context)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use http::Request;

    use super::*;
    use crate::queue::QueueConfig;

    #[test]
    fn a_context_reads_levels_and_headers() {
        let classifier = QueueConfig::default().classifier().unwrap();
        let arrival = Instant::now();
        let context = ClassifyContext::new(Some(arrival), &classifier);
        assert_eq!(context.priority("HIGH"), Priority::HIGHEST);
        assert_eq!(context.priority("vip"), context.levels().default_priority());
        assert_eq!(context.default_ticket().arrival, Some(arrival));

        let request = Request::get("/")
            .header("x-priority", "high")
            .header("x-tenant-id", "team-a")
            .header("x-request-timeout", "2")
            .body(())
            .unwrap();
        let ticket = FromHeaders.ticket(&request, &context);
        assert_eq!(ticket.priority, Priority::HIGHEST);
        assert_eq!(
            FromHeaders.priority(&request, &context),
            Some(ticket.priority)
        );
        assert_eq!(ticket.tenant, "team-a".into());
        assert_eq!(ticket.deadline, Some(arrival + Duration::from_secs(2)));

        let ticket = DefaultPriority.ticket(&request, &context);
        assert_eq!((ticket.priority, ticket.deadline), (Priority(1), None));
        let priority = DefaultPriority.priority(&request, &context);
        assert_eq!(priority, Some(ticket.priority));
    }

    #[test]
    fn a_closure_gets_the_context() {
        let classifier = QueueConfig::default().classifier().unwrap();
        let arrival = Instant::now();
        let by_number =
            |n: &u8, context: &ClassifyContext<'_>| Ticket::new(Priority(*n), context.arrival());
        let ticket = by_number.ticket(&7, &ClassifyContext::new(Some(arrival), &classifier));
        assert_eq!(
            (ticket.priority, ticket.arrival),
            (Priority(7), Some(arrival))
        );
    }
}

//! The configuration of a queue: its concurrency limit and its waiting room.
//!
//! [`QueueConfig`] is a plain value with a default for every field. If it is read from a file, unknown keys are errors.
//! [`QueueConfig::validate`] names the field that is wrong and the values that are allowed.

mod choices;
mod error;
#[cfg(feature = "serde")]
mod read;

use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::admit::{
    AdaptiveLimit, Discipline, PriorityLevels, ReservedSlots, TargetWait, Tenant,
    WaitingRoomConfig, room_methods,
};
use crate::http::{HeaderClassifier, HoldLimits, RetryAfter};
use crate::setters::setters;

pub use choices::{Concurrency, Hold, Overflow, Streaming};
pub use error::InvalidQueueConfig;

/// The settings of a queue: its concurrency, its waiting room, and the form of its responses.
///
/// Every field has a method of the same name, and so does every field of the [waiting room](Self::room).
///
/// ```
/// use std::time::Duration;
/// use tower_triage::{Discipline, QueueConfig};
///
/// let config = QueueConfig::new(8)
///     .max_wait(Duration::from_secs(10))
///     .discipline(Discipline::Fair);
/// assert_eq!(config.validate(), Ok(()));
/// ```
///
/// With feature `serde`, the same configuration is read from a file. All keys are optional, the keys of the waiting
/// room are beside the others, and `"none"` stands for `None`:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// # use tower_triage::QueueConfig;
/// let config: QueueConfig = toml::from_str(
///     r#"
///     concurrency = 8
///     max_wait_seconds = "none"
///     priorities = ["gold", "silver"]
///     default_priority = "silver"
///     discipline = "fair"
///     tenant_weights = { "team-a" = 3 }
///     "#,
/// )?;
/// assert_eq!(config.room.max_wait, None);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Fields and keys
///
/// A key in a file has the name of its field, unless the field's own documentation gives another. A table `limit` may be
/// beside `concurrency = "auto"`. The keys of the [waiting room](WaitingRoomConfig) are beside those of the service.
/// Durations in a file are in seconds and may be fractions. Unknown and repeated keys are errors that name the key and
/// its line. The keys are stable.
///
/// # Tickets
///
/// A request that finds a slot free passes without a look at its headers. Any other request gets its ticket from its
/// headers:
///
/// | header | meaning |
/// |---|---|
/// | `x-priority` | the level, by name; missing and unknown names get the default level |
/// | `x-tenant-id` | the tenant, for `fair`, `max_size_per_tenant`, `max_concurrent_per_tenant` and `tenant_limits` |
/// | `x-request-timeout` (seconds), `grpc-timeout`, `x-stainless-read-timeout` (seconds) | the longest time that the client wants to wait for its answer |
///
/// [`QueueLayer::classify`](super::QueueLayer::classify) reads tickets from any other part of the request.
///
/// # Tenants
///
/// A tenant is the entity that `tenant_header` names: a team, a key, or, with `x-session-id`, a conversation or an
/// agent. Calls of different conversations then take turns. With `fair`, a tenant that sends more than its share
/// lengthens only its own wait. In a full room it loses the places beyond its share to other tenants. Slots that it
/// used while no other tenant was waiting do not count against it.
///
/// A client that may choose names gets a share for each name that it invents. So let the name come from an
/// authenticated source.
///
/// # Limits that adapt
///
/// With `concurrency = "auto"` the limit is found by measurement. A `limit` beside it configures the measurement:
/// `limit = { algorithm = "vegas", min = 1, max = 200, initial = 20 }`. A lower limit takes effect as slots come back.
///
/// | algorithm | measures |
/// |---|---|
/// | `vegas` (default) | the latency, beside the latency at lower load; its baseline rises only while latency stays the same with more in flight |
/// | `aimd` | errors, 429 and 503 alone |
///
/// In front of an engine that batches, such as an engine of language models, latency grows with the load by design. Use
/// `aimd` there. An endpoint of a router adapts in the same way with `max_concurrent = "auto"`. In the gateway, a
/// backend may also set `load = { metrics = "/metrics" }`, which reads the number of requests that wait in vLLM, SGLang
/// and TGI.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// The number of requests that run at a time. Default `Limit(1)`.
    ///
    /// This is ignored if the slots belong to routed endpoints.
    pub concurrency: Concurrency,
    /// `true` while requests may wait. If `false`, the concurrency limit still holds. Default `true`.
    pub enabled: bool,
    /// The waiting room. Here, a `max_size` or a `max_wait` of 0 is the same as `enabled: false`. In any case, a
    /// request that has a slot waits for up to `max_wait` for the inner service to be ready.
    pub room: WaitingRoomConfig,
    /// The behaviour towards requests for which the waiting room has no place. Default [`Overflow::Reject`].
    pub overflow: Overflow,
    /// The request header that names the priority level. Default `x-priority`.
    pub priority_header: String,
    /// The request header that names the tenant. A tenant is the entity that has shares and limits: a team, a key, or,
    /// with `x-session-id`, a conversation. With `None`, all requests belong to one tenant. Default `x-tenant-id`.
    pub tenant_header: Option<String>,
    /// `true` if requests get their tickets from their headers. If `false`, each request has the default priority, and
    /// neither a tenant nor a deadline. Default `true`. This field is not read from a file.
    pub read_headers: bool,
    /// The treatment of a request for a stream of events while every slot is busy. Default [`Streaming::Queue`].
    pub streaming: Streaming,
    /// The time for which a request holds its slot. Default [`Hold::Body`].
    ///
    /// With the default, a dashboard that follows an endless stream of events holds its slot for as long as it is open.
    /// [`Hold`] shows how to keep such routes from taking all slots.
    pub hold: Hold,
    /// The longest time for which a request may hold its slot, from the call of the inner service on. With `None`, the time
    /// is unlimited. Default `None`. In a file it is `max_hold_seconds`.
    ///
    /// The slot comes back at that time even if the client has stopped reading. If the response has not begun by then, the
    /// call is dropped and the answer is 504 `slot_timeout`. Otherwise its body ends with a
    /// [`HoldError`](super::HoldError) when it is polled next, and until then the inner service may still work on it: let
    /// the server end responses that their clients do not read. The time counts on Tokio's clock, and a response that
    /// holds no slot has no limit.
    ///
    /// A router does not blame an endpoint that has not answered within this time, so the client's first-byte timeout
    /// should be shorter.
    pub max_hold: Option<Duration>,
    /// The longest time for which the body of a response may be silent while it is polled and holds a slot. With `None`,
    /// the time is unlimited. Default `None`. In a file it is `idle_timeout_seconds`.
    ///
    /// After that time the body ends with a [`HoldError`](super::HoldError), and the slot comes back. The clock stands still
    /// while the client is not reading.
    pub idle_timeout: Option<Duration>,
    /// `true` if `server-timing` is added to the responses of requests that waited for 1 ms or longer, with the time of
    /// the wait. Default `true`.
    pub server_timing: bool,
    /// `true` if requests may ask to be answered while they wait. Such a request accepts a stream of events and sends
    /// `x-queue-status: sse` (see [status while waiting](super::QueueLayer#status-while-waiting)). A `RouteLayer` answers
    /// them, and so does a `QueueLayer` with [`status_stream`](super::QueueLayer::status_stream). Default `true`. This
    /// field is not read from a file.
    pub status_stream: bool,
    /// The time after which rejected clients are asked to return. By default 1 s to 60 s, estimated from the rate at
    /// which the waiting room empties.
    pub retry_after: RetryAfter,
    /// The HTTP status of rejections that mean overload: 503 or 429. The gRPC status follows from it: `UNAVAILABLE` or
    /// `RESOURCE_EXHAUSTED`. Default 503.
    ///
    /// These are the rejections because every slot is busy and the request may not wait, or not any longer. A tenant's
    /// own limit (429), the request's own deadline (504) and the shutdown (503) have a status of their own.
    pub overload_status: StatusCode,
}

impl QueueConfig {
    /// Creates a configuration that runs `concurrency` requests at a time, with defaults for everything else. A number
    /// above 1,048,575 ([`SlotPool::MAX`](crate::SlotPool::MAX)) is lowered to that.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self::default().concurrency(concurrency)
    }

    /// Creates a configuration that runs as many requests as the inner service is ready for, with defaults for
    /// everything else.
    #[must_use]
    pub fn inner() -> Self {
        Self::default().concurrency(Concurrency::Inner)
    }

    /// Creates a configuration that finds its limit by [measurements](Concurrency::Adaptive), with defaults for
    /// everything else.
    ///
    /// ```
    /// use tower_triage::QueueConfig;
    /// use tower_triage::admit::AdaptiveLimit;
    ///
    /// let config = QueueConfig::adaptive(AdaptiveLimit::default().max(64));
    /// assert_eq!(config.validate(), Ok(()));
    /// ```
    #[must_use]
    pub fn adaptive(limit: AdaptiveLimit) -> Self {
        Self::default().concurrency(Concurrency::Adaptive(limit))
    }

    /// Creates the configuration of a plain limit: `concurrency` requests run at a time, and all others wait, first come,
    /// first served, for as long as it takes. The headers of requests are not read, and those of responses stay as they
    /// are. [`QueueLayer::limit`](super::QueueLayer::limit) makes a layer of it. A concurrency above 1,048,575
    /// ([`SlotPool::MAX`](crate::SlotPool::MAX)) is lowered to that number.
    ///
    /// ```
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// # let may_wait = true;
    /// let config = if may_wait { QueueConfig::unbounded(8) } else { QueueConfig::shed(8) };
    /// let queue = QueueLayer::until_headers(config);
    /// ```
    #[must_use]
    pub fn unbounded(concurrency: usize) -> Self {
        Self::new(concurrency)
            .max_size(usize::MAX)
            .max_wait(None)
            .target_wait(TargetWait::Off)
            .server_timing(false)
            .read_headers(false)
    }

    /// Creates a configuration that runs `concurrency` requests at a time and rejects all others at once as
    /// [overloaded](Overflow::Shed), with a `Retry-After` of 1 s. The headers of requests are not read.
    /// [`QueueLayer::shed`](super::QueueLayer::shed) makes a layer of it. A concurrency above 1,048,575
    /// ([`SlotPool::MAX`](crate::SlotPool::MAX)) is lowered to that number.
    #[must_use]
    pub fn shed(concurrency: usize) -> Self {
        Self::new(concurrency)
            .overflow(Overflow::Shed)
            .retry_after(RetryAfter::fixed(1))
            .server_timing(false)
            .read_headers(false)
    }

    setters! {
        concurrency: impl Into<Concurrency>,
        enabled: bool,
        room: WaitingRoomConfig,
        overflow: Overflow,
        streaming: Streaming,
        hold: Hold,
        server_timing: bool,
        status_stream: bool,
        retry_after: RetryAfter,
        overload_status: StatusCode,
        priority_header: impl Into<String>,
        read_headers: bool,
    }

    /// Sets the request header that names the tenant. With `None`, all requests belong to one tenant.
    #[must_use]
    pub fn tenant_header<'a>(mut self, name: impl Into<Option<&'a str>>) -> Self {
        self.tenant_header = name.into().map(str::to_owned);
        self
    }

    /// Sets the longest time for which a request may hold its slot. With `None`, the time is unlimited.
    #[must_use]
    pub fn max_hold(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.max_hold = limit.into();
        self
    }

    /// Sets the longest time for which the body of a response may be silent. With `None`, the time is unlimited.
    #[must_use]
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = limit.into();
        self
    }

    /// Checks that the configuration can be used.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first wrong field that is found.
    pub fn validate(&self) -> Result<(), InvalidQueueConfig> {
        if let Some(limit) = self.concurrency.adaptive() {
            limit.validate()?;
        }
        self.classifier()?;
        self.room.validate()?;
        if self.concurrency == Concurrency::Inner && self.effective_room().max_size == 0 {
            return Err(InvalidQueueConfig::InnerNeedsRoom);
        }
        if self.concurrency == Concurrency::Inner && !self.room.reserve.is_empty() {
            return Err(InvalidQueueConfig::InnerKeepsNoSlots);
        }
        self.validate_hold()?;
        self.retry_after.validate()?;
        match self.overload_status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Ok(()),
            other => Err(InvalidQueueConfig::OverloadStatus(other.as_u16())),
        }
    }

    fn validate_hold(&self) -> Result<(), InvalidQueueConfig> {
        let limits = [
            ("max_hold", self.max_hold),
            ("idle_timeout", self.idle_timeout),
        ];
        let is_zero = |limit: &(_, Option<Duration>)| limit.1 == Some(Duration::ZERO);
        match limits.into_iter().find(is_zero) {
            Some((field, _)) => Err(InvalidQueueConfig::NoTime { field }),
            None => Ok(()),
        }
    }

    /// Returns the limits on the time for which a request may hold its slot, or `None` if there are none.
    pub(crate) fn hold_limits(&self) -> Option<HoldLimits> {
        let (max_hold, idle) = (self.max_hold, self.idle_timeout);
        (max_hold.is_some() || idle.is_some()).then_some(HoldLimits { max_hold, idle })
    }

    /// Returns the classifier that reads tickets from request headers. Without [`read_headers`](Self::read_headers), it
    /// returns the default ticket for every request.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of a header is invalid.
    pub fn classifier(&self) -> Result<HeaderClassifier, InvalidQueueConfig> {
        let tenant_header = self.tenant_header.as_deref();
        Ok(HeaderClassifier::new(
            self.room.levels.clone(),
            header_name("priority_header", &self.priority_header)?,
            tenant_header
                .map(|name| header_name("tenant_header", name))
                .transpose()?,
        )
        .reading(self.read_headers))
    }

    /// Returns the waiting room, with a size of 0 if requests may not wait.
    pub(crate) fn effective_room(&self) -> WaitingRoomConfig {
        let mut room = self.room.clone();
        // With backpressure, callers wait for room before they have a request, so arrivals are not refused for a long
        // queue.
        if self.overflow == Overflow::Backpressure {
            room.target_wait = TargetWait::Off;
        }
        room.sheds = self.overflow == Overflow::Shed;
        match self.enabled && room.max_wait != Some(Duration::ZERO) && !room.sheds {
            true => room,
            false => room.max_size(0),
        }
    }
}

/// Methods for the fields of the waiting room, which set the fields of [`room`](Self::room).
impl QueueConfig {
    room_methods!(room);
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            concurrency: Concurrency::default(),
            enabled: true,
            room: WaitingRoomConfig::default(),
            overflow: Overflow::Reject,
            priority_header: "x-priority".into(),
            tenant_header: Some("x-tenant-id".into()),
            read_headers: true,
            streaming: Streaming::Queue,
            hold: Hold::Body,
            max_hold: None,
            idle_timeout: None,
            server_timing: true,
            status_stream: true,
            retry_after: RetryAfter::default(),
            overload_status: StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Parses `value` as the name of a header. An error names the `field` that has this value.
fn header_name(field: &'static str, value: &str) -> Result<HeaderName, InvalidQueueConfig> {
    value.parse().map_err(|_| InvalidQueueConfig::HeaderName {
        field,
        value: value.to_owned(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use http::HeaderMap;

    use super::*;
    use crate::admit::Priority;

    #[test]
    fn each_method_sets_its_field() {
        let retry_after = RetryAfter::fixed(5);
        let config = QueueConfig::new(8)
            .concurrency(Concurrency::Limit(9))
            .enabled(false)
            .overflow(Overflow::Backpressure)
            .priority_header("x-class")
            .tenant_header("x-team")
            .read_headers(false)
            .streaming(Streaming::Reject)
            .hold(Hold::Headers)
            .max_hold(Duration::from_secs(600))
            .idle_timeout(Duration::from_secs(60))
            .server_timing(false)
            .status_stream(false)
            .retry_after(retry_after.clone())
            .overload_status(StatusCode::TOO_MANY_REQUESTS);
        let expected = QueueConfig {
            concurrency: Concurrency::Limit(9),
            enabled: false,
            room: WaitingRoomConfig::default(),
            overflow: Overflow::Backpressure,
            priority_header: "x-class".into(),
            tenant_header: Some("x-team".into()),
            read_headers: false,
            streaming: Streaming::Reject,
            hold: Hold::Headers,
            max_hold: Some(Duration::from_secs(600)),
            idle_timeout: Some(Duration::from_secs(60)),
            server_timing: false,
            status_stream: false,
            retry_after,
            overload_status: StatusCode::TOO_MANY_REQUESTS,
        };
        assert_eq!(config, expected);
        assert_eq!(config.tenant_header(None).tenant_header, None);
    }

    #[test]
    fn the_rooms_methods_are_those_of_the_room() {
        let config = QueueConfig::inner().max_size(7).weight("team-a", 4);
        let room = WaitingRoomConfig::default().max_size(7).weight("team-a", 4);
        assert_eq!(config, QueueConfig::inner().room(room));
    }

    #[test]
    fn without_read_headers_every_request_has_the_default_ticket() {
        let names = ["x-priority", "x-tenant-id", "x-request-timeout"];
        let headers = names.map(|name| (HeaderName::from_static(name), "high".parse().unwrap()));
        let mut headers = HeaderMap::from_iter(headers);
        headers.insert("x-request-timeout", "1".parse().unwrap());
        let arrival = Instant::now();
        for config in [QueueConfig::unbounded(1), QueueConfig::shed(1)] {
            let default = config.room.levels.default_priority();
            let classifier = config.classifier().unwrap();
            assert_eq!(classifier.priority(&headers), default);
            let ticket = classifier.ticket(&headers, arrival);
            assert_eq!((ticket.priority, ticket.deadline), (default, None));
            assert_eq!(ticket.tenant, Tenant::default());
            let classifier = config.read_headers(true).classifier().unwrap();
            assert_eq!(classifier.priority(&headers), Priority::HIGHEST);
            assert!(classifier.ticket(&headers, arrival).deadline.is_some());
        }
    }

    #[test]
    fn bad_values_are_refused_by_field() {
        let ok = || QueueConfig::new(8);
        let cases = [
            (
                QueueConfig::adaptive(AdaptiveLimit::default().min(0)),
                "`limit.min` is 0",
            ),
            (
                QueueConfig::inner().enabled(false),
                r#"`concurrency` is "inner", which needs a waiting room"#,
            ),
            (
                QueueConfig::inner().max_wait(Duration::ZERO),
                r#"`concurrency` is "inner", which needs a waiting room"#,
            ),
            (
                QueueConfig::inner().reserve("high", ReservedSlots::Slots(1)),
                r#"`reserve` is set and `concurrency` is "inner""#,
            ),
            (
                ok().priority_header("x priority"),
                r#"`priority_header` is "x priority""#,
            ),
            (ok().priority_header(""), r#"`priority_header` is """#),
            (ok().tenant_header("größe"), r#"`tenant_header` is "größe""#),
            (
                ok().promote_after(Duration::ZERO),
                "`promote_after_seconds` is 0",
            ),
            (
                ok().weight("team-a", 0),
                r#"`tenant_weights` gives "team-a" the weight 0"#,
            ),
            (
                ok().retry_after(RetryAfter::estimate().min_seconds(9).max_seconds(3)),
                "`retry_after.min_seconds` is 9",
            ),
            (
                ok().retry_after(RetryAfter::estimate().jitter(1.5)),
                "`retry_after.jitter` is 1.5",
            ),
            (
                ok().max_hold(Duration::ZERO),
                "`max_hold` is 0: it must be a time above 0, or absent",
            ),
            (
                ok().idle_timeout(Duration::ZERO),
                "`idle_timeout` is 0: it must be a time above 0, or absent",
            ),
            (
                ok().overload_status(StatusCode::INTERNAL_SERVER_ERROR),
                "`overload_status` is 500: it must be 503 or 429",
            ),
        ];
        for (config, expected) in cases {
            let error = config.validate().expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_default_and_the_largest_values_can_be_used() {
        assert_eq!(QueueConfig::default().validate(), Ok(()));
        assert_eq!(QueueConfig::new(0).validate(), Ok(()));
        let levels = PriorityLevels::new((0..32).map(|n| n.to_string()), "31").unwrap();
        let config = QueueConfig::new(usize::MAX)
            .max_size(usize::MAX)
            .max_size_per_tenant(usize::MAX)
            .max_wait(Duration::MAX)
            .promote_after(Duration::MAX)
            .weight("", u32::MAX)
            .levels(levels)
            .retry_after(
                RetryAfter::estimate()
                    .min_seconds(0)
                    .max_seconds(u64::MAX)
                    .jitter(1.0),
            );
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn without_waiting_the_room_has_size_0() {
        let max_size = |config: QueueConfig| config.effective_room().max_size;
        assert_eq!(max_size(QueueConfig::new(8).max_size(7)), 7);
        assert_eq!(max_size(QueueConfig::new(8).max_size(0)), 0);
        assert_eq!(max_size(QueueConfig::new(8).enabled(false)), 0);
        assert_eq!(max_size(QueueConfig::new(8).max_wait(Duration::ZERO)), 0);
        assert_eq!(max_size(QueueConfig::new(8).max_wait(None)), 100);
    }
}

//! Tickets that are read from request headers.
//!
//! A header that cannot be read counts as absent, so that a client's typo fails no request, and no value panics.

use std::time::{Duration, Instant};

use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::sse::EVENT_STREAM;
use crate::admit::{Priority, PriorityLevels, Tenant, Ticket};

/// A classifier that reads a request's [`Ticket`] from its headers.
/// [`QueueConfig::classifier`](crate::QueueConfig::classifier) creates one for requests that do not pass a
/// [`QueueLayer`](crate::QueueLayer).
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_triage::{Priority, QueueConfig};
///
/// let classifier = QueueConfig::new(8).classifier()?;
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-priority", "HIGH".parse()?);
/// headers.insert("x-request-timeout", "2.5".parse()?);
///
/// let arrival = Instant::now();
/// let ticket = classifier.ticket(&headers, arrival);
/// assert_eq!(ticket.priority, Priority::HIGHEST);
/// assert_eq!(ticket.deadline, Some(arrival + Duration::from_millis(2_500)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct HeaderClassifier {
    levels: PriorityLevels,
    priority_header: HeaderName,
    tenant_header: Option<HeaderName>,
    /// `false` if every request gets the default ticket.
    reads_headers: bool,
}

impl HeaderClassifier {
    /// Creates a classifier that reads the level's name from `priority_header` and the tenant's name from
    /// `tenant_header`. Without a `tenant_header`, every request belongs to the empty tenant.
    #[must_use]
    pub fn new(
        levels: PriorityLevels,
        priority_header: HeaderName,
        tenant_header: Option<HeaderName>,
    ) -> Self {
        Self {
            levels,
            priority_header,
            tenant_header,
            reads_headers: true,
        }
    }

    /// Makes the classifier read headers, or give every request the default ticket.
    pub(crate) fn reading(mut self, reads_headers: bool) -> Self {
        self.reads_headers = reads_headers;
        self
    }

    /// Returns the priority levels with their names.
    #[must_use]
    pub fn levels(&self) -> &PriorityLevels {
        &self.levels
    }

    /// Returns the priority of a request with these headers, which is equal to that of its [`ticket`](Self::ticket).
    #[must_use]
    pub fn priority(&self, headers: &HeaderMap) -> Priority {
        let name = self.reads_headers.then_some(&self.priority_header);
        match name.and_then(|name| headers.get(name)) {
            Some(name) => self.levels.parse(name.as_bytes()),
            None => self.levels.default_priority(),
        }
    }

    /// Returns the ticket of a request with these headers that arrived at `arrival`.
    ///
    /// - The priority header names the level. A missing or unknown name stands for the default level.
    /// - The bytes of the tenant header are the tenant.
    /// - The deadline is `arrival` plus the shortest of the timeouts that can be read. These are `x-request-timeout` in
    ///   seconds, which may be a fraction, `grpc-timeout`, and the `x-stainless-read-timeout` of the OpenAI and
    ///   Anthropic clients in seconds (`x-stainless-timeout` of older ones). The head of the answer has to be there by
    ///   the deadline, so a request that cannot meet it is refused, or gets no slot.
    /// - A request is a [client's retry](Ticket::client_retry), and goes behind the first attempts of its level, if
    ///   `x-stainless-retry-count` or `x-retry-attempt` is more than 0, or if `x-envoy-attempt-count` is more than 1.
    #[must_use]
    pub fn ticket(&self, headers: &HeaderMap, arrival: Instant) -> Ticket {
        let found = match self.reads_headers {
            true => self.find(headers),
            false => TicketHeaders::default(),
        };
        let priority = match found.priority {
            Some(name) => self.levels.parse(name.as_bytes()),
            None => self.levels.default_priority(),
        };
        let mut ticket = Ticket::new(priority, arrival);
        ticket.client_retry = found.is_retry;
        if let Some(name) = found.tenant {
            ticket.tenant = Tenant::copied(name.as_bytes());
        }
        match found.timeout() {
            Some(timeout) => ticket.timeout(timeout),
            None => ticket,
        }
    }

    /// Finds the headers of a ticket in one pass, because each look-up would hash a name.
    fn find<'a>(&self, headers: &'a HeaderMap) -> TicketHeaders<'a> {
        let mut found = TicketHeaders::default();
        for (name, value) in headers {
            // These are separate checks because one header may have two roles. If a header has several values, the
            // first one counts.
            if *name == self.priority_header {
                found.priority.get_or_insert(value);
            }
            if self.tenant_header.as_ref() == Some(name) {
                found.tenant.get_or_insert(value);
            }
            match name.as_str() {
                "x-request-timeout" => _ = found.request_timeout.get_or_insert(value),
                "grpc-timeout" => _ = found.grpc_timeout.get_or_insert(value),
                // OpenAI and Anthropic clients add this one to every request, and older ones the next.
                "x-stainless-read-timeout" => _ = found.read_timeout.get_or_insert(value),
                "x-stainless-timeout" => _ = found.older_read_timeout.get_or_insert(value),
                // The clients of OpenAI and Anthropic, and others, count retries. Envoy counts attempts.
                "x-stainless-retry-count" | "x-retry-attempt" => {
                    found.is_retry |= is_above(value, 0)
                }
                "x-envoy-attempt-count" => found.is_retry |= is_above(value, 1),
                _ => {}
            }
        }
        found
    }
}

/// The headers that make up a ticket.
#[derive(Default)]
struct TicketHeaders<'a> {
    priority: Option<&'a HeaderValue>,
    tenant: Option<&'a HeaderValue>,
    request_timeout: Option<&'a HeaderValue>,
    grpc_timeout: Option<&'a HeaderValue>,
    read_timeout: Option<&'a HeaderValue>,
    older_read_timeout: Option<&'a HeaderValue>,
    is_retry: bool,
}

impl TicketHeaders<'_> {
    /// Returns the shortest of the timeouts that the client sends.
    fn timeout(&self) -> Option<Duration> {
        let read = |value: Option<&HeaderValue>, parse: fn(&str) -> Option<Duration>| {
            parse(value?.to_str().ok()?.trim_ascii())
        };
        [
            read(self.request_timeout, seconds),
            read(self.grpc_timeout, grpc_timeout),
            read(self.read_timeout, seconds),
            read(self.older_read_timeout, seconds),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Returns `true` if this is a number above `first`.
fn is_above(value: &HeaderValue, first: u64) -> bool {
    let number = value.to_str().ok().and_then(|it| it.trim().parse().ok());
    number.is_some_and(|number: u64| number > first)
}

/// Returns `true` if the client accepts a stream of server-sent events. It does if an `Accept` header names
/// `text/event-stream` without `q=0`. Wildcards do not count, because every client sends `*/*`.
#[must_use]
pub fn wants_stream(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT).into_iter();
    let mut ranges = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    ranges.any(|range| {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let media = parts.next().unwrap_or_default();
        // `q=0`, `q=0.0` and so on mean "anything except this".
        let is_refusal = |parameter: &[u8]| match parameter {
            [b'q' | b'Q', b'=', b'0', rest @ ..] => rest.iter().all(|b| matches!(b, b'0' | b'.')),
            _ => false,
        };
        media.eq_ignore_ascii_case(EVENT_STREAM.as_bytes()) && !parts.any(is_refusal)
    })
}

/// Reads a number of seconds, such as `2` or `0.3`. Returns `None` if the value is negative, not a number, or more than
/// a [`Duration`] can hold.
fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

/// Reads one to eight digits and a unit, as the gRPC protocol defines them. For example, `250m` is a quarter of a
/// second.
fn grpc_timeout(value: &str) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::{Priority, Tenant};

    const HOUR: Duration = Duration::from_secs(3600);

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value).expect("a header value");
                (HeaderName::from_static(name), value)
            })
            .collect()
    }

    fn ticket(pairs: &[(&'static str, &[u8])], arrival: Instant) -> Ticket {
        let name = HeaderName::from_static;
        HeaderClassifier::new(
            PriorityLevels::default(),
            name("x-priority"),
            Some(name("x-tenant-id")),
        )
        .ticket(&headers(pairs), arrival)
    }

    fn timeout_of(pairs: &[(&'static str, &[u8])]) -> Option<Duration> {
        let arrival = Instant::now();
        let deadline = ticket(pairs, arrival).deadline?;
        Some(deadline - arrival)
    }

    #[test]
    fn a_bare_request_gets_the_default_ticket() {
        let arrival = Instant::now();
        let ticket = ticket(&[], arrival);
        assert_eq!(ticket.priority, Priority(1));
        assert_eq!(ticket.tenant, Tenant::default());
        assert_eq!(ticket.deadline, None);
        assert_eq!(ticket.arrival, Some(arrival));
    }

    #[test]
    fn the_priority_header_names_the_level() {
        let cases: [(&[u8], u8); 7] = [
            (b"high", 0),
            (b"HIGH", 0),
            (b" \thigh ", 0),
            (b"normal", 1),
            (b"urgent", 1),
            (b"h\xefgh", 1),
            (b"", 1),
        ];
        for (value, level) in cases {
            let ticket = ticket(&[("x-priority", value)], Instant::now());
            assert_eq!(ticket.priority, Priority(level), "{value:?}");
        }
    }

    #[test]
    fn the_tenant_is_the_headers_bytes() {
        for value in [&b"team-a"[..], b"t\xe9am", b""] {
            let ticket = ticket(&[("x-tenant-id", value)], Instant::now());
            assert_eq!(ticket.tenant.as_bytes(), value);
        }
    }

    #[test]
    fn without_a_tenant_header_all_are_the_empty_tenant() {
        let classifier = HeaderClassifier::new(
            PriorityLevels::default(),
            HeaderName::from_static("x-priority"),
            None,
        );
        let headers = headers(&[("x-tenant-id", b"team-a")]);
        assert_eq!(
            classifier.ticket(&headers, Instant::now()).tenant,
            Tenant::default()
        );
    }

    #[test]
    fn of_several_values_the_first_counts() {
        let arrival = Instant::now();
        let ticket = ticket(
            &[
                ("x-priority", b"high"),
                ("x-priority", b"normal"),
                ("x-tenant-id", b"team-a"),
                ("x-tenant-id", b"team-b"),
            ],
            arrival,
        );
        assert_eq!(ticket.priority, Priority(0));
        assert_eq!(ticket.tenant.as_bytes(), b"team-a");
        for (name, first, second) in [
            ("x-request-timeout", &b"9"[..], &b"2"[..]),
            ("grpc-timeout", b"9S", b"2S"),
        ] {
            let timeout = timeout_of(&[(name, first), (name, second)]);
            assert_eq!(timeout, Some(Duration::from_secs(9)), "{name}");
        }
    }

    #[test]
    fn one_header_may_have_several_roles() {
        let arrival = Instant::now();
        for name in ["x-tier", "x-request-timeout", "grpc-timeout"] {
            let levels = PriorityLevels::new(["3S", "3"], "3").unwrap();
            let name = HeaderName::from_static(name);
            let classifier = HeaderClassifier::new(levels, name.clone(), Some(name.clone()));
            let value = match name == "grpc-timeout" {
                true => "3S",
                false => "3",
            };
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(value))]);
            let ticket = classifier.ticket(&headers, arrival);
            assert_eq!(ticket.priority, classifier.levels().parse(value.as_bytes()));
            assert_eq!(ticket.tenant.as_bytes(), value.as_bytes());
            let timeout = ticket.deadline.map(|end| end - arrival);
            let expected = (name != "x-tier").then_some(Duration::from_secs(3));
            assert_eq!(timeout, expected, "{name}");
        }
    }

    #[test]
    fn a_client_that_tries_again_says_so() {
        let retry = |pairs: &[(&'static str, &[u8])]| ticket(pairs, Instant::now()).client_retry;
        assert!(!retry(&[]));
        assert!(!retry(&[("x-retry-attempt", b"0")]));
        assert!(retry(&[("x-retry-attempt", b"1")]));
        let cases: [(&'static str, &[u8], bool); 14] = [
            ("x-stainless-retry-count", b"0", false),
            ("x-stainless-retry-count", b"1", true),
            ("x-stainless-retry-count", b" 2 ", true),
            ("x-retry-attempt", b"0", false),
            ("x-retry-attempt", b"3", true),
            ("x-envoy-attempt-count", b"0", false),
            ("x-envoy-attempt-count", b"1", false),
            ("x-envoy-attempt-count", b"2", true),
            ("x-retry-attempt", b"", false),
            ("x-retry-attempt", b"yes", false),
            ("x-retry-attempt", b"-1", false),
            ("x-retry-attempt", b"\xff", false),
            ("x-retry-attempt", b"99999999999999999999", false),
            ("x-retry", b"1", false),
        ];
        for (name, value, expected) in cases {
            assert_eq!(retry(&[(name, value)]), expected, "{name}: {value:?}");
        }
        let both: [(&'static str, &[u8]); 2] = [
            ("x-envoy-attempt-count", b"1"),
            ("x-stainless-retry-count", b"2"),
        ];
        assert!(retry(&both));
    }

    #[test]
    fn x_request_timeout_is_seconds_or_ignored() {
        let cases: [(&[u8], Option<u64>); 18] = [
            (b"2", Some(2_000)),
            (b" 0.3 ", Some(300)),
            (b"0", Some(0)),
            (b"0.0", Some(0)),
            (b".5", Some(500)),
            (b"1e2", Some(100_000)),
            (b"-1", None),
            (b"-0.1", None),
            (b"nan", None),
            (b"inf", None),
            (b"-inf", None),
            (b"1e300", None),
            (b"99999999999999999999", None),
            (b"2s", None),
            (b"1,5", None),
            (b"", None),
            (b"\xff", None),
            (b"soon", None),
        ];
        for (value, millis) in cases {
            assert_eq!(
                timeout_of(&[("x-request-timeout", value)]),
                millis.map(Duration::from_millis),
                "{value:?}"
            );
        }
    }

    #[test]
    fn a_grpc_timeout_is_digits_and_a_unit() {
        let cases: [(&[u8], Option<Duration>); 14] = [
            (b"2H", Some(2 * HOUR)),
            (b"3M", Some(HOUR / 20)),
            (b"5S", Some(Duration::from_secs(5))),
            (b"250m", Some(Duration::from_millis(250))),
            (b"7u", Some(Duration::from_micros(7))),
            (b"9n", Some(Duration::from_nanos(9))),
            (b"0S", Some(Duration::ZERO)),
            (b"99999999H", Some(HOUR * 99_999_999)),
            (b"999999999S", None),
            (b"S", None),
            (b"5", None),
            (b"5s", None),
            (b"-5S", None),
            (b"1.5S", None),
        ];
        for (value, expected) in cases {
            assert_eq!(
                timeout_of(&[("grpc-timeout", value)]),
                expected,
                "{value:?}"
            );
        }
    }

    #[test]
    fn of_two_timeouts_the_earlier_one_counts() {
        let both = |request, grpc| {
            timeout_of(&[("x-request-timeout", request), ("grpc-timeout", grpc)])
                .map(|timeout| timeout.as_secs())
        };
        assert_eq!(both(b"5", b"3S"), Some(3));
        assert_eq!(both(b"3", b"5S"), Some(3));
        assert_eq!(both(b"soon", b"5S"), Some(5));
        assert_eq!(both(b"5", b"soon"), Some(5));
    }

    #[test]
    fn the_timeouts_of_openai_and_anthropic_clients_count() {
        let timeout = |pairs: &[(&'static str, &[u8])]| timeout_of(pairs).map(|it| it.as_secs());
        assert_eq!(timeout(&[("x-stainless-read-timeout", b"600")]), Some(600));
        assert_eq!(timeout(&[("x-stainless-timeout", b"60.0")]), Some(60));
        let nearer: [(&'static str, &[u8]); 2] = [
            ("x-stainless-read-timeout", b"600"),
            ("x-request-timeout", b"2"),
        ];
        assert_eq!(timeout(&nearer), Some(2));
        assert_eq!(timeout(&[("x-stainless-read-timeout", b"none")]), None);
    }

    #[test]
    fn a_client_that_accepts_event_streams_wants_one() {
        let cases: [(&[&[u8]], bool); 14] = [
            (&[b"text/event-stream"], true),
            (&[b"Text/Event-Stream"], true),
            (&[b"application/json, text/event-stream"], true),
            (&[b"text/event-stream; charset=utf-8; q=0.5"], true),
            (&[b"text/event-stream;q=0.001"], true),
            (&[b"application/json", b"text/event-stream"], true),
            (&[], false),
            (&[b"*/*"], false),
            (&[b"application/json"], false),
            (&[b"text/event-streams"], false),
            (&[b"text/event-stream;q=0"], false),
            (&[b"text/event-stream ; Q=0.000 , */*"], false),
            (&[b"application/json;note=text/event-stream"], false),
            (&[b"\xff"], false),
        ];
        for (accepts, expected) in cases {
            let pairs: Vec<_> = accepts.iter().map(|value| ("accept", *value)).collect();
            assert_eq!(wants_stream(&headers(&pairs)), expected, "{accepts:?}");
        }
    }
}

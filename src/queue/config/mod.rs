//! A misspelt key that is ignored, or a bad value that shows only under load, is found at the worst time.
//!
//! [`QueueConfig`] is a plain value with a default for everything. Reading one from a file refuses keys
//! that it does not know; [`QueueConfig::validate`] says which field is wrong, and what it may be.

mod choices;
mod error;
#[cfg(feature = "serde")]
mod read;

use std::collections::HashMap;
use std::time::Duration;

use http::HeaderName;

use crate::admit::{Discipline, PriorityLevels, Tenant, WaitingRoomConfig};
use crate::http::{HeaderClassifier, RetryAfter};

pub use choices::{Concurrency, Hold, Overflow, Streaming};
pub use error::InvalidQueueConfig;

/// How many requests are served at a time, who waits, in what order and for how long.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::QueueConfig;
///
/// let config = QueueConfig::new(8).max_wait(Duration::from_secs(10)).fair();
/// assert_eq!(config.validate(), Ok(()));
/// ```
///
/// With feature `serde` the same is read from a file, in which every key is optional:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// # use std::time::Duration;
/// # use tower_triage::QueueConfig;
/// let config: QueueConfig = toml::from_str(
///     r#"
///     concurrency = 8
///     max_wait_seconds = 10
///     discipline = "fair"
///     "#,
/// )?;
/// assert_eq!(config, QueueConfig::new(8).max_wait(Duration::from_secs(10)).fair());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct QueueConfig {
    /// How many requests are served at a time. Default `Limit(1)`.
    ///
    /// Of no meaning where the slots are those of routed endpoints.
    pub concurrency: Concurrency,
    /// Whether requests may wait. If not, the concurrency limit still holds. Default `true`.
    pub enabled: bool,
    /// How many requests may wait; 0 is the same as `enabled: false`. Default 100.
    pub max_size: usize,
    /// How long a request may wait from its arrival; 0 is the same as `enabled: false`, `None` as long as
    /// it likes. Default 30 s. `max_wait_seconds` in a file, where it may be a fraction.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "max_wait_seconds", deserialize_with = "read::max_wait")
    )]
    pub max_wait: Option<Duration>,
    /// What happens when the waiting room is full. Default [`Overflow::Reject`].
    pub overflow: Overflow,
    /// Who goes next among waiting requests of equal priority. Default [`Discipline::Fifo`].
    pub discipline: Discipline,
    /// The names of the priority levels, highest first, matched case-insensitively. Default `high`,
    /// `normal`.
    pub priorities: Vec<String>,
    /// The level of a request that names none, or one that is not there. Default `normal`.
    pub default_priority: String,
    /// The request header that names the level. Default `x-priority`.
    pub priority_header: String,
    /// The request header that names the tenant; `None`: all requests are of one tenant. Default
    /// `x-tenant-id`.
    pub tenant_header: Option<String>,
    /// How many requests of one tenant may wait; 0: no limit of its own. Default 0.
    pub max_size_per_tenant: usize,
    /// Shares of tenants under [`Discipline::Fair`], at least 1; everyone else weighs 1. Default empty.
    pub tenant_weights: HashMap<String, u32>,
    /// A waiter rises one level per interval waited. `None` (default): never. `promote_after_seconds` in a
    /// file, where it may be a fraction.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "promote_after_seconds",
            deserialize_with = "read::promote_after"
        )
    )]
    pub promote_after: Option<Duration>,
    /// What becomes of a request for a stream when every slot is busy. Default [`Streaming::Queue`].
    pub streaming: Streaming,
    /// How long a served request holds its slot. Default [`Hold::Body`].
    pub hold: Hold,
    /// Whether an arrival that finds no chair takes the one of the latest waiter of the lowest level, if
    /// that is a lower level than its own. Default `false`.
    pub displace: bool,
    /// Whether the responses of requests that waited say in `server-timing` for how long. Default `true`.
    pub server_timing: bool,
    /// When rejected clients are told to return. Default from 1 s to 60 s, by the drain rate.
    pub retry_after: RetryAfter,
}

impl QueueConfig {
    /// Serves `concurrency` requests at a time; everything else is the default.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self {
            concurrency: Concurrency::Limit(concurrency),
            ..Self::default()
        }
    }

    /// Serves as many requests as the inner service is ready for; everything else is the default.
    #[must_use]
    pub fn inner() -> Self {
        Self {
            concurrency: Concurrency::Inner,
            ..Self::default()
        }
    }

    /// Lets nobody wait: a request that finds no slot is rejected.
    #[must_use]
    pub fn no_waiting(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Lets `chairs` requests wait.
    #[must_use]
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = max_size;
        self
    }

    /// Lets `chairs` requests of one tenant wait.
    #[must_use]
    pub fn max_size_per_tenant(mut self, max_size: usize) -> Self {
        self.max_size_per_tenant = max_size;
        self
    }

    /// Lets a request wait for `wait`.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// Lets a request wait for as long as its own deadline allows.
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.max_wait = None;
        self
    }

    /// Is not ready while the waiting room is full, instead of rejecting.
    #[must_use]
    pub fn backpressure(mut self) -> Self {
        self.overflow = Overflow::Backpressure;
        self
    }

    /// Gives tenants turns, in proportion to their weights.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.discipline = Discipline::Fair;
        self
    }

    /// Serves the earliest deadline first.
    #[must_use]
    pub fn earliest_deadline_first(mut self) -> Self {
        self.discipline = Discipline::Deadline;
        self
    }

    /// Gives `tenant` a share of `weight` under the `fair` discipline.
    #[must_use]
    pub fn tenant_weight(mut self, tenant: impl Into<String>, weight: u32) -> Self {
        self.tenant_weights.insert(tenant.into(), weight);
        self
    }

    /// Names the priority levels, highest first, and the one that unknown names get.
    #[must_use]
    pub fn priorities<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
        default: impl Into<String>,
    ) -> Self {
        self.priorities = names.into_iter().map(Into::into).collect();
        self.default_priority = default.into();
        self
    }

    /// Reads the priority from this request header.
    #[must_use]
    pub fn priority_header(mut self, name: impl Into<String>) -> Self {
        self.priority_header = name.into();
        self
    }

    /// Reads the tenant from this request header.
    #[must_use]
    pub fn tenant_header(mut self, name: impl Into<String>) -> Self {
        self.tenant_header = Some(name.into());
        self
    }

    /// Lifts a waiter one level per `interval` waited, so that nothing starves.
    #[must_use]
    pub fn promote_after(mut self, interval: Duration) -> Self {
        self.promote_after = Some(interval);
        self
    }

    /// Rejects a request for a stream instead of letting it wait.
    #[must_use]
    pub fn reject_streams(mut self) -> Self {
        self.streaming = Streaming::Reject;
        self
    }

    /// Gives the slot back as soon as the response's head is there.
    #[must_use]
    pub fn hold_until_headers(mut self) -> Self {
        self.hold = Hold::Headers;
        self
    }

    /// Lets a higher priority take the chair of a lower one when no other is free.
    #[must_use]
    pub fn displace(mut self) -> Self {
        self.displace = true;
        self
    }

    /// Does not tell clients how long their requests waited.
    #[must_use]
    pub fn no_server_timing(mut self) -> Self {
        self.server_timing = false;
        self
    }

    /// Tells rejected clients when to return.
    #[must_use]
    pub fn retry_after(mut self, retry_after: RetryAfter) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Whether the configuration can be used.
    ///
    /// # Errors
    ///
    /// The first field found that is wrong.
    pub fn validate(&self) -> Result<(), InvalidQueueConfig> {
        if self.concurrency == Concurrency::Limit(0) {
            return Err(InvalidQueueConfig::NoConcurrency);
        }
        self.classifier()?;
        let room = self.room()?;
        if self.concurrency == Concurrency::Inner && room.max_size == 0 {
            return Err(InvalidQueueConfig::NobodyInTurn);
        }
        self.retry_after.validate()?;
        Ok(())
    }

    /// What reads tickets from request headers.
    ///
    /// # Errors
    ///
    /// If a header's or a level's name is wrong.
    pub fn classifier(&self) -> Result<HeaderClassifier, InvalidQueueConfig> {
        let tenant_header = self.tenant_header.as_deref();
        Ok(HeaderClassifier::new(
            self.levels()?,
            header_name("priority_header", &self.priority_header)?,
            tenant_header
                .map(|name| header_name("tenant_header", name))
                .transpose()?,
        ))
    }

    /// How the waiting room is furnished.
    ///
    /// # Errors
    ///
    /// If a level's name, the interval to promotion or a tenant's weight is wrong.
    pub fn room(&self) -> Result<WaitingRoomConfig, InvalidQueueConfig> {
        if self.promote_after == Some(Duration::ZERO) {
            return Err(InvalidQueueConfig::NoTimeToPromotion);
        }
        let may_wait = self.enabled && self.max_wait != Some(Duration::ZERO);
        Ok(WaitingRoomConfig {
            max_size: if may_wait { self.max_size } else { 0 },
            max_size_per_tenant: Some(self.max_size_per_tenant).filter(|max_size| *max_size > 0),
            max_wait: self.max_wait,
            discipline: self.discipline,
            levels: self.levels()?,
            promote_after: self.promote_after,
            displace: self.displace,
            weights: self.weights()?,
        })
    }

    fn levels(&self) -> Result<PriorityLevels, InvalidQueueConfig> {
        let names = self.priorities.iter().map(String::as_str);
        Ok(PriorityLevels::new(names, &self.default_priority)?)
    }

    fn weights(&self) -> Result<HashMap<Tenant, u32>, InvalidQueueConfig> {
        let weigh = |(tenant, weight): (&String, &u32)| match *weight {
            0 => Err(InvalidQueueConfig::NoWeight {
                tenant: tenant.clone(),
            }),
            weight => Ok((tenant.clone().into(), weight)),
        };
        self.tenant_weights.iter().map(weigh).collect()
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            concurrency: Concurrency::default(),
            enabled: true,
            max_size: 100,
            max_wait: Some(Duration::from_secs(30)),
            overflow: Overflow::Reject,
            discipline: Discipline::Fifo,
            priorities: vec!["high".into(), "normal".into()],
            default_priority: "normal".into(),
            priority_header: "x-priority".into(),
            tenant_header: Some("x-tenant-id".into()),
            max_size_per_tenant: 0,
            tenant_weights: HashMap::new(),
            promote_after: None,
            streaming: Streaming::Queue,
            hold: Hold::Body,
            displace: false,
            server_timing: true,
            retry_after: RetryAfter::default(),
        }
    }
}

fn header_name(field: &'static str, value: &str) -> Result<HeaderName, InvalidQueueConfig> {
    value.parse().map_err(|_| InvalidQueueConfig::HeaderName {
        field,
        value: value.to_owned(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_default_can_be_used_and_furnishes_the_default_room() {
        let config = QueueConfig::default();
        assert_eq!(config.validate(), Ok(()));

        let (room, default) = (config.room().expect("valid"), WaitingRoomConfig::default());
        assert_eq!(room.max_size, default.max_size);
        assert_eq!(room.max_size_per_tenant, default.max_size_per_tenant);
        assert_eq!(room.max_wait, default.max_wait);
        assert_eq!(room.discipline, default.discipline);
        assert_eq!(room.levels, default.levels);
        assert_eq!(room.promote_after, default.promote_after);
        assert_eq!(room.displace, default.displace);
        assert_eq!(room.weights, default.weights);
    }

    #[test]
    fn every_bad_value_is_refused_by_the_name_of_its_field() {
        let ok = || QueueConfig::new(8);
        let cases = [
            (QueueConfig::new(0), "`concurrency` is 0"),
            (
                QueueConfig::inner().no_waiting(),
                r#"`concurrency` is "inner", which needs a waiting room"#,
            ),
            (
                QueueConfig::inner().max_wait(Duration::ZERO),
                r#"`concurrency` is "inner", which needs a waiting room"#,
            ),
            (
                ok().priorities((0..33).map(|n| n.to_string()), "0"),
                "`priorities` has 33 names",
            ),
            (
                ok().priorities(["a", " b"], "a"),
                r#"`priorities` has the name " b""#,
            ),
            (
                ok().priority_header("x priority"),
                r#"`priority_header` is "x priority""#,
            ),
            (ok().priority_header(""), r#"`priority_header` is """#),
            (ok().tenant_header("größe"), r#"`tenant_header` is "größe""#),
            (ok().priorities([""; 0], "a"), "`priorities` is empty"),
            (
                ok().priorities(["a", "A"], "a"),
                r#"`priorities` names "A" twice"#,
            ),
            (
                ok().priorities(["a", "b"], "c"),
                r#"`default_priority` is "c""#,
            ),
            (
                ok().promote_after(Duration::ZERO),
                "`promote_after_seconds` is 0",
            ),
            (
                ok().tenant_weight("team-a", 0),
                r#"`tenant_weights` gives "team-a" the weight 0"#,
            ),
            (
                ok().retry_after(RetryAfter::estimate().between(9, 3)),
                "`retry_after.min_seconds` is 9",
            ),
            (
                ok().retry_after(RetryAfter::estimate().jitter(1.5)),
                "`retry_after.jitter` is 1.5",
            ),
        ];
        for (config, expected) in cases {
            let error = config.validate().expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_largest_values_can_be_used() {
        let config = QueueConfig::new(usize::MAX)
            .max_size(usize::MAX)
            .max_size_per_tenant(usize::MAX)
            .max_wait(Duration::MAX)
            .promote_after(Duration::MAX)
            .tenant_weight("", u32::MAX)
            .priorities((0..32).map(|n| n.to_string()), "31")
            .retry_after(RetryAfter::estimate().between(0, u64::MAX).jitter(1.0));
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn who_may_not_wait_gets_no_chair() {
        let max_size = |config: QueueConfig| config.room().map(|room| room.max_size);
        assert_eq!(max_size(QueueConfig::new(8).max_size(7)), Ok(7));
        assert_eq!(max_size(QueueConfig::new(8).max_size(0)), Ok(0));
        assert_eq!(max_size(QueueConfig::new(8).no_waiting()), Ok(0));
        assert_eq!(
            max_size(QueueConfig::new(8).max_wait(Duration::ZERO)),
            Ok(0)
        );
        assert_eq!(max_size(QueueConfig::new(8).wait_forever()), Ok(100));
    }

    #[test]
    fn the_room_is_furnished_as_configured() {
        let config = QueueConfig::inner()
            .max_size_per_tenant(3)
            .max_wait(Duration::from_secs(5))
            .earliest_deadline_first()
            .priorities(["gold", "silver"], "silver")
            .promote_after(Duration::from_secs(10))
            .tenant_weight("team-a", 4)
            .displace();
        let room = config.room().expect("valid");
        assert_eq!(room.max_size_per_tenant, Some(3));
        assert_eq!(room.max_wait, Some(Duration::from_secs(5)));
        assert_eq!(room.discipline, Discipline::Deadline);
        assert!(room.levels.names().eq(["gold", "silver"]));
        assert_eq!(room.promote_after, Some(Duration::from_secs(10)));
        assert_eq!(room.weights.get(&b"team-a"[..]), Some(&4));
        assert!(room.displace);
    }
}

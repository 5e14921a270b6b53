//! Reading a [`QueueConfig`](super::QueueConfig) from a file: the parts that serde does not derive.
//!
//! A number that a [`Duration`] can't hold is refused by name here, because later there is no place left
//! for it to stand.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use super::Concurrency;

pub(super) fn max_wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    seconds("max_wait_seconds", from)
}

pub(super) fn promote_after<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    seconds("promote_after_seconds", from)
}

/// Seconds, whole or with a fraction; `null`, in formats that have it, is no duration.
fn seconds<'de, D: Deserializer<'de>>(field: &str, from: D) -> Result<Option<Duration>, D::Error> {
    let Some(seconds) = Option::<f64>::deserialize(from)? else {
        return Ok(None);
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(Some(duration)),
        Err(_) => Err(D::Error::custom(format_args!(
            "`{field}` is {seconds}: it must be a number of seconds from 0 to {}",
            u64::MAX
        ))),
    }
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberOrInner)
    }
}

struct NumberOrInner;

impl Visitor<'_> for NumberOrInner {
    type Value = Concurrency;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`concurrency` to be an integer of at least 1, or \"inner\"")
    }

    fn visit_u64<E: Error>(self, limit: u64) -> Result<Concurrency, E> {
        match usize::try_from(limit) {
            Ok(limit) if limit > 0 => Ok(Concurrency::Limit(limit)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(limit), &self)),
        }
    }

    fn visit_i64<E: Error>(self, limit: i64) -> Result<Concurrency, E> {
        match u64::try_from(limit) {
            Ok(limit) => self.visit_u64(limit),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(limit), &self)),
        }
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Concurrency, E> {
        match word {
            "inner" => Ok(Concurrency::Inner),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use crate::admit::Discipline;
    use crate::http::{RetryAfter, RetryAfterMode};
    use crate::queue::{Hold, Overflow, QueueConfig, Streaming};

    use super::*;

    const EXAMPLE: &str = r#"
[queue]                          # the waiting room in front of the backends (and of swapped models)
enabled = true                   # false: saturated backends answer 503 at once
max_size = 100                   # max_size; 0 is the same as enabled = false
max_wait_seconds = 30
overflow = "reject"              # "reject" | "backpressure"
discipline = "fifo"              # "fifo" | "fair" | "deadline"
priorities = ["high", "normal"]  # highest first; names are matched case-insensitively
default_priority = "normal"      # what a missing or unknown name gets
priority_header = "x-priority"
tenant_header = "x-tenant-id"    # whose share a request comes out of, for "fair"
max_size_per_tenant = 0          # 0: no limit of its own
# promote_after_seconds = 10     # a waiter rises one level per interval waited; absent: never
streaming = "queue"              # "queue" | "reject": what a saturated gateway does with a request for a stream
hold = "body"                    # "body" | "headers": when the slot is given back
displace = false                 # true: with no chair free, a higher priority takes the chair of the lowest, latest waiter

[queue.tenant_weights]           # for "fair"; everyone else weighs 1
# "team-a" = 3

[queue.retry_after]
mode = "estimate"                # "estimate" (from the drain rate) | "fixed"
min_seconds = 1
max_seconds = 60                 # with "fixed", min_seconds is what is sent
jitter = 0.2                     # up to this share is added, so that clients don't return together
"#;

    #[derive(Debug, serde::Deserialize)]
    struct File {
        queue: QueueConfig,
    }

    fn read(text: &str) -> Result<QueueConfig, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err(text)
    }

    #[test]
    fn the_example_file_spells_out_the_defaults() {
        let file: File = toml::from_str(EXAMPLE).expect("the example is a valid file");
        assert_eq!(file.queue, QueueConfig::default());
        assert_eq!(read("").as_ref(), Ok(&QueueConfig::default()));
    }

    #[test]
    fn every_key_is_read() {
        let config = read(
            r#"
            concurrency = 8
            enabled = false
            max_size = 7
            max_wait_seconds = 0.3
            overflow = "backpressure"
            discipline = "fair"
            priorities = ["gold", "silver", "bronze"]
            default_priority = "silver"
            priority_header = "x-class"
            tenant_header = "x-team"
            max_size_per_tenant = 3
            promote_after_seconds = 10
            streaming = "reject"
            hold = "headers"
            displace = true
            server_timing = false
            tenant_weights = { "team-a" = 3 }
            retry_after = { mode = "fixed", min_seconds = 5, max_seconds = 6, jitter = 0 }
            "#,
        );
        let expected = QueueConfig {
            concurrency: Concurrency::Limit(8),
            enabled: false,
            max_size: 7,
            max_wait: Some(Duration::from_millis(300)),
            overflow: Overflow::Backpressure,
            discipline: Discipline::Fair,
            priorities: vec!["gold".into(), "silver".into(), "bronze".into()],
            default_priority: "silver".into(),
            priority_header: "x-class".into(),
            tenant_header: Some("x-team".into()),
            max_size_per_tenant: 3,
            promote_after: Some(Duration::from_secs(10)),
            streaming: Streaming::Reject,
            hold: Hold::Headers,
            displace: true,
            server_timing: false,
            tenant_weights: HashMap::from([("team-a".into(), 3)]),
            retry_after: RetryAfter::fixed(5).between(5, 6).jitter(0.0),
        };
        assert_eq!(expected.retry_after.mode, RetryAfterMode::Fixed);
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn concurrency_is_a_number_or_inner() {
        assert_eq!(
            read("concurrency = \"inner\"").map(|config| config.concurrency),
            Ok(Concurrency::Inner)
        );
        for bad in ["0", "-1", "1.5", "\"outer\"", "true"] {
            let error = refusal(&format!("concurrency = {bad}"));
            assert!(error.contains("`concurrency`"), "{error}");
            assert!(error.contains("at least 1, or \"inner\""), "{error}");
        }
    }

    #[test]
    fn seconds_that_are_no_duration_are_refused_by_name() {
        for field in ["max_wait_seconds", "promote_after_seconds"] {
            for bad in ["-1", "-0.5", "nan", "inf", "1e300"] {
                let error = refusal(&format!("{field} = {bad}"));
                assert!(error.contains(&format!("`{field}` is ")), "{error}");
                assert!(error.contains("number of seconds from 0"), "{error}");
            }
            let error = refusal(&format!("{field} = \"30\""));
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn a_typo_is_refused_with_its_key_and_line() {
        let cases = [
            ("enabled = true\nmax_sise = 1", "max_sise"),
            ("enabled = true\nretry_after.jiter = 1", "jiter"),
            ("enabled = true\noverflow = \"wait\"", "wait"),
            ("enabled = true\nmax_size = -1", "max_size"),
            ("enabled = true\ntenant_weights.a = -1", "tenant_weights"),
        ];
        for (text, key) in cases {
            let error = refusal(text);
            assert!(error.contains(key), "{error}");
            assert!(error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn null_is_no_duration() {
        let config: QueueConfig =
            serde_json::from_str(r#"{"max_wait_seconds": null}"#).expect("null is allowed");
        assert_eq!(config.max_wait, None);
    }
}

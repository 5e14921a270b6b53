//! Reading a [`QueueConfig`] from a file.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::{Concurrency, QueueConfig};
use crate::admit::read::{ReadKeys, RoomReader, read_map};

/// A [`QueueConfig`] that is being read. Its room is read on the side, until its levels are complete.
#[derive(Default)]
struct Reader {
    config: QueueConfig,
    room: RoomReader,
}

impl ReadKeys for Reader {
    const WHAT: &'static str = "the configuration of a queue";
    const KEYS: &'static [&'static str] = &join(OWN_KEYS, RoomReader::KEYS);

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let config = &mut self.config;
        match key {
            "concurrency" => config.concurrency = map.next_value()?,
            "enabled" => config.enabled = map.next_value()?,
            "overflow" => config.overflow = map.next_value()?,
            "priority_header" => config.priority_header = map.next_value()?,
            "tenant_header" => {
                let name: Option<String> = map.next_value()?;
                config.tenant_header = name.filter(|name| name != "none");
            }
            "streaming" => config.streaming = map.next_value()?,
            "hold" => config.hold = map.next_value()?,
            "server_timing" => config.server_timing = map.next_value()?,
            "retry_after" => config.retry_after = map.next_value()?,
            _ => self.room.read(key, map)?,
        }
        Ok(())
    }
}

const OWN_KEYS: &[&str] = &[
    "concurrency",
    "enabled",
    "overflow",
    "priority_header",
    "tenant_header",
    "streaming",
    "hold",
    "server_timing",
    "retry_after",
];

const ALL_KEYS: usize = OWN_KEYS.len() + RoomReader::KEYS.len();

const fn join(first: &[&'static str], second: &[&'static str]) -> [&'static str; ALL_KEYS] {
    let mut all = [""; ALL_KEYS];
    let mut i = 0;
    while i < ALL_KEYS {
        all[i] = if i < first.len() {
            first[i]
        } else {
            second[i - first.len()]
        };
        i += 1;
    }
    all
}

impl<'de> Deserialize<'de> for QueueConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Reader { config, room } = read_map(Reader::default(), from)?;
        Ok(config.room(room.finish()?))
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
    use std::time::Duration;

    use crate::admit::{Discipline, PriorityLevels};
    use crate::http::{RetryAfter, RetryAfterMode};
    use crate::queue::{Hold, Overflow, Streaming};

    use super::*;

    const EXAMPLE: &str = r#"
[queue]                          # the waiting room in front of the backends (and of swapped models)
enabled = true                   # false: saturated backends answer 503 at once
max_size = 100                   # how many may wait; 0 is the same as enabled = false
max_wait_seconds = 30            # or "none"
overflow = "reject"              # "reject" | "backpressure"
discipline = "fifo"              # "fifo" | "fair" | "deadline"
priorities = ["high", "normal"]  # highest first; names are matched case-insensitively
default_priority = "normal"      # what a missing or unknown name gets
priority_header = "x-priority"
tenant_header = "x-tenant-id"    # names the tenant, for "fair"; or "none"
max_size_per_tenant = 0          # 0: no limit of its own
# promote_after_seconds = 10     # a waiter is promoted by one level per interval waited; absent: never
streaming = "queue"              # "queue" | "reject": what a saturated gateway does with a request for a stream
hold = "body"                    # "body" | "headers": when the slot is given back
displace = false                 # true: in a full room, a higher priority replaces the lowest, latest waiter

[queue.tenant_weights]           # for "fair"; all others weigh 1
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
        let levels = PriorityLevels::new(["gold", "silver", "bronze"], "silver").unwrap();
        let expected = QueueConfig::new(8)
            .enabled(false)
            .max_size(7)
            .max_wait(Duration::from_millis(300))
            .overflow(Overflow::Backpressure)
            .discipline(Discipline::Fair)
            .levels(levels)
            .priority_header("x-class")
            .tenant_header("x-team")
            .max_size_per_tenant(3)
            .promote_after(Duration::from_secs(10))
            .streaming(Streaming::Reject)
            .hold(Hold::Headers)
            .displace(true)
            .server_timing(false)
            .weight("team-a", 3)
            .retry_after(
                RetryAfter::fixed(5)
                    .min_seconds(5)
                    .max_seconds(6)
                    .jitter(0.0),
            );
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
    fn a_typo_is_refused_with_its_key_and_line() {
        let cases = [
            ("enabled = true\nmax_sise = 1", "max_sise"),
            ("enabled = true\nretry_after.jiter = 1", "jiter"),
            ("enabled = true\noverflow = \"wait\"", "wait"),
            ("enabled = true\nmax_size = -1", "max_size"),
            (
                "enabled = true\nmax_wait_seconds = \"never\"",
                "or \"none\"",
            ),
            ("enabled = true\nhold = \"head\"", "`body` or `headers`"),
            (
                "enabled = true\ndiscipline = \"lifo\"",
                "`fifo`, `fair`, `deadline`",
            ),
            ("enabled = true\ntenant_weights.a = -1", "tenant_weights"),
        ];
        for (text, key) in cases {
            let error = refusal(text);
            assert!(error.contains(key), "{error}");
            assert!(error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_known_ones() {
        let error = refusal("max_sise = 1");
        for known in ["`concurrency`", "`max_size`", "`retry_after`"] {
            assert!(error.contains(known), "{error}");
        }
    }

    #[test]
    fn none_is_a_value() {
        let config = read("max_wait_seconds = \"none\"\ntenant_header = \"none\"");
        let expected = QueueConfig::default().max_wait(None).tenant_header(None);
        assert_eq!(config, Ok(expected.clone()));

        let null = r#"{"max_wait_seconds": null, "tenant_header": null}"#;
        assert_eq!(serde_json::from_str(null).ok(), Some(expected));
    }
}

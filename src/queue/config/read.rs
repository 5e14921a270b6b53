//! The form of a [`QueueConfig`] in a file, and of a [`WaitingRoomConfig`], which may be read alone.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

use super::{Concurrency, Hold, Overflow, QueueConfig, Streaming};
use crate::admit::{
    AdaptiveLimit, Discipline, PriorityLevels, ReservedSlots, TargetWait, WaitingRoomConfig,
};
use crate::http::RetryAfter;
use crate::short_number::Short;

/// Defines a table that has the given keys beside the keys of a waiting room. serde's `flatten` would neither refuse an
/// unknown key nor report the line of a value.
macro_rules! table {
    (#[$attr:meta] $name:ident { $($(#[$key_attr:meta])* $key:ident: $type:ty,)* }) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[$attr]
        pub(super) struct $name {
            $($(#[$key_attr])* $key: $type,)*
            max_size: Option<usize>,
            max_size_per_tenant: Option<usize>,
            max_concurrent_per_tenant: Option<usize>,
            #[serde(default, deserialize_with = "max_wait")]
            max_wait_seconds: Option<Option<Duration>>,
            #[serde(default)]
            discipline: Discipline,
            priorities: Option<Vec<String>>,
            default_priority: Option<String>,
            #[serde(default, deserialize_with = "promote_after")]
            promote_after_seconds: Option<Duration>,
            displace: Option<bool>,
            #[serde(default, deserialize_with = "target_wait")]
            target_wait: TargetWait,
            #[serde(default)]
            lifo_when_standing: bool,
            #[serde(default, deserialize_with = "reserve")]
            reserve: (HashMap<String, ReservedSlots>, bool),
            #[serde(default)]
            level_weights: HashMap<String, u32>,
            #[serde(default)]
            tenant_weights: HashMap<String, u32>,
        }

        impl $name {
            /// Takes the waiting room out of the table.
            fn room<E: Error>(&mut self) -> Result<WaitingRoomConfig, E> {
                let default = WaitingRoomConfig::default();
                let (reserve, lend) = std::mem::take(&mut self.reserve);
                let weights = std::mem::take(&mut self.tenant_weights).into_iter();
                Ok(WaitingRoomConfig {
                    max_size: self.max_size.unwrap_or(default.max_size),
                    max_size_per_tenant: self.max_size_per_tenant.filter(|n| *n > 0),
                    max_concurrent_per_tenant: self.max_concurrent_per_tenant.filter(|n| *n > 0),
                    max_wait: self.max_wait_seconds.unwrap_or(default.max_wait),
                    discipline: self.discipline,
                    levels: levels(self.priorities.take(), self.default_priority.take())?,
                    promote_after: self.promote_after_seconds,
                    displace: self.displace.unwrap_or(default.displace),
                    target_wait: self.target_wait,
                    lifo_when_standing: self.lifo_when_standing,
                    reserve,
                    lend,
                    level_weights: std::mem::take(&mut self.level_weights),
                    weights: weights.map(|(name, n)| (name.into(), n)).collect(),
                })
            }
        }
    };
}

table! {
    #[serde(expecting = "the configuration of a waiting room")]
    RoomTable {}
}

table! {
    #[serde(expecting = "the configuration of a queue")]
    QueueTable {
        #[serde(default)]
        concurrency: Concurrency,
        limit: Option<AdaptiveLimit>,
        enabled: Option<bool>,
        #[serde(default)]
        overflow: Overflow,
        priority_header: Option<String>,
        #[serde(default, deserialize_with = "present")]
        tenant_header: Option<Option<String>>,
        #[serde(default)]
        streaming: Streaming,
        #[serde(default)]
        hold: Hold,
        server_timing: Option<bool>,
        #[serde(default)]
        retry_after: RetryAfter,
    }
}

impl<'de> Deserialize<'de> for WaitingRoomConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        RoomTable::deserialize(from)?.room()
    }
}

impl<'de> Deserialize<'de> for QueueConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let default = Self::default();
        let mut table = QueueTable::deserialize(from)?;
        let room = table.room()?;
        let concurrency = match (table.concurrency, table.limit) {
            (Concurrency::Adaptive(_), Some(limit)) => Concurrency::Adaptive(limit),
            (_, Some(_)) => {
                return Err(D::Error::custom(
                    "`limit` is there without `concurrency = \"auto\"`, which needs it",
                ));
            }
            (concurrency, None) => concurrency,
        };
        let tenant_header = table.tenant_header.unwrap_or(default.tenant_header);
        Ok(Self {
            concurrency,
            enabled: table.enabled.unwrap_or(default.enabled),
            room,
            overflow: table.overflow,
            priority_header: table.priority_header.unwrap_or(default.priority_header),
            tenant_header: tenant_header.filter(|name| name != "none"),
            streaming: table.streaming,
            hold: table.hold,
            server_timing: table.server_timing.unwrap_or(default.server_timing),
            status_stream: default.status_stream,
            retry_after: table.retry_after,
        })
    }
}

/// Returns the levels of two keys, which belong together because the default has to be one of the priorities.
fn levels<E: Error>(
    names: Option<Vec<String>>,
    default: Option<String>,
) -> Result<PriorityLevels, E> {
    let usual = PriorityLevels::default();
    let names = names.unwrap_or_else(|| usual.names().map(str::to_owned).collect());
    let default = default.as_deref();
    let default = default.unwrap_or_else(|| usual.name(usual.default_priority()));
    PriorityLevels::new(names, default).map_err(E::custom)
}

/// Reads a value that may be `null`, which differs from an absent key.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A value that is a number or a word, or the `null` of some formats.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "the value must be a number or a word")]
enum Scalar {
    Switch(bool),
    Whole(u64),
    Number(f64),
    Word(String),
    Null(()),
}

impl Scalar {
    /// Returns a duration that is given as a number of seconds, which may have a fraction.
    fn seconds(&self) -> Option<Duration> {
        match *self {
            Self::Whole(seconds) => Some(Duration::from_secs(seconds)),
            Self::Number(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            _ => None,
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Null(())) || matches!(self, Self::Word(word) if word == "none")
    }

    /// Returns `meaning`, or an error that names the key, this value and the allowed values.
    fn or_refuse<T, E: Error>(
        &self,
        meaning: Option<T>,
        key: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Result<T, E> {
        meaning.ok_or_else(|| E::custom(format_args!("`{key}` is {self}: it must be {allowed}")))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => write!(f, "{value}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{}", Short(*number)),
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Null(()) => f.write_str("null"),
        }
    }
}

const SECONDS: &str = "a number of seconds from 0 to 18446744073709551615";

fn seconds_or_none<'de, D: Deserializer<'de>>(
    key: &str,
    from: D,
) -> Result<Option<Duration>, D::Error> {
    let value = Scalar::deserialize(from)?;
    let meaning = match value.is_none() {
        true => Some(None),
        false => value.seconds().map(Some),
    };
    value.or_refuse(meaning, key, format_args!("{SECONDS}, or \"none\""))
}

fn max_wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Duration>>, D::Error> {
    seconds_or_none("max_wait_seconds", from).map(Some)
}

fn promote_after<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    seconds_or_none("promote_after_seconds", from)
}

fn target_wait<'de, D: Deserializer<'de>>(from: D) -> Result<TargetWait, D::Error> {
    let value = Scalar::deserialize(from)?;
    let meaning = match &value {
        Scalar::Word(word) if word == "auto" => Some(TargetWait::Auto),
        value if value.is_none() => Some(TargetWait::Off),
        value => value.seconds().map(TargetWait::After),
    };
    let allowed = format_args!("{SECONDS}, \"auto\" or \"none\"");
    value.or_refuse(meaning, "target_wait", allowed)
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Scalar::deserialize(from)?;
        let meaning = match &value {
            Scalar::Whole(limit) => usize::try_from(*limit).ok().map(Self::Limit),
            Scalar::Word(word) if word == "inner" => Some(Self::Inner),
            Scalar::Word(word) if word == "auto" => Some(Self::Adaptive(AdaptiveLimit::default())),
            _ => None,
        };
        let allowed = "an integer of at least 0, or \"inner\", or \"auto\"";
        value.or_refuse(meaning, "concurrency", allowed)
    }
}

/// Reads the slots that are reserved for levels, and whether they are lent: `{ high = 1, low = "10%", lend = true }`.
fn reserve<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<(HashMap<String, ReservedSlots>, bool), D::Error> {
    let (mut levels, mut lend) = (HashMap::new(), false);
    for (name, value) in HashMap::<String, Scalar>::deserialize(from)? {
        let slots = match &value {
            // A level may be called `lend`, too, so the type of the value decides.
            Scalar::Switch(value) if name == "lend" => {
                lend = *value;
                continue;
            }
            Scalar::Whole(slots) => u32::try_from(*slots).ok().map(ReservedSlots::Slots),
            Scalar::Word(share) => share
                .strip_suffix('%')
                .and_then(|percent| percent.trim().parse::<f64>().ok())
                .map(|percent| ReservedSlots::Share(percent / 100.0)),
            _ => None,
        };
        let key = format_args!("reserve.{name}");
        let slots = value.or_refuse(slots, key, "a number of slots, or a share such as \"10%\"")?;
        levels.insert(name, slots);
    }
    Ok((levels, lend))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use crate::admit::{Discipline, PriorityLevels, ReservedSlots, TargetWait};
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
max_concurrent_per_tenant = 0    # the same
# promote_after_seconds = 10     # a waiter is promoted by one level per interval waited; absent: never
streaming = "queue"              # "queue" | "reject": what a saturated gateway does with a request for a stream
hold = "body"                    # "body" | "headers": when the slot is given back
displace = true                  # in a full room, a higher priority replaces the lowest, latest waiter
target_wait = "auto"             # seconds | "auto" | "none": an arrival that would wait for longer is refused at once
lifo_when_standing = false       # while the queue stands longer than the target, the newest of equal rank go first
# reserve = { high = 1 }         # slots, or a share ("10%"), kept for a level and above; lend = true: lent while unused
# level_weights = { high = 3 }   # shares of levels, in place of strict priorities; all others weigh 1

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
            max_concurrent_per_tenant = 2
            promote_after_seconds = 10
            streaming = "reject"
            hold = "headers"
            displace = false
            target_wait = 0.5
            lifo_when_standing = true
            reserve = { gold = 1, silver = "12.5%", lend = true }
            server_timing = false
            level_weights = { gold = 5, bronze = 2 }
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
            .max_concurrent_per_tenant(2)
            .promote_after(Duration::from_secs(10))
            .streaming(Streaming::Reject)
            .hold(Hold::Headers)
            .displace(false)
            .target_wait(Duration::from_millis(500))
            .lifo_when_standing(true)
            .reserve("gold", ReservedSlots::Slots(1))
            .reserve("silver", ReservedSlots::Share(0.125))
            .lend(true)
            .server_timing(false)
            .level_weight("gold", 5)
            .level_weight("bronze", 2)
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
        assert_eq!(read("concurrency = 0"), Ok(QueueConfig::new(0)));
        for bad in ["-1", "1.5", "\"outer\"", "true"] {
            let error = refusal(&format!("concurrency = {bad}"));
            assert!(error.contains("`concurrency`"), "{error}");
            assert!(error.contains("at least 0, or \"inner\""), "{error}");
        }
    }

    #[test]
    fn concurrency_is_auto_with_a_limit_beside_it() {
        let adaptive = |limit| Ok(Concurrency::Adaptive(limit));
        let concurrency = |text| read(text).map(|config| config.concurrency);
        let default = AdaptiveLimit::default();
        assert_eq!(concurrency("concurrency = \"auto\""), adaptive(default));
        // The keys may be in either order.
        for text in [
            "concurrency = \"auto\"\nlimit = { min = 2, max = 8 }",
            "limit.max = 8\nlimit.min = 2\nconcurrency = \"auto\"",
        ] {
            assert_eq!(concurrency(text), adaptive(default.min(2).max(8)));
        }
        for number in ["", "concurrency = 8", "concurrency = \"inner\""] {
            let error = refusal(&format!("{number}\nlimit = {{ max = 8 }}"));
            assert!(error.contains("`limit` is there without"), "{error}");
        }
        let error = refusal("concurrency = \"auto\"\nlimit.maks = 8");
        assert!(
            error.contains("maks") && error.contains("line 2"),
            "{error}"
        );
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
            ("enabled = true\ntarget_wait = \"never\"", "\"auto\""),
            ("enabled = true\ntarget_wait = -1", "from 0"),
            (
                "enabled = true\nlifo_when_standing = 1",
                "expected a boolean",
            ),
            ("enabled = true\nreserve.high = -1", "`reserve.high` is -1"),
            ("enabled = true\nreserve.high = \"1\"", "such as \"10%\""),
            ("enabled = true\nreserve.high = true", "`reserve.high` is"),
            ("enabled = true\nhold = \"head\"", "`body` or `headers`"),
            (
                "enabled = true\ndiscipline = \"lifo\"",
                "`fifo`, `fair`, `deadline`",
            ),
            ("enabled = true\ntenant_weights.a = -1", "tenant_weights"),
            ("enabled = true\nlevel_weights.high = -1", "level_weights"),
            ("enabled = true\nlevel_weights.high = 1.5", "expected u32"),
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

    /// Tests that read the configuration of a waiting room without a queue.
    mod room {
        use super::*;
        use crate::admit::Priority;

        fn read(text: &str) -> Result<WaitingRoomConfig, String> {
            toml::from_str(text).map_err(|error| error.to_string())
        }

        fn refusal(text: &str) -> String {
            read(text).expect_err(text)
        }

        #[test]
        fn every_key_is_read() {
            let room = read(
                r#"
                max_size = 7
                max_size_per_tenant = 3
                max_wait_seconds = 0.3
                discipline = "deadline"
                priorities = ["gold", "silver"]
                default_priority = "silver"
                promote_after_seconds = 10
                displace = false
                target_wait = "none"
                tenant_weights = { "team-a" = 3 }
                "#,
            );
            let expected = WaitingRoomConfig::default()
                .max_size(7)
                .max_size_per_tenant(3)
                .max_wait(Duration::from_millis(300))
                .discipline(Discipline::Deadline)
                .levels(PriorityLevels::new(["gold", "silver"], "silver").unwrap())
                .promote_after(Duration::from_secs(10))
                .displace(false)
                .target_wait(TargetWait::Off)
                .weight("team-a", 3);
            assert_eq!(room, Ok(expected));
            assert_eq!(read(""), Ok(WaitingRoomConfig::default()));
        }

        #[test]
        fn none_is_a_value() {
            let room = read("max_wait_seconds = \"none\"\npromote_after_seconds = \"none\"");
            assert_eq!(room, Ok(WaitingRoomConfig::default().max_wait(None)));
            let room = read("max_size_per_tenant = 0");
            assert_eq!(room, Ok(WaitingRoomConfig::default()));

            let null: WaitingRoomConfig =
                serde_json::from_str(r#"{"max_wait_seconds": null}"#).expect("null is allowed");
            assert_eq!(null.max_wait, None);
        }

        #[test]
        fn seconds_that_are_no_duration_are_refused_by_name() {
            for field in ["max_wait_seconds", "promote_after_seconds"] {
                for bad in [
                    "-1",
                    "-0.5",
                    "nan",
                    "inf",
                    "1e300",
                    "\"never\"",
                    "\"30\"",
                    "true",
                ] {
                    let error = refusal(&format!("{field} = {bad}"));
                    assert!(error.contains(&format!("`{field}` is ")), "{error}");
                    assert!(error.contains("number of seconds from 0"), "{error}");
                    assert!(error.contains("or \"none\""), "{error}");
                }
            }
        }

        #[test]
        fn an_unknown_key_is_refused_with_the_known_ones() {
            let error = refusal("displace = true\nmax_sise = 1");
            for words in ["unknown field `max_sise`", "`max_size`", "line 2"] {
                assert!(error.contains(words), "{error}");
            }
        }

        #[test]
        fn a_repeated_key_is_refused() {
            let twice = r#"{"max_size": 1, "max_size": 2}"#;
            let error = serde_json::from_str::<WaitingRoomConfig>(twice).unwrap_err();
            assert!(error.to_string().contains("duplicate field `max_size`"));
        }

        #[test]
        fn levels_that_make_no_sense_are_refused_by_name() {
            for (text, words) in [
                ("priorities = []", "`priorities` is empty"),
                (
                    "priorities = [\"a\", \"A\"]",
                    "`priorities` names \"A\" twice",
                ),
                ("priorities = [\"a\"]", "`default_priority` is \"normal\""),
                (
                    "default_priority = \"vip\"",
                    "`default_priority` is \"vip\"",
                ),
            ] {
                let error = refusal(text);
                assert!(error.contains(words), "{error}");
            }
            let high =
                read("default_priority = \"HIGH\"").map(|room| room.levels.default_priority());
            assert_eq!(high, Ok(Priority::HIGHEST));
        }
    }
}

//! Files that are read, and those that are refused.

use std::time::Duration;

use crate::admit::{Discipline, PriorityLevels, ReservedSlots, TargetWait, TenantLimits};
use crate::http::{RetryAfter, RetryAfterMode};
use crate::queue::{Hold, Overflow, Streaming};

use super::*;

const EXAMPLE: &str = r#"
[queue]                          # the waiting room in front of the backends (and of swapped models)
enabled = true                   # false: saturated backends answer 503 at once
max_size = 100                   # how many may wait; 0 is the same as enabled = false
max_wait_seconds = 30            # or "none"
overflow = "reject"              # "reject" | "backpressure" | "shed"
overload_status = 503            # 503 | 429
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
# reserve = { high = 1 }         # slots, or a share ("10%"), kept for a level and above
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
        max_hold_seconds = 600
        idle_timeout_seconds = 0.5
        displace = false
        target_wait = 0.5
        reserve = { gold = 1, silver = "12.5%" }
        server_timing = false
        level_weights = { gold = 5, bronze = 2 }
        tenant_weights = { "team-a" = 3 }
        tenant_limits = { "team-a" = { max_size = 10, concurrency = 2 }, "" = { concurrency = 0 } }
        retry_after = { mode = "fixed", min_seconds = 5, max_seconds = 6, jitter = 0 }
        overload_status = 429
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
        .max_hold(Duration::from_secs(600))
        .idle_timeout(Duration::from_millis(500))
        .displace(false)
        .target_wait(Duration::from_millis(500))
        .reserve("gold", ReservedSlots::Slots(1))
        .reserve("silver", ReservedSlots::Share(0.125))
        .server_timing(false)
        .level_weight("gold", 5)
        .level_weight("bronze", 2)
        .weight("team-a", 3)
        .tenant_limits(
            "team-a",
            TenantLimits::default().max_size(10).concurrency(2),
        )
        .tenant_limits("", TenantLimits::default().concurrency(0))
        .retry_after(
            RetryAfter::fixed(5)
                .min_seconds(5)
                .max_seconds(6)
                .jitter(0.0),
        )
        .overload_status(StatusCode::TOO_MANY_REQUESTS);
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
fn overflow_may_shed() {
    let config = read("concurrency = 8\noverflow = \"shed\"");
    assert_eq!(config, Ok(QueueConfig::new(8).overflow(Overflow::Shed)));
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
            "enabled = true\nlifo_when_standing = false",
            "`lifo_when_standing` is gone",
        ),
        (
            "enabled = true\nreserve = { high = 1, lend = false }",
            "`reserve.lend` is gone",
        ),
        ("enabled = true\nreserve.high = -1", "`reserve.high` is -1"),
        ("enabled = true\nreserve.high = \"1\"", "such as \"10%\""),
        ("enabled = true\nreserve.high = true", "`reserve.high` is"),
        ("enabled = true\nhold = \"head\"", "`except_event_streams`"),
        (
            "enabled = true\noverload_status = 500",
            "`overload_status` is 500: it must be 503 or 429",
        ),
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
        let high = read("default_priority = \"HIGH\"").map(|room| room.levels.default_priority());
        assert_eq!(high, Ok(Priority::HIGHEST));
    }
}

use std::path::PathBuf;

use tower_triage_durable::{OnCrash, RetryPolicy};

use super::*;

/// Returns `[durable]` with these lines.
fn durable(lines: &str) -> Result<DurableConfig, String> {
    read(&format!("[durable]\n{lines}")).map(|config| config.durable.unwrap())
}

fn warnings(lines: &str) -> Vec<String> {
    let text = format!("{BACKEND}models = [{{ name = 'm' }}]\n[durable]\n{lines}");
    read(&text).unwrap().warnings
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn empty_section_means_all_defaults() {
    assert!(read("").unwrap().durable.is_none());
    let config = durable("").unwrap();
    let StoreChoice::Embedded { path } = &config.store else {
        panic!("{config:?}");
    };
    assert_eq!(*path, std::env::temp_dir().join("triage-data"));
    assert_eq!(config.role, Role::Both);
    assert_eq!(
        (config.max_size, config.max_size_per_tenant),
        (1_000_000, 0)
    );
    assert_eq!(config.max_wait, Duration::from_secs(600));
    assert_eq!(config.body_limit_bytes, 104_857_600);
    assert_eq!(config.file_limit_bytes, 209_715_200);
    assert_eq!(config.on_crash, OnCrash::Fail);
    assert_eq!(config.attempt_timeout, Duration::from_secs(3_600));
    assert_eq!(config.retention, Duration::from_secs(86_400));
    assert!(config.webhook_secrets.is_empty());
    assert_eq!(config.retry.max_attempts, 1);
    assert!(!config.webhook_allow_private);
    assert!(warnings("").is_empty());
}

#[test]
fn every_key_of_a_store_in_redis_is_read() {
    let environment: Environment = |name| match name {
        "WEBHOOK_SECRET" => Some(SECRET.into()),
        "REDIS_PASSWORD" => Some("hunter2".into()),
        _ => None,
    };
    let text = "[durable]
        store = 'redis'
        url = 'redis://:${REDIS_PASSWORD}@127.0.0.1:6379'
        drain_url = 'redis+cluster://:${REDIS_PASSWORD}@10.0.0.1:7000,10.0.0.2:7000'
        queue = 'blue-1'
        role = 'worker'
        max_size = 5
        max_size_per_tenant = 2
        max_wait_seconds = 1.5
        body_limit_bytes = 1000
        file_limit_bytes = 2000
        on_crash = 'retry'
        max_attempts = 3
        backoff_seconds = 2
        max_backoff_seconds = 8
        attempt_timeout_seconds = 60
        cancel_after_seconds = 600
        lease_seconds = 2
        retention_seconds = 0.5
        shared_limits = false
        replicas = 1
        replica_timeout_seconds = 0.25
        webhook_secret = '${WEBHOOK_SECRET}'
        webhook_allow_private = true";
    let config = read_in(text, environment).unwrap().durable.unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(config.webhook_secrets[0].text(), SECRET);
    let StoreChoice::Redis(redis) = config.store else {
        panic!("{config:?}");
    };
    assert_eq!(redis.url.text(), "redis://:hunter2@127.0.0.1:6379");
    let drain = "redis+cluster://:hunter2@10.0.0.1:7000,10.0.0.2:7000";
    assert_eq!(redis.drain.unwrap().text(), drain);
    assert_eq!(redis.queue, "blue-1");
    assert_eq!(redis.lease, Duration::from_secs(2));
    assert_eq!(redis.replicas, 1);
    assert_eq!(redis.replica_timeout, Duration::from_millis(250));
    assert_eq!(config.role, Role::Worker);
    assert_eq!((config.max_size, config.max_size_per_tenant), (5, 2));
    assert_eq!(config.max_wait, Duration::from_millis(1_500));
    assert_eq!(config.body_limit_bytes, 1000);
    assert_eq!(config.file_limit_bytes, 2000);
    assert_eq!(config.on_crash, OnCrash::Retry { max_attempts: 3 });
    let [backoff, max_backoff] = [2, 8].map(Duration::from_secs);
    let retry = RetryPolicy::attempts(3).backoff(backoff, max_backoff);
    assert_eq!(config.retry, retry);
    assert_eq!(config.cancel_after, Some(Duration::from_secs(600)));
    assert_eq!(config.attempt_timeout, Duration::from_secs(60));
    assert_eq!(config.retention, Duration::from_millis(500));
    assert!(config.webhook_allow_private);
}

#[test]
fn requests_have_a_time_to_live_unless_it_is_0() {
    let default = durable("").unwrap().cancel_after;
    assert_eq!(default, Some(Duration::from_secs(604_800)));
    assert_eq!(
        durable("cancel_after_seconds = 0").unwrap().cancel_after,
        None
    );
    assert!(durable("cancel_after_seconds = -1").is_err());
}

#[test]
fn retry_after_a_crash_starts_twice_by_default() {
    let config = durable("on_crash = 'retry'").unwrap();
    assert_eq!(config.on_crash, OnCrash::Retry { max_attempts: 2 });
    assert_eq!(config.retry.max_attempts, 1);
}

#[test]
fn max_attempts_alone_lets_failed_requests_run_again() {
    let config = durable("max_attempts = 5").unwrap();
    assert_eq!(config.on_crash, OnCrash::Fail);
    assert_eq!(config.retry, RetryPolicy::attempts(5));
    let error = durable("max_attempts = 0").unwrap_err();
    assert!(error.contains("must be at least 1"), "{error}");
}

#[test]
fn several_webhook_secrets_may_sign() {
    let other = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let config = durable(&format!("webhook_secret = ['{SECRET}', '{other}']")).unwrap();
    let texts: Vec<_> = config.webhook_secrets.iter().map(|it| it.text()).collect();
    assert_eq!(texts, [SECRET, other]);
    assert!(durable("webhook_secret = ['hunter2']").is_err());
}

#[test]
fn invalid_key_error_names_line_and_remedy() {
    for (lines, problem) in [
        ("pth = 'x'", "unknown field `pth`, expected one of"),
        (
            "store = 'sqlite'",
            "unknown variant `sqlite`, expected `embedded` or `redis`",
        ),
        (
            "role = 'back'",
            "unknown variant `back`, expected one of `front`, `worker`, `both`",
        ),
        (
            "on_crash = 'ignore'",
            "unknown variant `ignore`, expected `fail` or `retry`",
        ),
        (
            "max_size = 0",
            "in `durable.max_size`: 0 must be a number above 0",
        ),
        ("max_size = -1", "expected a whole number, at least 0"),
        (
            "max_wait_seconds = 0",
            "in `durable.max_wait_seconds`: 0 must be",
        ),
        (
            "body_limit_bytes = 0",
            "in `durable.body_limit_bytes`: 0 must be",
        ),
        (
            "file_limit_bytes = 0",
            "in `durable.file_limit_bytes`: 0 must be",
        ),
        (
            "attempt_timeout_seconds = 0",
            "0 must be a number of seconds above 0",
        ),
        (
            "lease_seconds = -1",
            "-1 must be a number of seconds above 0",
        ),
        (
            "retention_seconds = 0",
            "0 must be a number of seconds above 0",
        ),
        (
            "webhook_secret = 5",
            "in `durable.webhook_secret`: it must be a string, or a list of strings",
        ),
    ] {
        let error = durable(lines).unwrap_err();
        assert!(error.starts_with("line 2, column "), "{error}");
        assert!(error.contains(problem), "{lines}\n{error}");
    }
    let at_1 = |lines: &str, problem: &str| {
        let error = durable(lines).unwrap_err();
        assert!(error.starts_with("line 1, [durable]: "), "{error}");
        assert!(error.contains(problem), "{lines}\n{error}");
        assert!(!error.contains("hunter2"), "{error}");
    };
    at_1(
        "on_crash = 'retry'\nmax_attempts = 1",
        "`max_attempts` is 1",
    );
    at_1("store = 'redis'", "needs `url`, such as \"redis://");
    for url in [
        "127.0.0.1:6379",
        "http://:hunter2@a",
        "redis://",
        "redis:///0",
        "",
    ] {
        let lines = format!("store = 'redis'\nurl = '{url}'");
        at_1(&lines, "`url`: the address of Redis can't be used");
        let lines = format!("store = 'redis'\nurl = 'redis://a'\ndrain_url = '{url}'");
        at_1(&lines, "`drain_url`: the address of Redis can't be used");
    }
    let redis = "store = 'redis'\nurl = 'redis://a'\n";
    let itself = format!("{redis}drain_url = 'redis://a'");
    at_1(&itself, "`drain_url` is the same as `url`");
    at_1(&format!("{redis}queue = 'a:{{b}}'"), "`queue` is \"a:{b}\"");
    at_1(&format!("{redis}queue = ''"), "`queue` is \"\"");
    at_1("url = 'redis://a'", "`url` needs `store = \"redis\"`");
    at_1(
        "drain_url = 'redis://a'",
        "`drain_url` needs `store = \"redis\"`",
    );
    at_1(
        "shared_limits = true",
        "`shared_limits` needs `store = \"redis\"`",
    );
    at_1("replicas = 1", "`replicas` needs `store = \"redis\"`");
    at_1("path = ''", "`path` is empty");
}

#[test]
fn webhook_secret_must_be_that_of_standard_webhooks() {
    let at = |secret: &str| durable(&format!("webhook_secret = '{secret}'"));
    let config = at(SECRET).unwrap();
    assert_eq!(config.webhook_secrets[0].text(), SECRET);
    let error = at("${NO_SUCH_SECRET}").unwrap_err();
    assert!(
        error.contains(
            "`webhook_secret` needs the environment variable NO_SUCH_SECRET, which is not set"
        ),
        "{error}"
    );
    for secret in [
        "",
        "whsec_",
        "whsec_hunter2",
        "hunter2",
        &SECRET["whsec_".len()..],
    ] {
        let error = at(secret).unwrap_err();
        assert!(
            error.contains("`webhook_secret` must be \"whsec_\""),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn keys_without_effect_are_warned_of() {
    for (lines, words) in [
        ("role = 'front'", "stored requests are not run"),
        ("role = 'worker'", "no request is stored"),
    ] {
        let warnings = warnings(lines).join("\n");
        assert!(warnings.contains("[durable]: "), "{warnings}");
        assert!(warnings.contains(words), "{warnings}");
    }
    assert!(warnings("on_crash = 'fail'\nmax_attempts = 2\nlease_seconds = 30").is_empty());
}

#[test]
fn batch_is_the_lowest_level_unless_it_is_named() {
    let names = |text: &str| -> Vec<String> {
        let config = read(text).unwrap();
        let room = config.waiting_room(config.durable.is_some()).unwrap().room;
        room.levels.names().map(str::to_owned).collect()
    };
    assert_eq!(names(""), ["high", "normal"]);
    assert_eq!(names("[durable]"), ["high", "normal", "batch"]);
    let named = "[queue]\npriorities = ['Batch', 'low']\ndefault_priority = 'low'\n[durable]";
    assert_eq!(names(named), ["Batch", "low"]);
    let room = read("[durable]").unwrap().waiting_room(true).unwrap().room;
    assert_eq!(room.levels.name(room.levels.default_priority()), "normal");
    let many: Vec<String> = (0..32).map(|n| format!("'l{n}'")).collect();
    let many = format!(
        "[queue]\npriorities = [{}]\ndefault_priority = 'l0'\n[durable]",
        many.join(",")
    );
    let error = read(&many).unwrap_err();
    assert!(
        error.starts_with("line 4, [durable]: the level \"batch\" can't be added"),
        "{error}"
    );
}

#[test]
fn relative_path_begins_at_the_folder_of_the_file() {
    let StoreChoice::Embedded { path } = durable("path = '/var/lib/triage'").unwrap().store else {
        panic!("not embedded");
    };
    assert_eq!(path, PathBuf::from("/var/lib/triage"));
}

#[test]
fn demonstration_is_valid() {
    let config = read(include_str!("../../../durable.toml")).unwrap();
    assert!(config.durable.is_some());
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

//! The report of Redis on itself: the settings on which the promises of the store depend, and its free memory.

use std::time::Duration;

use redis::Value;

use super::reply;
use super::shared::Shared;

/// Warns of settings with which Redis may lose requests. Waits until Redis is reachable.
pub(super) async fn settings(shared: &Shared) {
    let info = loop {
        let mut command = redis::cmd("INFO");
        command.arg("persistence").arg("memory");
        match shared.link.command(&command).await {
            Ok(value) => break value,
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    };
    for warning in warnings(info) {
        tracing::warn!(redis = %shared.link.address(), "{warning}");
    }
}

/// Returns the memory that Redis has left for new data. `None` without a `maxmemory`, or if Redis does not report it.
pub(super) async fn free_bytes(shared: &Shared) -> Option<u64> {
    let mut command = redis::cmd("INFO");
    let info = shared.link.command(command.arg("memory")).await.ok()?;
    left(info)
}

fn left(info: Value) -> Option<u64> {
    let info = reply::text(info).ok()?;
    let number = |name: &str| field(&info, name)?.parse::<u64>().ok();
    let limit = number("maxmemory").filter(|limit| *limit > 0)?;
    Some(limit.saturating_sub(number("used_memory")?))
}

/// Returns the value of a field of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn warnings(info: Value) -> Vec<&'static str> {
    let info = reply::text(info).unwrap_or_default();
    let setting = |name: &str| field(&info, name);
    let mut warnings = Vec::new();
    if setting("aof_enabled") == Some("0") {
        warnings.push(
            "`appendonly` is off: what was accepted is lost when Redis stops; set `appendonly yes`",
        );
    }
    if setting("maxmemory_policy").is_some_and(|policy| policy != "noeviction") {
        warnings.push(
            "`maxmemory-policy` lets Redis drop requests when its memory is full; set it to `noeviction`",
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_loses_requests_is_named() {
        let warnings = |text: &str| warnings(Value::BulkString(text.into()));
        assert!(warnings("aof_enabled:1\r\nmaxmemory_policy:noeviction\r\n").is_empty());
        let both = warnings("aof_enabled:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert!(both[0].contains("`appendonly`"));
        assert!(both[1].contains("`maxmemory-policy`"));
    }

    #[test]
    fn free_memory_is_known_with_a_limit() {
        let left = |text: &str| left(Value::BulkString(text.into()));
        let of = |limit: u64| left(&format!("used_memory:100\r\nmaxmemory:{limit}\r\n"));
        assert_eq!(of(300), Some(200));
        assert_eq!(of(50), Some(0));
        assert_eq!(of(0), None);
        assert_eq!(left("redis_version:7.0.0\r\n"), None);
    }
}

//! A check of the Redis settings on which the promises of the store depend.

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

fn warnings(info: Value) -> Vec<&'static str> {
    let info = reply::text(info).unwrap_or_default();
    let setting = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
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

#[cfg(all(test, not(loom)))]
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
}

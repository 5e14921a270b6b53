//! The time after which a client wants a file to expire.

use serde_json::Value;

use super::error::bad_request;
use tower_triage::rejection::Rejection;

/// The allowed range in seconds, from an hour to 30 days, as in OpenAI's API.
const SECONDS: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;

/// Reads `anchor` and `seconds` of the parameter `name`, from a form or from JSON. Returns the lifetime of the file in
/// seconds from its creation.
///
/// # Errors
///
/// Returns an error if one of the two is missing or has an invalid value.
pub(super) fn read_expires_after(
    name: &'static str,
    anchor: Option<&Value>,
    seconds: Option<&Value>,
) -> Result<u64, Rejection> {
    let is_anchor = anchor.is_some_and(|anchor| anchor == "created_at");
    let seconds = seconds.and_then(|seconds| match seconds {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    match seconds.filter(|seconds| is_anchor && SECONDS.contains(seconds)) {
        Some(seconds) => Ok(seconds),
        None => {
            let (first, last) = (SECONDS.start(), SECONDS.end());
            let message = format!(
                "`{name}` must have the `anchor` \"created_at\" and {first} to {last} `seconds`"
            );
            Err(bad_request("invalid_expires_after", message).with_param(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anchor_and_seconds_have_to_be_those_of_openai() {
        let read = |anchor: Value, seconds: Value| {
            read_expires_after("expires_after", Some(&anchor), Some(&seconds)).ok()
        };
        assert_eq!(read(json!("created_at"), json!(3_600)), Some(3_600));
        assert_eq!(read(json!("created_at"), json!("2592000")), Some(2_592_000));
        for (anchor, seconds) in [
            (json!("last_active_at"), json!(3_600)),
            (json!("created_at"), json!(3_599)),
            (json!("created_at"), json!(2_592_001)),
            (json!("created_at"), json!(-1)),
            (json!("created_at"), json!("soon")),
            (Value::Null, json!(3_600)),
        ] {
            assert_eq!(
                read(anchor.clone(), seconds.clone()),
                None,
                "{anchor} {seconds}"
            );
        }
        assert!(read_expires_after("expires_after", None, None).is_err());
    }
}

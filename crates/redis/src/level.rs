//! The levels of requests as they are stored: by name, because the list of levels may change while requests wait.

use std::fmt::Write;

use super::reply::Unexpected;
use tower_triage::{Priority, PriorityLevels};

/// Returns the stored form of a level's name, which begins with `=`. Earlier versions of the crate stored the number of
/// the level instead.
pub(super) fn stored(name: &str) -> String {
    let mut stored = String::from("=");
    for byte in name.bytes().map(|byte| byte.to_ascii_lowercase()) {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => stored.push(char::from(byte)),
            _ => _ = write!(stored, "%{byte:02X}"), // a string takes all
        }
    }
    stored
}

/// Returns the stored names of all levels, for the scripts.
pub(super) fn all(levels: &PriorityLevels) -> String {
    let names: Vec<String> = levels.names().map(stored).collect();
    names.join(",")
}

/// Reads the number of a stored level. A level that is not in the list any more is the lowest one.
pub(super) fn read(level: &[u8], levels: &PriorityLevels) -> Result<u8, Unexpected> {
    let level = std::str::from_utf8(level).map_err(|_| Unexpected)?;
    let number = match level.starts_with('=') {
        true => levels.names().position(|name| stored(name) == level),
        false => Some(level.parse().map_err(|_| Unexpected)?),
    };
    let number = number.and_then(|number| u8::try_from(number).ok());
    Ok(levels.clamp(Priority(number.unwrap_or(u8::MAX))).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_levels_are_found_in_another_list() {
        let before = PriorityLevels::new(["High", "a b:c,%", "batch"], "batch").unwrap();
        let after = PriorityLevels::new(["urgent", "batch", "high"], "high").unwrap();
        assert_eq!(all(&before), "=high,=a%20b%3Ac%2C%25,=batch");
        for (level, in_before, in_after) in [
            ("=high", 0, 2),
            ("=a%20b%3Ac%2C%25", 1, 2),
            ("=batch", 2, 1),
            ("=gone", 2, 2),
            ("0", 0, 0),
            ("7", 2, 2),
            ("999", 2, 2),
        ] {
            assert_eq!(
                read(level.as_bytes(), &before).unwrap(),
                in_before,
                "{level}"
            );
            assert_eq!(read(level.as_bytes(), &after).unwrap(), in_after, "{level}");
        }
        assert!(read(b"high", &before).is_err());
    }
}

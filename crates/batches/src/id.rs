//! The ids of files, batches and lines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use tower_triage_durable::{RequestId, Store};

/// The number of hexadecimal digits after the prefix, of which 14 encode the time and 32 are random.
const DIGITS: usize = 14 + 32;

/// Returns a new id with this prefix. The id can't be guessed, and newer ids sort before older ones.
///
/// # Errors
///
/// Returns an error if the system can't provide random bytes.
pub(super) fn new_id(prefix: &str, now: SystemTime) -> Result<String, std::io::Error> {
    let micros = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_micros() as u64);
    // The time counts down from its largest value, so that newer ids sort first.
    let inverted = (1 << 56) - 1 - (micros & ((1 << 56) - 1));
    Ok(format!("{prefix}{inverted:014x}{}", RequestId::random()?))
}

/// Returns `true` if [`new_id`] may have created this id.
pub(super) fn is_id(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|digits| {
        digits.len() == DIGITS
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns the request id under which a line of a batch is stored. The id is always the same, so storing the line again
/// has no effect. It can be guessed only by clients that know the id of the batch.
pub(super) fn line_id(batch: &str, line: u64) -> RequestId {
    let mut digest = Sha256::new();
    digest.update(batch);
    digest.update(line.to_be_bytes());
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest.finalize()[..16]);
    RequestId::from_bits(u128::from_be_bytes(bits))
}

/// Returns whole seconds since 1970, the format of times in OpenAI's API.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// Returns milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as u64)
}

/// Returns the remaining time until an instant in milliseconds since 1970, or zero if the instant has passed.
pub(super) fn until(store: &dyn Store, millis_then: u64) -> Duration {
    Duration::from_millis(millis_then.saturating_sub(millis(store.now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_names_sort_first() {
        let now = SystemTime::now();
        let older = new_id("file-", now).unwrap();
        let newer = new_id("file-", now + Duration::from_micros(1)).unwrap();
        assert!(newer < older);
        assert!(is_id("file-", &older) && !is_id("batch_", &older));
        assert!(!is_id("file-", &older[..older.len() - 1]));
    }

    #[test]
    fn each_line_of_each_batch_has_a_name_of_its_own() {
        assert_eq!(line_id("batch_a", 1), line_id("batch_a", 1));
        assert_ne!(line_id("batch_a", 1), line_id("batch_a", 2));
        assert_ne!(line_id("batch_a", 1), line_id("batch_b", 1));
    }
}

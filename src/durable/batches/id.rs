//! The names of files and batches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::super::RequestId;

/// The number of hexadecimal digits after the prefix: 14 of the time, and 32 random ones.
const DIGITS: usize = 14 + 32;

/// Returns a new name of this prefix. It can't be guessed, and newer names sort before older ones.
///
/// # Errors
///
/// If the system has no random bytes.
pub(super) fn new_id(prefix: &str, now: SystemTime) -> Result<String, std::io::Error> {
    let micros = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_micros() as u64);
    let inverted = (1 << 56) - 1 - (micros & ((1 << 56) - 1));
    Ok(format!("{prefix}{inverted:014x}{}", RequestId::random()?))
}

/// Returns `true` if [`new_id`] may have made this name.
pub(super) fn is_id(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|digits| {
        digits.len() == DIGITS
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns the name under which a line of a batch is stored as a request. It is the same each time, so that storing the line
/// again changes nothing; and whoever doesn't know the batch's name can't guess it.
pub(super) fn line_id(batch: &str, line: u64) -> RequestId {
    let mut digest = Sha256::new();
    digest.update(batch);
    digest.update(line.to_be_bytes());
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest.finalize()[..16]);
    RequestId::from_bits(u128::from_be_bytes(bits))
}

/// Returns whole seconds since 1970, as OpenAI's API has times.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// Returns milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as u64)
}

/// Returns the time until an instant in milliseconds since 1970; zero if it has passed.
pub(super) fn until(millis_then: u64) -> Duration {
    Duration::from_millis(millis_then.saturating_sub(millis(SystemTime::now())))
}

#[cfg(all(test, not(loom)))]
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

//! Tokens that let a rejected request keep its place, if it comes back when it was told to.
//!
//! Without a token, a client that obeys `Retry-After` starts again behind all requests that came while it was away, and
//! a client that retries at once does better. The server stores nothing, because the token contains the first arrival
//! and the earliest time of the retry. Both are signed together with the level and the tenant.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderName, HeaderValue};
use sha2::Sha256;

use crate::admit::{ClientRetry, Ticket};
use crate::clock;

/// The header that carries the token on rejections, and that a retry sends back.
pub(crate) const X_TRIAGE_PLACE: HeaderName = HeaderName::from_static("x-triage-place");

/// The settings for the places of rejected requests: the key of the tokens and the time for which a place is kept. See
/// [`QueueConfig::retry_places`](crate::QueueConfig::retry_places).
///
/// ```
/// use std::time::Duration;
/// use tower_triage::QueueConfig;
/// use tower_triage::queue::RetryPlaces;
///
/// let key = b"from the secrets of the deployment";
/// let places = RetryPlaces::with_key(key).max_age(Duration::from_secs(30));
/// assert!(QueueConfig::new(8).retry_places(places).validate().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RetryPlaces {
    key: Vec<u8>,
    max_age: Duration,
}

impl RetryPlaces {
    /// The length of the shortest key in bytes.
    pub const MIN_KEY: usize = 16;

    /// Creates settings with a random key of this process. Only this process can read its tokens, and only until it
    /// restarts.
    ///
    /// # Panics
    ///
    /// Panics if the operating system fails to provide random numbers.
    #[must_use]
    pub fn random() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system has random numbers");
        Self::with_key(key)
    }

    /// Creates settings with this secret, which all servers of one service share. It must have at least
    /// [`MIN_KEY`](Self::MIN_KEY) random bytes. The wall clocks of the servers should agree to less than a second.
    #[must_use]
    pub fn with_key(key: impl AsRef<[u8]>) -> Self {
        Self {
            key: key.as_ref().to_vec(),
            max_age: Duration::from_secs(60),
        }
    }

    /// Sets the largest age at which a place still counts, which is 60 s by default. A token is also good for this long
    /// after its `Retry-After`.
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// Returns the length of the key in bytes.
    pub(crate) fn key_len(&self) -> usize {
        self.key.len()
    }
}

/// Formats the settings without the secret key.
impl fmt::Debug for RetryPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPlaces")
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

/// A signer and reader of tokens.
#[derive(Clone)]
pub(crate) struct Places {
    mac: Hmac<Sha256>,
    max_age: Duration,
    /// The largest time that a place counts back. This is at most half of the longest wait, because the rest is for the
    /// retry.
    farthest: Duration,
}

/// The contents of a token. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    first_arrival: u64,
    not_before: u64,
}

/// The version at the start of a token. The first arrival, the earliest retry and the signature follow, all in
/// hexadecimal digits.
const VERSION: u8 = 1;
const PLACE_LEN: usize = 1 + 8 + 8;
const TOKEN_LEN: usize = PLACE_LEN + 32;

impl Places {
    /// Creates a signer for a waiting room in which requests wait for `max_wait` at most.
    pub(crate) fn new(places: &RetryPlaces, max_wait: Option<Duration>) -> Self {
        let half = max_wait.map_or(Duration::MAX, |max_wait| max_wait / 2);
        Self {
            mac: Hmac::new_from_slice(&places.key).expect("a key of any length will do"),
            max_age: places.max_age,
            farthest: places.max_age.min(half),
        }
    }

    /// Gives the place that a token proves to the ticket of a request that arrives now. A token that is not good is
    /// ignored.
    pub(super) fn keep(&self, mut ticket: Ticket, level: &str, token: &HeaderValue) -> Ticket {
        let Some(arrival) = ticket.arrival else {
            return ticket;
        };
        let tenant = ticket.tenant.as_bytes();
        let now = wall_millis(arrival);
        let Some(place) = self.read(token.as_bytes(), level, tenant, now) else {
            return ticket;
        };
        if now < place.not_before {
            return ticket.client_retry(ClientRetry::Early);
        }
        let age = Duration::from_millis(now.saturating_sub(place.first_arrival));
        ticket.arrival = arrival
            .checked_sub(age.min(self.farthest))
            .or(Some(arrival));
        ticket.requeued().client_retry(ClientRetry::Kept)
    }

    /// Returns the token for a request with this ticket that is rejected now and told to come back after `retry_after`.
    pub(super) fn token(&self, ticket: &Ticket, level: &str, retry_after: Duration) -> HeaderValue {
        let now = clock::now();
        let retry_after = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        let place = Place {
            first_arrival: wall_millis(ticket.arrival.unwrap_or(now)),
            not_before: wall_millis(now).saturating_add(retry_after),
        };
        self.write(place, level, ticket.tenant.as_bytes())
    }

    fn write(&self, place: Place, level: &str, tenant: &[u8]) -> HeaderValue {
        let place = place.to_bytes();
        let signature = self.mac(&place, level, tenant).finalize().into_bytes();
        let bytes = place.iter().chain(&signature);
        let text: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        let mut token = HeaderValue::try_from(text).expect("digits are a header value");
        token.set_sensitive(true);
        token
    }

    /// Returns the contents of a token. Returns `None` if the token was not signed for this level and tenant, or is too
    /// old.
    fn read(&self, token: &[u8], level: &str, tenant: &[u8], now: u64) -> Option<Place> {
        let bytes = from_hex(token)?;
        let (place, signature) = bytes.split_first_chunk::<PLACE_LEN>()?;
        self.mac(place, level, tenant)
            .verify_slice(signature)
            .ok()?;
        let place = Place::from_bytes(place)?;
        let max_age = u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX);
        (now <= place.not_before.saturating_add(max_age)).then_some(place)
    }

    /// Starts the signature over a place, a level and a tenant. The length of the level keeps the two names apart.
    fn mac(&self, place: &[u8; PLACE_LEN], level: &str, tenant: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(place);
        mac.update(&(level.len() as u64).to_be_bytes());
        mac.update(level.as_bytes());
        mac.update(tenant);
        mac
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places")
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Returns the version, the first arrival and the earliest retry as big-endian bytes.
    fn to_bytes(self) -> [u8; PLACE_LEN] {
        let mut bytes = [VERSION; PLACE_LEN];
        bytes[1..9].copy_from_slice(&self.first_arrival.to_be_bytes());
        bytes[9..].copy_from_slice(&self.not_before.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; PLACE_LEN]) -> Option<Self> {
        let (version, times) = bytes.split_first()?;
        let (first_arrival, not_before) = times.split_first_chunk()?;
        (*version == VERSION).then_some(Self {
            first_arrival: u64::from_be_bytes(*first_arrival),
            not_before: u64::from_be_bytes(not_before.try_into().ok()?),
        })
    }
}

/// Returns the bytes of a token, if the token has the right length and consists of hexadecimal digits.
fn from_hex(token: &[u8]) -> Option<[u8; TOKEN_LEN]> {
    let mut bytes = [0; TOKEN_LEN];
    if token.len() != 2 * TOKEN_LEN {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(token.chunks_exact(2)) {
        for digit in digits {
            let digit = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | digit as u8;
        }
    }
    Some(bytes)
}

/// Converts an instant of Tokio's clock to milliseconds of the wall clock. The result is 0 before 1970.
fn wall_millis(at: Instant) -> u64 {
    let (now, wall) = (Instant::now(), SystemTime::now());
    let wall = match at.checked_duration_since(now) {
        Some(ahead) => wall.checked_add(ahead),
        None => wall.checked_sub(now.saturating_duration_since(at)),
    };
    let since = wall.and_then(|wall| wall.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Priority;

    const MINUTE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);
    const PLACE: Place = Place {
        first_arrival: 1_000_000,
        not_before: 1_005_000,
    };

    fn places() -> Places {
        Places::new(&RetryPlaces::with_key([7; 32]), None)
    }

    fn ticket(arrival: Instant) -> Ticket {
        Ticket::new(Priority(1), arrival).tenant("team-a".into())
    }

    #[test]
    fn a_token_says_what_was_signed() {
        let token = places().write(PLACE, "normal", b"team-a");
        let read = |now| places().read(token.as_bytes(), "normal", b"team-a", now);
        for now in [0, 1_000_000, 1_005_000, 1_065_000] {
            assert_eq!(read(now), Some(PLACE), "{now}");
        }
        assert_eq!(read(1_065_001), None, "60 s after it was good");
    }

    #[test]
    fn a_token_of_another_level_tenant_or_key_is_none() {
        let token = places().write(PLACE, "normal", b"team-a");
        let token = token.as_bytes();
        let other = Places::new(&RetryPlaces::with_key([8; 32]), None);
        let now = PLACE.not_before;
        assert_eq!(places().read(token, "high", b"team-a", now), None);
        assert_eq!(places().read(token, "normal", b"team-b", now), None);
        assert_eq!(places().read(token, "normalt", b"eam-a", now), None);
        assert_eq!(other.read(token, "normal", b"team-a", now), None);
        let (random, random_too) = (RetryPlaces::random(), RetryPlaces::random());
        assert!(random != random_too);
    }

    #[test]
    fn a_token_that_was_tampered_with_is_none() {
        let token = places().write(PLACE, "normal", b"");
        let read = |token: &[u8]| places().read(token, "normal", b"", PLACE.not_before);
        assert_eq!(read(token.as_bytes()), Some(PLACE));
        for at in 0..token.len() {
            let mut other = token.as_bytes().to_vec();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(read(&other), None, "digit {at}");
        }
        let longer = [token.as_bytes(), b"00"].concat();
        let shorter = &token.as_bytes()[2..];
        for bad in [
            b"",
            shorter,
            &longer,
            &b"z".repeat(2 * TOKEN_LEN),
            &b"\xff".repeat(98),
        ] {
            assert_eq!(read(bad), None);
        }
    }

    #[test]
    fn another_version_is_none() {
        let mut bytes = PLACE.to_bytes();
        assert_eq!(Place::from_bytes(&bytes), Some(PLACE));
        bytes[0] = 2;
        assert_eq!(Place::from_bytes(&bytes), None);
    }

    #[test]
    fn a_retry_that_obeyed_has_its_first_arrival() {
        let places = places();
        let now = clock::now();
        let first = now - 10 * SECOND;
        let token = places.token(&ticket(first), "normal", Duration::ZERO);
        assert!(token.is_sensitive());
        // The times in a token are whole milliseconds.
        let arrival = clock::now() + SECOND;
        let kept = places.keep(ticket(arrival), "normal", &token);
        assert_eq!(
            (kept.client_retry, kept.requeued),
            (ClientRetry::Kept, true)
        );
        let off = kept.arrival.unwrap().max(first) - kept.arrival.unwrap().min(first);
        assert!(off < SECOND / 2, "{off:?}");
    }

    #[test]
    fn a_retry_that_came_too_early_loses_its_place() {
        let places = places();
        let token = places.token(&ticket(clock::now()), "normal", MINUTE);
        let arrival = clock::now();
        let early = places.keep(ticket(arrival), "normal", &token);
        assert_eq!(early.client_retry, ClientRetry::Early);
        assert_eq!((early.arrival, early.requeued), (Some(arrival), false));
        let unknown = places.keep(ticket(arrival), "high", &token);
        assert_eq!(unknown.client_retry, ClientRetry::No);
    }

    #[test]
    fn a_place_counts_back_to_a_bound() {
        let key = RetryPlaces::with_key([7; 32]);
        for (max_age, max_wait, expected) in [
            (MINUTE, None, MINUTE),
            (10 * SECOND, None, 10 * SECOND),
            (MINUTE, Some(30 * SECOND), 15 * SECOND),
            (MINUTE, Some(600 * SECOND), MINUTE),
        ] {
            let places = Places::new(&key.clone().max_age(max_age), max_wait);
            let arrival = clock::now() + 2 * SECOND;
            let Some(first) = arrival.checked_sub(100 * SECOND) else {
                return; // the clock has just begun
            };
            let token = places.token(&ticket(first), "normal", SECOND);
            let kept = places.keep(ticket(arrival), "normal", &token);
            assert_eq!(kept.arrival, Some(arrival - expected));
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        let places = RetryPlaces::with_key("a secret of many bytes");
        assert!(!format!("{places:?}").contains("secret"));
        assert_eq!(places.key_len(), 22);
    }
}

//! The names of stored requests.

use std::fmt;
use std::str::FromStr;

/// The name of a stored request: 128 random bits, so that it can't be guessed.
///
/// Its text form is 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u128);

impl RequestId {
    /// Returns a new random name.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub fn random() -> Result<Self, std::io::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// Returns the name that these bits make, for names that are derived from others.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns its bits.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for RequestId {
    type Err = InvalidRequestId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hexadecimal = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != 32 || !is_hexadecimal {
            return Err(InvalidRequestId(()));
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| InvalidRequestId(()))?;
        Ok(Self(bits))
    }
}

/// The text is not the name of a stored request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a request: expected 32 hexadecimal digits in lower case")]
pub struct InvalidRequestId(());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn its_text_form_reads_back() {
        let id = RequestId::random().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(id, RequestId::random().unwrap());
        assert_eq!(RequestId::from_bits(1).to_string().len(), 32);
        let others = [
            "",
            "1",
            "+0000000000000000000000000000001",
            "G".repeat(32).leak(),
        ];
        for text in others {
            assert!(text.parse::<RequestId>().is_err(), "{text}");
        }
    }
}

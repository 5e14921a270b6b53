//! The identifiers of stored requests.

use std::fmt;
use std::str::FromStr;

/// The identifier of a stored request, made of 128 random bits so that callers can't guess those of others.
///
/// Its text form is 32 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u128);

impl RequestId {
    /// Returns a new random identifier.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system if its random number generator fails.
    pub fn random() -> Result<Self, std::io::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// Returns the identifier with these bits, for identifiers that are derived from others.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the 128 bits of the identifier.
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

/// The error of a text that is not the identifier of a stored request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a request: expected 32 hexadecimal digits in lower case")]
pub struct InvalidRequestId(());

#[cfg(test)]
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

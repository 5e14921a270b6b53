//! The secret with which the sender signs webhooks.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The secret that the server shares with the receivers of its webhooks.
///
/// Receivers use it to verify that a webhook comes from this server.
///
/// ```
/// use tower_triage_durable::webhooks::WebhookSecret;
///
/// let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
/// assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), tower_triage_durable::webhooks::InvalidWebhookSecret>(())
/// ```
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

/// The lengths of a secret that Standard Webhooks allows, in bytes.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Base64 of people who make a secret by hand: its padding may be missing, and the bits of its last digit too many.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl WebhookSecret {
    /// Parses a secret in the form `whsec_` followed by 24 to 64 random bytes in base64.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has another form.
    pub fn parse(text: &str) -> Result<Self, InvalidWebhookSecret> {
        let bytes = text
            .strip_prefix("whsec_")
            .and_then(|text| BASE64.decode(text).ok());
        let bytes = bytes.filter(|bytes| BYTES.contains(&bytes.len()));
        bytes.map(Self).ok_or(InvalidWebhookSecret(()))
    }

    /// Returns the value of the `webhook-signature` header for a message that is sent at `timestamp`, in seconds since
    /// 1970.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut mac: Hmac<Sha256> =
            Hmac::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

/// Omits the secret, so that it can't leak into logs.
impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSecret").finish_non_exhaustive()
    }
}

/// The error of a text that is not a secret for webhooks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret of webhooks must be `whsec_` and 24 to 64 bytes in base64")]
pub struct InvalidWebhookSecret(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let secret = WebhookSecret::parse(text).unwrap();
        assert_eq!(format!("{secret:?}"), "WebhookSecret { .. }");
    }

    #[test]
    fn letters_of_any_number_are_a_secret() {
        for length in 32..36 {
            let text = format!("whsec_{}", "z".repeat(length));
            // One digit beyond a group of four holds no byte.
            assert_eq!(WebhookSecret::parse(&text).is_ok(), length % 4 != 1);
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_c2hvcnQ=",
            "whsec_?",
        ] {
            assert!(WebhookSecret::parse(text).is_err(), "{text}");
        }
    }
}

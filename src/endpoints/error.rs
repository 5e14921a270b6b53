//! Routing errors, which tell a client why its request cannot be served. Each reason has a status and a stable code.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::http::{BodyFault, Rejection, ToRejection};

/// The reason why the endpoints cannot serve a request, so that waiting would not help.
///
/// ```
/// use tower_triage::rejection::ToRejection;
/// use tower_triage::endpoints::{Requirements, RouteError};
///
/// let error = Requirements::from_json(b"{}").unwrap_err();
/// assert!(matches!(error, RouteError::ModelMissing { .. }));
/// assert_eq!(error.code(), "model_missing");
/// assert_eq!(error.to_rejection().status(), 400);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Endpoints are configured, but the model is missing from all of them.
    #[error(
        "Model '{}'{} not found",
        Cut(model),
        alias_of.as_ref().map_or_else(String::new, |target| format!(" (an alias of '{target}')"))
    )]
    ModelNotFound {
        /// The name that the request asked for.
        model: Arc<str>,
        /// The model that the name is an alias of, if it is an alias.
        alias_of: Option<Arc<str>>,
    },
    /// Endpoints serve the model, but each of them lacks something that the request needs.
    #[error(
        "No backend supports required capabilities for model '{}': {}",
        Cut(model),
        missing.join(", ")
    )]
    CapabilityMismatch {
        /// The first model with endpoints that the request could go to.
        model: Arc<str>,
        /// The capabilities that are missing, out of `vision`, `tools`, `json_mode` and `context_length`.
        missing: Vec<&'static str>,
    },
    /// The prompt is too long for the context of each endpoint that could serve the request otherwise. The message is
    /// OpenAI's, by which coding agents know that they have to shorten the conversation.
    #[error(
        "This model's maximum context length is {maximum} tokens. However, your messages resulted in {tokens} tokens. Please \
         reduce the length of the messages."
    )]
    ContextLengthExceeded {
        /// The first model with endpoints that the request could go to.
        model: Arc<str>,
        /// The estimated number of tokens that share one context.
        tokens: u32,
        /// The number of tokens in the longest context.
        maximum: u32,
    },
    /// All endpoints that could serve the request are unhealthy, or there are none.
    #[error("No healthy backend available for {}", model_or_none(model))]
    NoHealthyBackend {
        /// The model that was asked for, or the model that its name is an alias of.
        model: Arc<str>,
    },
    /// All models of the fallback chain were tried, and each lacks a healthy endpoint that can serve the request.
    #[error("All backends in fallback chain unavailable: {}", tried.join(", "))]
    FallbackChainExhausted {
        /// The models that were tried, in order.
        tried: Vec<Arc<str>>,
    },
    /// The model is started on demand, and its start has failed.
    #[error("Model '{}' could not be started", Cut(model))]
    ModelStartFailed {
        /// The model that could not be started.
        model: Arc<str>,
        /// The time until the start is tried again at the earliest.
        retry_after: Duration,
    },
    /// The model was unloaded while the request waited for it.
    #[error("Model '{}' was unloaded", Cut(model))]
    ModelUnloaded {
        /// The model that was unloaded.
        model: Arc<str>,
    },
    /// The body has a `Content-Encoding`, so that the router cannot read it.
    #[error(
        "The request body is encoded as '{}': only unencoded bodies can be routed",
        Cut(encoding)
    )]
    EncodedBody {
        /// The `Content-Encoding` of the request.
        encoding: String,
    },
    /// Servers may read a body of this content type in another way than the router does.
    #[error(
        "The content type '{}' cannot be routed: send JSON or a form in UTF-8, as `application/json` or as \
         `multipart/form-data; boundary=...` with no other parameter",
        Cut(content_type)
    )]
    UnsupportedContentType {
        /// The `Content-Type` of the request.
        content_type: String,
    },
    /// The body is not the JSON object that the router expects.
    #[error("The request body cannot be read: {reason}")]
    MalformedBody {
        /// A description of the syntax error, with its position.
        reason: String,
    },
    /// The request does not name the model that it wants.
    #[error("The request must name a model: {place}")]
    ModelMissing {
        /// The place where the name is missing.
        place: String,
    },
    /// The body is larger than the service accepts.
    #[error("The request body is larger than the {limit} bytes allowed")]
    BodyTooLarge {
        /// The number of bytes that a body may have.
        limit: usize,
    },
    /// A layer in front of the router allows no body of this length.
    #[error("{}", BodyFault::TooLarge.message())]
    BodyRefused,
    /// The body did not arrive in the time that a layer in front of the router allows.
    #[error("{}", BodyFault::TimedOut.message())]
    BodyTimedOut,
    /// The bodies of all requests together leave too little memory for this one.
    #[error("The request bodies being read need all of the {limit} bytes allowed for them")]
    BodyMemoryFull {
        /// The number of bytes that all bodies may have together.
        limit: usize,
    },
}

impl RouteError {
    /// Returns the stable name of the reason, as in the `code` of an OpenAI error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::ModelNotFound { .. } => (S::NOT_FOUND, "model_not_found"),
            Self::CapabilityMismatch { .. } => (S::BAD_REQUEST, "capability_mismatch"),
            Self::ContextLengthExceeded { .. } => (S::BAD_REQUEST, "context_length_exceeded"),
            Self::NoHealthyBackend { .. } => (S::SERVICE_UNAVAILABLE, "no_healthy_backend"),
            Self::FallbackChainExhausted { .. } => {
                (S::SERVICE_UNAVAILABLE, "fallback_chain_exhausted")
            }
            Self::ModelStartFailed { .. } => (S::SERVICE_UNAVAILABLE, "model_start_failed"),
            Self::ModelUnloaded { .. } => (S::SERVICE_UNAVAILABLE, "model_unloaded"),
            Self::EncodedBody { .. } => (S::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding"),
            Self::UnsupportedContentType { .. } => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type")
            }
            Self::MalformedBody { .. } => (S::BAD_REQUEST, "malformed_body"),
            Self::ModelMissing { .. } => (S::BAD_REQUEST, "model_missing"),
            Self::BodyTooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BodyRefused => BodyFault::TooLarge.status_and_code(),
            Self::BodyTimedOut => BodyFault::TimedOut.status_and_code(),
            Self::BodyMemoryFull { .. } => (S::SERVICE_UNAVAILABLE, "body_memory_full"),
        }
    }

    /// Returns the error of a body that does not name a model.
    pub(crate) fn model_missing() -> Self {
        Self::ModelMissing {
            place: "`model` in its body".to_owned(),
        }
    }

    /// Returns the error of a body that breaks off with this error.
    pub(crate) fn broken_off(error: &(dyn Error + Send + Sync + 'static)) -> Self {
        match BodyFault::of(error) {
            Some(BodyFault::TooLarge) => Self::BodyRefused,
            Some(BodyFault::TimedOut) => Self::BodyTimedOut,
            None => Self::malformed(error),
        }
    }

    /// Returns the error of a body that cannot be read. The message cuts a long `reason`, because it may quote the body.
    pub(crate) fn malformed(reason: impl fmt::Display) -> Self {
        Self::MalformedBody {
            reason: Cut(&reason.to_string()).to_string(),
        }
    }
}

impl ToRejection for RouteError {
    fn to_rejection(&self) -> Rejection {
        let (status, code) = self.status_and_code();
        let rejection = Rejection::new(status, code, self.to_string());
        match self {
            Self::ModelNotFound { .. }
            | Self::CapabilityMismatch { .. }
            | Self::ModelMissing { .. } => rejection.with_param("model"), // the field that is at fault
            Self::ContextLengthExceeded { .. } => rejection.with_param("messages"),
            Self::ModelStartFailed { retry_after, .. } => rejection.with_retry_after(*retry_after),
            _ => rejection,
        }
    }
}

/// Returns the words for a model in a message. A request that names no model has an empty one.
fn model_or_none(model: &str) -> String {
    match model {
        "" => "requests without a model".to_owned(),
        model => format!("model '{}'", Cut(model)),
    }
}

/// The number of bytes that a message quotes at most from a request.
const QUOTED_BYTES: usize = 200;

/// Shows at most [`QUOTED_BYTES`] of a text that a client wrote, and cuts it between two characters. Control characters are
/// escaped, so that the text begins no line of its own in a log.
struct Cut<'a>(&'a str);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= QUOTED_BYTES {
            return write_escaped(f, self.0);
        }
        // A character has at most 4 bytes, so the search ends after 3 steps.
        let mut ends = (0..=QUOTED_BYTES).rev();
        let end = ends.find(|&end| self.0.is_char_boundary(end)).unwrap_or(0);
        write_escaped(f, &self.0[..end])?;
        f.write_str("…")
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    // The last two begin a line for readers that know more than ASCII.
    let is_escaped = |char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}');
    for part in text.split_inclusive(is_escaped) {
        match part.chars().next_back().filter(|&last| is_escaped(last)) {
            None => f.write_str(part)?,
            Some(last) => {
                f.write_str(&part[..part.len() - last.len_utf8()])?;
                write!(f, "{}", last.escape_default())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_found(model: &str, alias_of: Option<&str>) -> RouteError {
        RouteError::ModelNotFound {
            model: model.into(),
            alias_of: alias_of.map(Into::into),
        }
    }

    #[test]
    fn every_reason_has_its_code_statuses_and_param() {
        let model: Arc<str> = "m".into();
        let missing = vec!["vision"];
        for (error, code, status, grpc, param) in [
            (
                RouteError::ModelNotFound {
                    model: model.clone(),
                    alias_of: None,
                },
                "model_not_found",
                404,
                5,
                Some("model"),
            ),
            (
                RouteError::CapabilityMismatch {
                    model: model.clone(),
                    missing,
                },
                "capability_mismatch",
                400,
                3,
                Some("model"),
            ),
            (
                RouteError::ContextLengthExceeded {
                    model: model.clone(),
                    tokens: 9_000,
                    maximum: 4_096,
                },
                "context_length_exceeded",
                400,
                3,
                Some("messages"),
            ),
            (
                RouteError::NoHealthyBackend { model },
                "no_healthy_backend",
                503,
                14,
                None,
            ),
            (
                RouteError::FallbackChainExhausted { tried: vec![] },
                "fallback_chain_exhausted",
                503,
                14,
                None,
            ),
            (
                RouteError::EncodedBody {
                    encoding: "gzip".to_owned(),
                },
                "unsupported_encoding",
                415,
                12,
                None,
            ),
            (
                RouteError::UnsupportedContentType {
                    content_type: "text/plain; charset=utf-7".to_owned(),
                },
                "unsupported_content_type",
                415,
                12,
                None,
            ),
            (RouteError::malformed("x"), "malformed_body", 400, 3, None),
            (
                RouteError::model_missing(),
                "model_missing",
                400,
                3,
                Some("model"),
            ),
            (
                RouteError::BodyTooLarge { limit: 1 },
                "body_too_large",
                413,
                8,
                None,
            ),
            (RouteError::BodyRefused, "body_too_large", 413, 8, None),
            (
                RouteError::BodyTimedOut,
                "request_body_timeout",
                408,
                4,
                None,
            ),
            (
                RouteError::BodyMemoryFull { limit: 1 },
                "body_memory_full",
                503,
                14,
                None,
            ),
        ] {
            let rejection = error.to_rejection();
            assert_eq!(rejection.code(), code);
            assert_eq!(rejection.status(), status, "{code}");
            assert_eq!(rejection.grpc_status(), grpc, "{code}");
            assert_eq!(rejection.param(), param, "{code}");
        }
    }

    #[test]
    fn a_long_model_name_is_cut_between_characters() {
        for name in [
            "é".repeat(500_000),
            format!("x{}", "é".repeat(500_000)),
            "🦙".repeat(250_000),
        ] {
            let message = not_found(&name, None).to_string();
            assert!(message.len() < 250, "{}", message.len());
            assert!(message.ends_with("…' not found"), "{message}");
        }
    }

    #[test]
    fn a_name_with_line_breaks_stays_on_its_line() {
        let message = not_found("a\nb\r\u{1b}[31m\u{2028}é", None).to_string();
        let expected = r"Model 'a\nb\r\u{1b}[31m\u{2028}é' not found";
        assert_eq!(message, expected);
    }

    #[test]
    fn messages_name_the_model_and_what_is_missing() {
        let model: Arc<str> = "gpt-5".into();
        let message = not_found("gpt-5", None).to_string();
        assert_eq!(message, "Model 'gpt-5' not found");
        let message = not_found("gpt-4", Some("llama3:70b")).to_string();
        assert_eq!(
            message,
            "Model 'gpt-4' (an alias of 'llama3:70b') not found"
        );
        let tried = vec!["a".into(), "b".into()];
        let message = RouteError::FallbackChainExhausted { tried }.to_string();
        assert_eq!(message, "All backends in fallback chain unavailable: a, b");
        let too_long = RouteError::ContextLengthExceeded {
            model: model.clone(),
            tokens: 9_000,
            maximum: 4_096,
        };
        assert_eq!(
            too_long.to_string(),
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens. Please \
             reduce the length of the messages."
        );
        let missing = vec!["vision", "tools"];
        assert_eq!(
            RouteError::CapabilityMismatch { model, missing }.to_string(),
            "No backend supports required capabilities for model 'gpt-5': vision, tools"
        );
    }
}

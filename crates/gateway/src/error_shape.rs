//! Errors in the shape of the API that a client speaks. Each error has OpenAI's shape at first.

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tower_triage::RejectReason;
use tower_triage::endpoints::RouteError;

use crate::paths::Api;
use crate::track::code;

/// The longest body of an error that is read, in bytes. Those of the gateway are much shorter.
const LONGEST_ERROR: usize = 64 << 10;

/// Returns `true` if a response is an error of the gateway, and not one of a backend, and the clients of `api` expect another
/// shape.
pub(crate) fn is_to_reshape<B>(response: &Response<B>, api: Api) -> bool {
    let status = response.status();
    api != Api::OpenAi
        && (status.is_client_error() || status.is_server_error())
        && code(response.extensions()).is_some()
}

/// Returns an error of the gateway with its body in the shape of `api`.
pub(crate) async fn reshaped<B>(response: Response<B>, api: Api) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let (mut head, body) = response.into_parts();
    let text = Limited::new(body, LONGEST_ERROR).collect().await;
    let text = text.map(|text| text.to_bytes()).unwrap_or_default();
    head.headers.remove(CONTENT_LENGTH);
    let too_long = TooLong::of(&head.extensions);
    let reshaped = reshape(api, head.status, &text, too_long);
    let body = reshaped.map_or_else(|| Body::from(text), Body::from);
    Response::from_parts(head, body)
}

/// Returns the body of an error in the shape of `api`. `None` if it stays as it is, or `text` is no error in OpenAI's shape.
pub(crate) fn reshape(
    api: Api,
    status: StatusCode,
    text: &[u8],
    too_long: Option<TooLong>,
) -> Option<String> {
    if api == Api::OpenAi {
        return None;
    }
    let error: Value = serde_json::from_slice(text).ok()?;
    let error = error.get("error")?;
    let message = too_long.map(|it| it.message(api).into());
    let message = message.or_else(|| error.get("message").cloned())?;
    let reshaped = match api {
        // Its clients read a string there.
        Api::Ollama => json!({ "error": message }),
        Api::Anthropic | Api::OpenAi => {
            let error =
                json!({ "type": kind(status), "message": message, "code": error.get("code")? });
            json!({ "type": "error", "error": error })
        }
    };
    Some(reshaped.to_string())
}

/// A prompt that is too long for its model. Coding agents shorten the conversation at an error that says so in the words of
/// the API that they speak, and send it again as it is at any other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooLong {
    tokens: u32,
    maximum: u32,
}

impl TooLong {
    fn of(extensions: &Extensions) -> Option<Self> {
        match extensions.get()? {
            RejectReason::Unservable(RouteError::ContextLengthExceeded {
                tokens, maximum, ..
            }) => Some(Self {
                tokens: *tokens,
                maximum: *maximum,
            }),
            _ => None,
        }
    }

    fn message(self, api: Api) -> String {
        let Self { tokens, maximum } = self;
        match api {
            Api::Ollama => format!(
                "the input length exceeds the context length: {tokens} tokens > {maximum} maximum"
            ),
            Api::Anthropic | Api::OpenAi => {
                format!("prompt is too long: {tokens} tokens > {maximum} maximum")
            }
        }
    }
}

/// Returns Anthropic's type of an error.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &[u8] = br#"{"error":{"message":"why","type":"x","param":null,"code":"c"}}"#;

    fn reshaped(api: Api, status: u16, too_long: Option<TooLong>) -> Value {
        let status = StatusCode::from_u16(status).unwrap();
        serde_json::from_str(&reshape(api, status, ERROR, too_long).unwrap()).unwrap()
    }

    #[test]
    fn each_status_has_its_kind() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (413, "request_too_large"),
            (415, "invalid_request_error"),
            (429, "rate_limit_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
            (504, "api_error"),
        ] {
            let expected = json!({ "type": kind, "message": "why", "code": "c" });
            assert_eq!(
                reshaped(Api::Anthropic, status, None),
                json!({ "type": "error", "error": expected })
            );
        }
    }

    #[test]
    fn ollamas_clients_read_a_string() {
        assert_eq!(reshaped(Api::Ollama, 404, None), json!({ "error": "why" }));
    }

    #[test]
    fn a_prompt_that_is_too_long_is_told_in_the_words_of_its_api() {
        let too_long = || {
            Some(TooLong {
                tokens: 9_000,
                maximum: 4_096,
            })
        };
        assert_eq!(
            reshaped(Api::Anthropic, 400, too_long())["error"]["message"],
            "prompt is too long: 9000 tokens > 4096 maximum"
        );
        assert_eq!(
            reshaped(Api::Ollama, 400, too_long())["error"],
            "the input length exceeds the context length: 9000 tokens > 4096 maximum"
        );
    }

    #[test]
    fn other_texts_and_openais_errors_stay_as_they_are() {
        let status = StatusCode::NOT_FOUND;
        for text in [&b"not found"[..], b"{}"] {
            assert_eq!(reshape(Api::Anthropic, status, text, None), None);
            assert_eq!(reshape(Api::Ollama, status, text, None), None);
        }
        assert_eq!(reshape(Api::OpenAi, status, ERROR, None), None);
    }
}

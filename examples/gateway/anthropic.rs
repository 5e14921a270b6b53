//! Errors in the shape of Anthropic's API.

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use crate::track::code;

/// The longest body of an error that is read, in bytes. Those of the gateway are much shorter.
const LONGEST_ERROR: usize = 64 << 10;

/// Returns `true` if a response is an error of the gateway, and not one of a backend.
pub(crate) fn is_own_error<B>(response: &Response<B>) -> bool {
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && code(response.extensions()).is_some()
}

/// Returns an error with its body in Anthropic's shape. It has OpenAI's before.
pub(crate) async fn reshaped<B>(response: Response<B>) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let (mut head, body) = response.into_parts();
    let text = Limited::new(body, LONGEST_ERROR).collect().await;
    let text = text.map(|text| text.to_bytes()).unwrap_or_default();
    head.headers.remove(CONTENT_LENGTH);
    let reshaped = reshape(head.status, &text);
    let body = reshaped.map_or_else(|| Body::from(text), Body::from);
    Response::from_parts(head, body)
}

/// Returns the body of an error in Anthropic's shape. `None` if `text` is no error in OpenAI's shape.
pub(crate) fn reshape(status: StatusCode, text: &[u8]) -> Option<String> {
    let error: Value = serde_json::from_slice(text).ok()?;
    let error = error.get("error")?;
    let error = json!({ "type": kind(status), "message": error.get("message")?, "code": error.get("code")? });
    Some(json!({ "type": "error", "error": error }).to_string())
}

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

    #[test]
    fn each_status_has_its_kind() {
        let error = br#"{"error":{"message":"why","type":"x","param":null,"code":"c"}}"#;
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
            let status = StatusCode::from_u16(status).unwrap();
            let reshaped: Value = serde_json::from_str(&reshape(status, error).unwrap()).unwrap();
            let expected = json!({ "type": kind, "message": "why", "code": "c" });
            assert_eq!(reshaped, json!({ "type": "error", "error": expected }));
        }
        assert_eq!(reshape(StatusCode::NOT_FOUND, b"not found"), None);
        assert_eq!(reshape(StatusCode::NOT_FOUND, b"{}"), None);
    }
}

//! Requests of Ollama's clients about models of `[swap]` that start none: `/api/show`, which clients send for each model of a
//! list, and the unload, which is a request to generate nothing with `keep_alive: 0`.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_triage::swap::Unload;

use crate::pages::{OLLAMA_DATE, json as page, ollama_show};
use crate::service::Handle;
use crate::tenants::Tenant;

/// The longest body of such a request. All others go to the model.
const LONGEST_BODY: usize = 4 << 10;

/// The longest time that such a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The fields of such a request.
#[derive(Deserialize)]
struct Asked {
    #[serde(alias = "name")]
    model: String,
    keep_alive: Option<Value>,
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
}

/// Returns `true` if a request may be one of these, by its path and by the length of its body.
pub(crate) fn may_be<B: HttpBody>(request: &Request<B>) -> bool {
    let is_short = |length: u64| (1..=LONGEST_BODY as u64).contains(&length);
    *request.method() == Method::POST
        && matches!(
            request.uri().path(),
            "/api/show" | "/api/generate" | "/api/chat"
        )
        && request.body().size_hint().exact().is_some_and(is_short)
}

/// Returns the answer to a request of `tenant`, or `None` if it goes to the model.
pub(crate) fn answer(
    handle: &Handle,
    path: &str,
    body: &[u8],
    tenant: Option<&Tenant>,
) -> Option<Response<Body>> {
    let asked: Asked = serde_json::from_slice(body).ok()?;
    if path != "/api/show" && !asked.is_unload(path) {
        return None;
    }
    let model = handle.on_demand(&asked.model, tenant)?;
    if path == "/api/show" {
        return Some(page(&ollama_show(&model)));
    }
    let may_drain =
        handle.clients_may_unload() && tenant.is_none_or(|tenant| tenant.may_use_all_models());
    let how = match may_drain {
        true => Unload::Drain,
        false => Unload::IfIdle, // so that no client takes a model away from another one
    };
    handle.unload(&asked.model, how).ok()?;
    let mut unloaded = json!({
        "model": asked.model, "created_at": OLLAMA_DATE, "done": true, "done_reason": "unload",
    });
    match path {
        "/api/chat" => unloaded["message"] = json!({ "role": "assistant", "content": "" }),
        _ => unloaded["response"] = "".into(),
    }
    Some(page(&unloaded))
}

impl Asked {
    /// Returns `true` if the request asks for no text, and for the model to be unloaded at once.
    fn is_unload(&self, path: &str) -> bool {
        let asks_for_text = match path {
            "/api/chat" => self.messages.as_ref().is_some_and(|it| !it.is_empty()),
            _ => self.prompt.as_ref().is_some_and(|it| !it.is_empty()),
        };
        !asks_for_text && self.keep_alive.as_ref().is_some_and(is_zero)
    }
}

/// Returns `true` for 0 and for durations of that length, such as `0s`.
fn is_zero(duration: &Value) -> bool {
    match duration {
        Value::Number(seconds) => seconds.as_f64() == Some(0.0),
        Value::String(text) => {
            let number = text.trim_end_matches(char::is_alphabetic);
            number.parse() == Ok(0.0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unload_asks_for_no_text_and_no_time() {
        for (path, body, expected) in [
            ("/api/generate", r#"{"model":"a","keep_alive":0}"#, true),
            (
                "/api/generate",
                r#"{"model":"a","keep_alive":"0s","prompt":""}"#,
                true,
            ),
            (
                "/api/generate",
                r#"{"model":"a","keep_alive":0,"prompt":"x"}"#,
                false,
            ),
            ("/api/generate", r#"{"model":"a","keep_alive":"5m"}"#, false),
            ("/api/generate", r#"{"model":"a"}"#, false),
            (
                "/api/chat",
                r#"{"model":"a","keep_alive":0,"messages":[]}"#,
                true,
            ),
            (
                "/api/chat",
                r#"{"model":"a","keep_alive":0,"messages":[{}]}"#,
                false,
            ),
        ] {
            let asked: Asked = serde_json::from_str(body).unwrap();
            assert_eq!(asked.is_unload(path), expected, "{path} {body}");
        }
    }
}

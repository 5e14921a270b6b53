//! Actions of operators, and of clients that may, on models: load and unload them. The paths are the gateway's own, llama.cpp's
//! and llama-swap's, and the answers those of the program whose path it is.

use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tower_triage::swap::Unload;

use crate::by_head::decoded;
use crate::pages::{error, json, page};
use crate::service::Handle;

#[derive(Debug, PartialEq)]
enum Action {
    Load(String),
    Unload(String),
    UnloadAll,
}

/// A longer body names no model.
const LONGEST_BODY: usize = 64 << 10;

/// The longest time that a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The program that a path, and so its answer, is of.
enum Api {
    Own,
    LlamaCpp,
    LlamaSwap,
}

impl Api {
    fn of(path: &str) -> Self {
        match path {
            "/models/load" | "/models/unload" => Self::LlamaCpp,
            UNLOAD => Self::LlamaSwap,
            _ if path.starts_with("/api/models/unload") => Self::LlamaSwap,
            _ => Self::Own,
        }
    }

    /// Returns the answer that an action has begun.
    fn begun(&self, action: &Action) -> Response<Body> {
        match (self, action) {
            (Self::LlamaCpp, _) => json(&json!({ "success": true })),
            (Self::LlamaSwap, Action::UnloadAll) => json(&json!({ "msg": "ok" })),
            (Self::LlamaSwap, _) => ok(),
            (Self::Own, _) => {
                let (name, model) = match action {
                    Action::Load(model) => ("load", Some(model)),
                    Action::Unload(model) => ("unload", Some(model)),
                    Action::UnloadAll => ("unload", None),
                };
                let mut accepted = json(&json!({ "action": name, "model": model }));
                *accepted.status_mut() = StatusCode::ACCEPTED;
                accepted
            }
        }
    }
}

/// llama-swap's first path to unload all models, which is a GET.
const UNLOAD: &str = "/unload";

/// Returns `true` if a request asks for more than a page.
pub(crate) fn is_action(method: &Method, path: &str) -> bool {
    *method == Method::POST || *method == Method::GET && path == UNLOAD
}

/// Returns `true` if `path` is an action of llama.cpp or llama-swap, which clients may do where the configuration says so.
pub(crate) fn is_of_peers(path: &str) -> bool {
    !matches!(Api::of(path), Api::Own)
}

/// Begins the action that a request asks for. `None` if there is none.
pub(crate) async fn begin<B>(handle: &Handle, head: &Parts, body: B) -> Option<Response<Body>>
where
    B: HttpBody<Error: Into<BoxError>>,
{
    let path = head.uri.path();
    let action = match path {
        UNLOAD if head.method != Method::GET => return None,
        UNLOAD => Action::UnloadAll,
        "/models/load" | "/models/unload" => match named(body).await {
            Some(model) if path == "/models/load" => Action::Load(model),
            Some(model) => Action::Unload(model),
            None => {
                let message = r#"the body must be JSON that names a model: {"model": "…"}"#;
                let status = StatusCode::BAD_REQUEST;
                return Some(error(status, "model_missing", message.to_owned()));
            }
        },
        path => action(path)?,
    };
    let how = match how(head.uri.query()) {
        Ok(how) => how,
        Err(message) => {
            let status = StatusCode::BAD_REQUEST;
            return Some(error(status, "invalid_parameter", message));
        }
    };
    let begun = match &action {
        Action::Load(model) => handle.load(model),
        Action::Unload(model) => handle.unload(model, how),
        Action::UnloadAll => {
            handle.unload_all(how);
            Ok(())
        }
    };
    if let Err(unknown) = begun {
        let message = format!("[swap] has no model {:?}", unknown.0);
        return Some(error(StatusCode::NOT_FOUND, "model_not_found", message));
    }
    Some(match path {
        UNLOAD => ok(),
        _ => Api::of(path).begun(&action),
    })
}

/// llama-swap's answer where it has nothing to say.
fn ok() -> Response<Body> {
    page("text/plain; charset=utf-8", "OK")
}

/// The model that a body names, as llama.cpp's router wants it.
async fn named<B>(body: B) -> Option<String>
where
    B: HttpBody<Error: Into<BoxError>>,
{
    #[derive(Deserialize)]
    struct Named {
        model: String,
    }
    let body = Limited::new(body, LONGEST_BODY).collect();
    let body = timeout(BODY_TIMEOUT, body).await.ok()?.ok()?;
    let named: Named = serde_json::from_slice(&body.to_bytes()).ok()?;
    Some(named.model)
}

/// The names of models may have slashes. The second two paths are llama-swap's.
fn action(path: &str) -> Option<Action> {
    if let Some(rest) = path.strip_prefix("/admin/models/") {
        return match rest.rsplit_once('/')? {
            (model, "load") => Some(Action::Load(decoded(model)?)),
            (model, "unload") => Some(Action::Unload(decoded(model)?)),
            _ => None,
        };
    }
    match path {
        "/admin/unload" | "/api/models/unload" => Some(Action::UnloadAll),
        _ => {
            let model = path.strip_prefix("/api/models/unload/")?;
            Some(Action::Unload(decoded(model)?))
        }
    }
}

fn how(query: Option<&str>) -> Result<Unload, String> {
    match query {
        None | Some("" | "kill=false") => Ok(Unload::Drain),
        Some("kill=true") => Ok(Unload::Kill),
        Some(other) => Err(format!(
            "the query is {other:?}: it must be kill=true or kill=false"
        )),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    #[test]
    fn paths_name_actions_and_models() {
        let load = |model: &str| Some(Action::Load(model.to_owned()));
        let unload = |model: &str| Some(Action::Unload(model.to_owned()));
        for (path, expected) in [
            ("/admin/models/qwen:7b/load", load("qwen:7b")),
            ("/admin/models/org/qwen:7b/unload", unload("org/qwen:7b")),
            ("/admin/models/org%2Fqwen%3a7b/load", load("org/qwen:7b")),
            ("/admin/models/load/load", load("load")),
            ("/admin/models/50%/load", load("50%")),
            ("/admin/models/50%zz%4/load", load("50%zz%4")),
            ("/admin/models/50%+f%f/load", load("50%+f%f")),
            ("/admin/models/%C3%A9/load", load("é")),
            ("/admin/models/%ff/load", None),
            ("/admin/models/a/start", None),
            ("/admin/models/load", None),
            ("/admin/models", None),
            ("/admin/unload", Some(Action::UnloadAll)),
            ("/api/models/unload", Some(Action::UnloadAll)),
            ("/api/models/unload/org/a", unload("org/a")),
            ("/api/models/load/a", None),
        ] {
            assert_eq!(action(path), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_names_no_model() {
        let never = futures_util::stream::pending::<Result<_, std::convert::Infallible>>();
        let body =
            http_body_util::StreamBody::new(never.map_ok(http_body::Frame::<bytes::Bytes>::data));
        assert_eq!(named(body).await, None);
    }

    #[test]
    fn query_says_how_to_unload() {
        assert_eq!(how(None), Ok(Unload::Drain));
        assert_eq!(how(Some("kill=false")), Ok(Unload::Drain));
        assert_eq!(how(Some("kill=true")), Ok(Unload::Kill));
        for other in ["kill", "kil=true", "kill=true&x=1"] {
            assert!(how(Some(other)).unwrap_err().contains(other));
        }
    }
}

//! Actions of operators on endpoints, on the configuration, and on requests that are being served.

use axum::body::Body;
use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::pages::{Pages, error, json as json_page};
use crate::reload::ReloadError;

/// An action, as the path names it.
#[derive(Debug, PartialEq)]
enum Operation {
    Drain(String),
    Undrain(String),
    Eject(String),
    Reload,
}

/// Does what `path` asks for. `None` if that is not an operation.
pub(super) async fn operate(pages: &Pages, path: &str) -> Option<Response<Body>> {
    Some(match operation(path)? {
        Operation::Drain(name) => drain(pages, &name, true),
        Operation::Undrain(name) => drain(pages, &name, false),
        Operation::Eject(name) => eject(pages, &name),
        Operation::Reload => reload(pages).await,
    })
}

fn operation(path: &str) -> Option<Operation> {
    let rest = path.strip_prefix("/admin/")?;
    if rest == "reload" {
        return Some(Operation::Reload);
    }
    let decoded = |name| Some(percent_decode_str(name).decode_utf8().ok()?.into_owned());
    if let Some(rest) = rest.strip_prefix("endpoints/") {
        // The names of endpoints may have slashes.
        return match rest.rsplit_once('/')? {
            (name, "drain") => Some(Operation::Drain(decoded(name)?)),
            (name, "undrain") => Some(Operation::Undrain(decoded(name)?)),
            (name, "eject") => Some(Operation::Eject(decoded(name)?)),
            _ => None,
        };
    }
    None
}

fn drain(pages: &Pages, name: &str, is_drained: bool) -> Response<Body> {
    let router = pages.handle.router();
    let endpoints = router.endpoints();
    let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.name() == name) else {
        return unknown(name);
    };
    let action = if is_drained { "drain" } else { "undrain" };
    tracing::info!(
        endpoint = name,
        action,
        "an operator drains an endpoint or ends that"
    );
    router.set_draining(endpoint, is_drained);
    json_page(&json!({ "action": action, "endpoint": name }))
}

fn eject(pages: &Pages, name: &str) -> Response<Body> {
    let router = pages.handle.router();
    let endpoints = router.endpoints();
    let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.name() == name) else {
        return unknown(name);
    };
    match router.eject(endpoint) {
        true => json_page(&json!({ "action": "eject", "endpoint": name })),
        false => {
            let message = format!(
                "endpoint {name:?} has to stay in service: it is the last one of a model, or as many are ejected as \
                 `max_ejected_percent` of [routing] allows; drain it instead"
            );
            error(StatusCode::CONFLICT, "endpoint_is_needed", message)
        }
    }
}

async fn reload(pages: &Pages) -> Response<Body> {
    match pages.reloads.reload().await {
        Ok(done) => json_page(&json!({
            "action": "reload",
            "changes": done.changes,
            "warnings": done.warnings,
        })),
        Err(ReloadError::Invalid(message)) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            error(status, "invalid_configuration", message)
        }
        Err(ReloadError::NoFile) => {
            let message = "the gateway was started without --config, so there is no file to read";
            let status = StatusCode::CONFLICT;
            error(status, "no_configuration_file", message.to_owned())
        }
        Err(ReloadError::ShuttingDown) => {
            let message = "the gateway is shutting down";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            error(status, "shutting_down", message.to_owned())
        }
    }
}

fn unknown(name: &str) -> Response<Body> {
    let message = format!("there is no endpoint {name:?}: /admin/state lists them");
    error(StatusCode::NOT_FOUND, "endpoint_not_found", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_operations() {
        let name = |name: &str| name.to_owned();
        for (path, expected) in [
            ("/admin/reload", Some(Operation::Reload)),
            (
                "/admin/endpoints/gpu-1/drain",
                Some(Operation::Drain(name("gpu-1"))),
            ),
            (
                "/admin/endpoints/a%2Fb/undrain",
                Some(Operation::Undrain(name("a/b"))),
            ),
            (
                "/admin/endpoints/a/b/eject",
                Some(Operation::Eject(name("a/b"))),
            ),
            ("/admin/endpoints/a/stop", None),
            ("/admin/endpoints/%ff/drain", None),
            ("/admin/endpoints/drain", None),
            ("/admin/requests/r-1/cancel", None),
            ("/reload", None),
        ] {
            assert_eq!(operation(path), expected, "{path}");
        }
    }
}

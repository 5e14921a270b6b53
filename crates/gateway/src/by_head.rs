//! Requests whose model is named by their path or query, or by nothing at all. Their bodies are not read.

use std::borrow::Cow;

use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION, UPGRADE};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use percent_encoding::percent_decode_str;
use tower_triage::endpoints::Requirements;
use tower_triage::swap::ModelState;
use tower_triage::upstream::PathPrefix;

use crate::pages;
use crate::paths::UPSTREAM;
use crate::service::Handle;
use crate::tenants::Tenant;

/// The place that such a request goes to.
pub(crate) enum Target {
    /// A backend, by the demand that is now among the extensions of the request.
    Backend,
    /// None: the client gets this answer.
    Answer(Response<Body>),
}

/// Finds where a request goes, and notes its demand. `None` if neither its path nor its query names a model, and there is no
/// default backend for it.
pub(crate) fn aim<B: HttpBody>(
    request: &mut Request<B>,
    handle: &Handle,
    tenant: Option<&Tenant>,
) -> Option<Target> {
    let uri = request.uri();
    // A query that names a model is how the model was found, unless the path names it.
    let expected = usize::from(!uri.path().starts_with(UPSTREAM));
    let asked = match uri.path().strip_prefix(UPSTREAM) {
        Some(_) => match to_own_page(request, handle, tenant) {
            Ok(asked) => asked,
            Err(answer) => return Some(Target::Answer(*answer)),
        },
        None => match model_in_query(uri) {
            Some(model) => Requirements::new(model),
            None if may_use_default(handle, tenant) => Requirements::without_model(),
            None => return None,
        },
    };
    let is_restricted = tenant.is_some_and(|tenant| !tenant.may_use_all_models());
    if is_restricted && (may_name_a_model(request) || models_in_query(request.uri()) > expected) {
        let message = "this API key is for some models only, and here neither a body nor a second `model` in the query is \
                       looked at";
        let refused = pages::error_at(
            request.uri().path(),
            StatusCode::FORBIDDEN,
            "path_not_allowed",
            message.to_owned(),
        );
        return Some(Target::Answer(refused));
    }
    request.extensions_mut().insert(asked);
    Some(Target::Backend)
}

/// Returns `true` if the body of a request, or what follows it on an upgraded connection, may name another model than its head.
fn may_name_a_model<B: HttpBody>(request: &Request<B>) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD)
        || !request.body().is_end_stream()
        || request.headers().contains_key(UPGRADE)
}

/// Returns the number of times that a query names a model, however the field's name is written.
fn models_in_query(uri: &Uri) -> usize {
    let pairs = uri
        .query()
        .into_iter()
        .flat_map(|query| query.split(['&', ';']));
    let names = pairs.map(|pair| pair.split('=').next().unwrap_or_default());
    let is_model =
        |name: &&str| decoded(name).is_some_and(|name| name.eq_ignore_ascii_case("model"));
    names.filter(is_model).count()
}

/// Returns the value of `model` in the query of a request, if it has one.
pub(crate) fn model_in_query(uri: &Uri) -> Option<String> {
    let mut pairs = uri.query()?.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("model="))?;
    let value = value.replace('+', " ");
    decoded(&value).filter(|name| !name.is_empty())
}

/// Returns `true` if there is a default backend that `tenant` may use. It serves any model that it has, so it is not for
/// tenants that may not use all of them.
pub(crate) fn may_use_default(handle: &Handle, tenant: Option<&Tenant>) -> bool {
    let routing = handle.router().routing();
    routing.default_endpoint.is_some() && tenant.is_none_or(Tenant::may_use_all_models)
}

/// Returns `true` if a request has a body that is JSON by its content type, or has no content type.
pub(crate) fn may_have_json<B: HttpBody>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    let is_json = content_type.is_none_or(|it| is_json(it.as_bytes()));
    is_json && !request.body().is_end_stream()
}

/// Returns `true` if a content type is `application/json`, ends with `+json`, or is the one that curl gives to any text.
fn is_json(content_type: &[u8]) -> bool {
    let kind = content_type.split(|&byte| byte == b';').next();
    let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json"
        || kind.ends_with(b"+json")
        || kind == b"application/x-www-form-urlencoded"
}

/// Takes the name of the model out of the path of a request for the own pages of a model, as llama-swap has them.
fn to_own_page<B>(
    request: &mut Request<B>,
    handle: &Handle,
    tenant: Option<&Tenant>,
) -> Result<Requirements<'static>, Box<Response<Body>>> {
    let path = request.uri().path();
    let names = path.strip_prefix(UPSTREAM).unwrap_or_default();
    let found = split_model(names, |name| handle.has_name(name, tenant));
    let Some((model, rest)) = found else {
        let message = format!("no model at {path}: the path must begin with {UPSTREAM}MODEL/");
        return Err(Box::new(pages::model_not_found(path, message)));
    };
    let rest_length = rest.len();
    let is_page = matches!(*request.method(), Method::GET | Method::HEAD);
    if rest.is_empty() && is_page {
        return Err(Box::new(with_slash(request.uri())));
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    if let Some(answer) = ignored(handle, &model, rest) {
        return Err(Box::new(answer));
    }
    let target = match request.uri().query() {
        Some(query) => PathAndQuery::try_from(format!("{rest}?{query}")),
        None => PathAndQuery::try_from(rest),
    };
    let Ok(target) = target else {
        let answer = pages::not_found(request.method(), path, "its rest is no path");
        return Err(Box::new(answer));
    };
    // What a client sees below this prefix, the model's own server has at its root.
    let prefix = PathPrefix(path[..path.len() - rest_length].to_owned());
    request.extensions_mut().insert(prefix);
    *request.uri_mut() = Uri::from(target);
    // The page of another model would be the wrong one, and perhaps not the tenant's.
    let mut asked = Requirements::new(model);
    asked.without_fallbacks = true;
    Ok(asked)
}

/// Returns the answer to a request for a page that does not start its model, unless the model is loaded.
fn ignored(handle: &Handle, name: &str, rest: &str) -> Option<Response<Body>> {
    let model = handle.swap_model(name)?;
    if !model.ignore_paths.iter().any(|path| path == rest) {
        return None;
    }
    let models = handle.models();
    let status = models
        .iter()
        .find(|status| status.name == model.model.name)?;
    let message = format!("the model {name:?} is not loaded, and {rest} does not start it");
    let refused = || pages::error(StatusCode::CONFLICT, "model_not_loaded", message);
    (status.state != ModelState::Loaded).then(refused)
}

/// Splits a path into the name of a model, which may have slashes, and the rest. The shortest name is taken.
fn split_model(path: &str, is_model: impl Fn(&str) -> bool) -> Option<(String, &str)> {
    let slashes = path.match_indices('/').map(|(at, _)| at);
    let ends = slashes.chain([path.len()]).take(MOST_SEGMENTS);
    ends.filter_map(|end| Some((decoded(&path[..end])?, &path[end..])))
        .find(|(name, _)| is_model(name))
}

/// The most segments of a path that are looked at for a name.
const MOST_SEGMENTS: usize = 8;

/// Returns the redirect to the same path with a slash at its end, without which a page would not find its parts.
fn with_slash(uri: &Uri) -> Response<Body> {
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let location = HeaderValue::try_from(format!("{}/{query}", uri.path()));
    let mut redirect = Response::new(Body::empty());
    *redirect.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = location {
        redirect.headers_mut().insert(LOCATION, location);
    }
    redirect
}

/// Decodes `%3A` and the like. `None` if the result is not UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_name_at_the_start_of_a_path_is_the_model() {
        let split = |path| split_model(path, |name| ["a", "org/m:7b", "a/b"].contains(&name));
        for (path, expected) in [
            ("a/", Some(("a", "/"))),
            ("a", Some(("a", ""))),
            ("a/b/c", Some(("a", "/b/c"))),
            ("org/m:7b/health", Some(("org/m:7b", "/health"))),
            ("org/m%3a7b/x%20y", Some(("org/m:7b", "/x%20y"))),
            ("org/", None),
            ("b/a", None),
            ("%ff/a", None),
            ("", None),
        ] {
            let expected = expected.map(|(name, rest): (&str, _)| (name.to_owned(), rest));
            assert_eq!(split(path), expected, "{path}");
        }
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        for (content_type, expected) in [
            ("application/json", true),
            ("Application/JSON ; charset=utf-8", true),
            ("application/vnd.api+json", true),
            ("application/x-www-form-urlencoded", true),
            ("application/jsonl", false),
            ("application/sdp", false),
            ("multipart/form-data; boundary=json", false),
            ("", false),
        ] {
            assert_eq!(is_json(content_type.as_bytes()), expected, "{content_type}");
        }
    }

    #[test]
    fn a_query_names_a_model() {
        for (uri, expected) in [
            ("/v1/realtime?model=m", Some("m")),
            (
                "/v1/realtime?x=1&model=org%2Fm%3A7b&model=n",
                Some("org/m:7b"),
            ),
            ("/?model=a+b", Some("a b")),
            ("/?model=", None),
            ("/?model", None),
            ("/?other_model=m", None),
            ("/?model=%ff", None),
            ("/", None),
        ] {
            let uri = Uri::from_static(uri);
            assert_eq!(model_in_query(&uri).as_deref(), expected, "{uri}");
        }
    }
}

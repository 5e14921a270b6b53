//! The target of a request at its endpoint, which is the endpoint's base path followed by the path and query of the
//! request.

use http::header::HOST;
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri};

/// The version of OpenAI's API, with which most base URLs end. A path begins with it, too.
const VERSION: &str = "/v1";

/// Returns the target of a request in the form that a server expects (RFC 9112, 3.2.1). It is the path of `base` with the
/// path and query of `asked`. A `/v1` at the end of the base and at the beginning of the path is the same one: SDKs have it in
/// the base URL, and the clients of a router in the path.
pub(crate) fn origin_form(base: &Uri, asked: Uri) -> Result<Uri, InvalidUri> {
    let prefix = base.path().trim_end_matches('/');
    let is_absolute = asked.scheme().is_some() || asked.authority().is_some();
    match asked.path_and_query() {
        Some(path) if path.as_str().starts_with('/') => match prefix.is_empty() {
            true if !is_absolute => Ok(asked),
            true => Ok(path.clone().into()),
            false => {
                let prefix = without_version(prefix, path.path());
                Ok(PathAndQuery::try_from(format!("{prefix}{path}"))?.into())
            }
        },
        // The request is one such as `http://gateway?q=1`, where a missing path means the root.
        Some(path) if path.as_str().starts_with('?') => {
            Ok(PathAndQuery::try_from(format!("{prefix}/{}", path.as_str()))?.into())
        }
        _ => Ok(Uri::from_static("/")), // such as `OPTIONS *`
    }
}

/// Returns the `prefix` for `path`, without the version that the path has, too.
fn without_version<'a>(prefix: &'a str, path: &str) -> &'a str {
    let rest = path.strip_prefix(VERSION);
    match rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        true => prefix.strip_suffix(VERSION).unwrap_or(prefix),
        false => prefix,
    }
}

/// Turns a request for an origin-form target into one over HTTP/2, where `:scheme` and `:authority` take the place of `Host`
/// (RFC 9113, 8.3.1).
pub(super) fn set_authority<B>(
    request: &mut Request<B>,
    scheme: Option<&Scheme>,
    authority: &Authority,
) {
    request.headers_mut().remove(HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = scheme.cloned();
    parts.authority = Some(authority.clone());
    // A target in origin form has a path, so the three make a URI.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// Returns the `:authority` of a request to `url`, which is the same as its `Host`.
pub(super) fn authority(url: &Uri) -> Authority {
    Authority::try_from(host_and_port(url)).expect("a URL's host is an authority")
}

/// Returns the `Host` of a request to `url`, which is its authority without a default port.
pub(crate) fn host(url: &Uri) -> HeaderValue {
    HeaderValue::try_from(host_and_port(url)).expect("a URL's host has no control characters")
}

/// Returns the authority of `url` without a default port.
pub(super) fn host_and_port(url: &Uri) -> String {
    let name = url.host().unwrap_or_default();
    let usual = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    match url.port_u16() {
        Some(port) if port != usual => format!("{name}:{port}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_path_path_and_query_are_joined() {
        for (base, asked, joined) in [
            ("http://a", "/v1/chat", "/v1/chat"),
            ("http://a/", "/v1/chat?x=1&y", "/v1/chat?x=1&y"),
            ("http://a:81/base", "/v1?q=/", "/base/v1?q=/"),
            ("http://a/base/", "/", "/base/"),
            ("http://a/base", "http://gateway/v1", "/base/v1"),
            ("http://a", "http://gateway?q=1", "/?q=1"),
            ("http://a/base", "http://gateway?q=1", "/base/?q=1"),
            ("http://a/base", "http://gateway", "/base/"),
            ("http://a/base", "*", "/"),
            ("http://[::1]:9", "/%20?%20", "/%20?%20"),
            ("http://a/v1", "/v1/chat?x=1", "/v1/chat?x=1"),
            ("http://a/v1/", "/v1/models", "/v1/models"),
            ("http://a/openai/v1", "/v1/chat", "/openai/v1/chat"),
            ("http://a/v1", "/v1", "/v1"),
            ("http://a/v1", "/v1?x=1", "/v1?x=1"),
            ("http://a/v1", "/v1/v1/x", "/v1/v1/x"),
            ("http://a/v1", "/v10/chat", "/v1/v10/chat"),
            ("http://a/v1", "/v2/chat", "/v1/v2/chat"),
            ("http://a/v1", "/chat/completions", "/v1/chat/completions"),
            ("http://a/v1", "/health", "/v1/health"),
            ("http://a/xv1", "/v1/chat", "/xv1/v1/chat"),
        ] {
            let target = origin_form(&base.parse().unwrap(), asked.parse().unwrap()).unwrap();
            assert_eq!(target.to_string(), joined, "{base} {asked}");
            assert!(target.authority().is_none(), "{target:?}");
        }
    }

    #[test]
    fn the_default_port_is_left_out_of_host() {
        for (url, said) in [
            ("http://a", "a"),
            ("http://a:80/base", "a"),
            ("http://a:443", "a:443"),
            ("https://a:443", "a"),
            ("https://a:80", "a:80"),
            ("http://[::1]:9", "[::1]:9"),
        ] {
            let url = url.parse().unwrap();
            assert_eq!(host(&url), said, "{url}");
            assert_eq!(authority(&url), said, "{url}");
        }
    }
}

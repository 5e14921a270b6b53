//! The URI of a request at its endpoint, which is the endpoint's base path followed by the path and query of the
//! request.

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

/// Joins the scheme, host and path of `base` with the path and query of `asked`.
pub(crate) fn join(base: &Uri, asked: &Uri) -> Result<Uri, http::Error> {
    let prefix = base.path().trim_end_matches('/');
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(match asked.path_and_query() {
        Some(asked) if asked.as_str().starts_with('/') => match prefix.is_empty() {
            true => asked.clone(),
            false => PathAndQuery::try_from(format!("{prefix}{asked}"))?,
        },
        // The request is one such as `http://gateway?q=1`, where a missing path means the root.
        Some(asked) if asked.as_str().starts_with('?') => {
            PathAndQuery::try_from(format!("{prefix}/{}", asked.as_str()))?
        }
        _ => PathAndQuery::from_static("/"), // such as `OPTIONS *`
    });
    Ok(Uri::from_parts(parts)?)
}

/// Returns the `Host` of a request to `url`, which is its authority without a default port.
pub(crate) fn host(url: &Uri) -> HeaderValue {
    let name = url.host().unwrap_or_default();
    let usual = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = match url.port_u16() {
        Some(port) if port != usual => format!("{name}:{port}"),
        _ => name.to_owned(),
    };
    HeaderValue::try_from(host).expect("a URL's host has no control characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_path_path_and_query_are_joined() {
        for (base, asked, joined) in [
            ("http://a", "/v1/chat", "http://a/v1/chat"),
            ("http://a/", "/v1/chat?x=1&y", "http://a/v1/chat?x=1&y"),
            ("http://a:81/base", "/v1?q=/", "http://a:81/base/v1?q=/"),
            ("http://a/base/", "/", "http://a/base/"),
            ("http://a/base", "http://gateway/v1", "http://a/base/v1"),
            ("http://a", "http://gateway?q=1", "http://a/?q=1"),
            ("http://a/base", "http://gateway?q=1", "http://a/base/?q=1"),
            ("http://a/base", "http://gateway", "http://a/base/"),
            ("http://a/base", "*", "http://a/"),
            ("http://[::1]:9", "/%20?%20", "http://[::1]:9/%20?%20"),
        ] {
            let joined_now = join(&base.parse().unwrap(), &asked.parse().unwrap()).unwrap();
            assert_eq!(joined_now, joined, "{base} {asked}");
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
            assert_eq!(host(&url.parse().unwrap()), said, "{url}");
        }
    }
}

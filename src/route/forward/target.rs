//! A base path that is dropped or doubled turns every request into a 404 of the endpoint's.

use http::Uri;
use http::uri::{InvalidUri, InvalidUriParts, PathAndQuery};

/// `base`'s scheme, host and path, then `asked`'s path and query.
pub(in crate::route) fn join(base: &Uri, asked: &Uri) -> Result<Uri, InvalidTarget> {
    let asked = asked
        .path_and_query()
        .filter(|asked| asked.as_str().starts_with('/'));
    let prefix = base.path().trim_end_matches('/');
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(match asked {
        None => PathAndQuery::from_static("/"), // such as `OPTIONS *`
        Some(asked) if prefix.is_empty() => asked.clone(),
        Some(asked) => PathAndQuery::try_from(format!("{prefix}{asked}"))?,
    });
    Ok(Uri::from_parts(parts)?)
}

#[derive(Debug, thiserror::Error)]
pub(in crate::route) enum InvalidTarget {
    #[error(transparent)]
    Path(#[from] InvalidUri),
    #[error(transparent)]
    Whole(#[from] InvalidUriParts),
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
            ("http://a/base", "*", "http://a/"),
            ("http://[::1]:9", "/%20?%20", "http://[::1]:9/%20?%20"),
        ] {
            let joined_now = join(&base.parse().unwrap(), &asked.parse().unwrap()).unwrap();
            assert_eq!(joined_now, joined, "{base} {asked}");
        }
    }
}

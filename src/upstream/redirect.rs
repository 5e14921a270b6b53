//! The headers of an answer that send its client to another address: `Location`, `Content-Location` and `Refresh`.
//!
//! An endpoint builds an address from the host that it was asked for, which is its own. A client cannot reach that one, so it
//! gets the path at the router instead.

use http::header::{CONTENT_LOCATION, Entry, HeaderName, LOCATION, REFRESH};
use http::{HeaderMap, HeaderValue, Uri};

use super::target::host_and_port;

/// The path under which the client sees an endpoint, as a request extension. A layer in front of
/// [`Forward`](super::Forward) that removes a prefix from the paths of requests says so here, and `Forward` puts the prefix
/// into the addresses of redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPrefix(pub String);

/// The client's view of an endpoint whose paths have a prefix.
pub(super) struct Mount {
    pub(super) prefix: String,
    /// The host that the client asked for.
    pub(super) host: Option<HeaderValue>,
}

const ADDRESSES: [HeaderName; 3] = [LOCATION, CONTENT_LOCATION, REFRESH];

/// Rewrites the addresses in the headers of an answer of the endpoint at `url`.
pub(super) fn rewrite(headers: &mut HeaderMap, url: &Uri, mount: Option<&Mount>) {
    for name in ADDRESSES {
        let Entry::Occupied(mut values) = headers.entry(&name) else {
            continue;
        };
        for value in values.iter_mut() {
            let Ok(text) = value.to_str() else {
                continue;
            };
            let (before, address) = text.split_at(start_of_address(&name, text));
            if let Some(path) = path_at_router(address, url, mount)
                && let Ok(rewritten) = HeaderValue::try_from(format!("{before}{path}"))
            {
                *value = rewritten;
            }
        }
    }
}

/// Returns the position of the address in the value of a header. `Refresh` has a number of seconds before it.
fn start_of_address(name: &HeaderName, value: &str) -> usize {
    if *name != REFRESH {
        return 0;
    }
    let lower = value.to_ascii_lowercase();
    let after = lower.find("url=").map_or(value.len(), |at| at + 4);
    let quotes = value[after..]
        .bytes()
        .take_while(|byte| b" '\"".contains(byte));
    after + quotes.count()
}

/// Returns the path at the router for an address of an endpoint's answer. Returns `None` if the address stays as it is.
fn path_at_router(address: &str, url: &Uri, mount: Option<&Mount>) -> Option<String> {
    let base = url.path().trim_end_matches('/');
    let (path, is_of_client) = match split_authority(address) {
        Some((authority, path)) => {
            let is_of_client = is_client_host(authority, mount);
            if !is_of_client && !is_of_endpoint(authority, url) {
                return None;
            }
            (path, is_of_client)
        }
        None if address.starts_with('/') && (mount.is_some() || !base.is_empty()) => {
            (address, false)
        }
        None => return None,
    };
    let prefix = mount.map_or("", |mount| &mount.prefix);
    let is_complete = is_of_client && is_below(path, prefix);
    let rest = match path.strip_prefix(base) {
        Some(rest) if is_below(path, base) => rest,
        _ => path,
    };
    let path = match is_complete {
        true => path.to_owned(),
        false if rest.starts_with('/') => format!("{prefix}{rest}"),
        false => format!("{prefix}/{rest}"),
    };
    // Two slashes in front would begin the name of another host.
    let below_root = path.trim_start_matches(['/', '\\']);
    Some(match path.len() - below_root.len() {
        0 | 1 => path,
        _ => format!("/{below_root}"),
    })
}

/// Splits an address with an authority into that and the rest, such as a path.
fn split_authority(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once("//")?;
    let is_http = ["http:", "https:", ""]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    is_http.then(|| rest.split_at(end))
}

fn is_of_endpoint(authority: &str, url: &Uri) -> bool {
    let own = host_and_port(url);
    let port = match url.scheme_str() {
        Some("https") => ":443",
        _ => ":80",
    };
    let written = authority.strip_suffix(port).unwrap_or(authority);
    written.eq_ignore_ascii_case(&own)
}

fn is_client_host(authority: &str, mount: Option<&Mount>) -> bool {
    let host = mount.and_then(|mount| mount.host.as_ref());
    host.is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()))
}

/// Returns `true` if `path` is `base`, or has something behind it that begins a segment, a query or a fragment.
fn is_below(path: &str, base: &str) -> bool {
    let rest = path.strip_prefix(base);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(url: &str, mount: Option<&Mount>, name: HeaderName, value: &str) -> String {
        let value = HeaderValue::from_str(value).unwrap();
        let mut headers = HeaderMap::from_iter([(name.clone(), value)]);
        rewrite(&mut headers, &url.parse().unwrap(), mount);
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn an_endpoints_own_address_becomes_a_path() {
        for (url, location, expected) in [
            ("http://b:81", "http://b:81/docs?x=1#y", "/docs?x=1#y"),
            ("http://b:81", "HTTP://B:81", "/"),
            ("http://b:81", "http://b:81?x", "/?x"),
            ("http://b:81", "//b:81/docs", "/docs"),
            ("http://b", "http://b:80/docs", "/docs"),
            ("https://b", "http://b/docs", "/docs"),
            ("http://b/base/", "http://b/base/docs", "/docs"),
            ("http://b/base", "/base/docs", "/docs"),
            ("http://b/base", "/base", "/"),
            ("http://b/base", "/baseline", "/baseline"),
            ("http://[::1]:9", "http://[::1]:9/x", "/x"),
            ("http://b:81", "http://b:82/docs", "http://b:82/docs"),
            (
                "http://b:81",
                "http://b:81.evil/docs",
                "http://b:81.evil/docs",
            ),
            ("http://b:81", "https://other/docs", "https://other/docs"),
            ("http://b:81", "/docs", "/docs"),
            (
                "http://b:81",
                "http://b:81//evil.example/x",
                "/evil.example/x",
            ),
            (
                "http://b/base",
                "http://b/base//evil.example",
                "/evil.example",
            ),
            ("http://b:81", "docs", "docs"),
            ("http://b:81", "ftp://b:81/docs", "ftp://b:81/docs"),
        ] {
            assert_eq!(rewritten(url, None, LOCATION, location), expected, "{url}");
        }
    }

    #[test]
    fn paths_below_a_prefix_stay_below_it() {
        let mount = Mount {
            prefix: "/upstream/m".to_owned(),
            host: Some(HeaderValue::from_static("chat.example")),
        };
        for (location, expected) in [
            ("http://b:81/docs", "/upstream/m/docs"),
            ("/docs", "/upstream/m/docs"),
            ("http://chat.example/docs", "/upstream/m/docs"),
            ("http://chat.example/upstream/m/docs", "/upstream/m/docs"),
            ("docs", "docs"),
            ("http://other/docs", "http://other/docs"),
        ] {
            let got = rewritten("http://b:81", Some(&mount), LOCATION, location);
            assert_eq!(got, expected, "{location}");
        }
    }

    #[test]
    fn every_header_with_an_address_is_rewritten() {
        for (name, value, expected) in [
            (CONTENT_LOCATION, "http://b/x", "/x"),
            (REFRESH, "5; url=http://b/x", "5; url=/x"),
            (REFRESH, "0;URL='http://b/x'", "0;URL='/x'"),
            (REFRESH, "5", "5"),
        ] {
            assert_eq!(rewritten("http://b", None, name, value), expected);
        }
    }
}

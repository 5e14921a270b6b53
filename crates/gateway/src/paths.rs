//! The paths of the APIs that clients speak, and the check that every server reads a path alike.

use http::uri::PathAndQuery;
use http::{Method, Uri};

/// The paths of requests that name a model in their body, by API. The most frequent path comes first.
const KNOWN: &[&str] = &[
    // OpenAI
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/moderations",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    // Anthropic
    "/v1/messages",
    "/v1/messages/count_tokens",
    // Ollama
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    // llama.cpp, with OpenAI's paths without their version
    "/chat/completions",
    "/completions",
    "/completion",
    "/embeddings",
    "/embedding",
    "/responses",
    "/infill",
    "/apply-template",
    "/tokenize",
    "/detokenize",
    "/reranking",
    "/v1/reranking",
    // llama-swap, with the paths of its image models
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
    // text-embeddings-inference
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/embed",
    "/embed_all",
    "/embed_sparse",
    "/predict",
    "/similarity",
    "/decode",
    // vLLM
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v2/embed",
    "/pooling",
    "/classify",
    "/score",
    "/v1/score",
];

/// Own pages with a path of their own, for the metrics.
const PAGES: [&str; 13] = [
    "/healthz",
    "/health",
    "/readyz",
    "/metrics",
    "/v1/models",
    "/models",
    "/running",
    "/v1/files",
    "/v1/batches",
    "/admin/state",
    "/admin/live",
    "/admin/models",
    "/admin/requests",
];

/// Own pages and actions that end with the name of a model, whose slashes may be encoded. None of them reaches a backend.
const OF_MODELS: [&str; 4] = [
    "/v1/models/",
    "/models/",
    "/api/models/unload/",
    "/admin/models/",
];

/// The pages of a model's own server are below this path and the name of the model, as with llama-swap.
pub(crate) const UPSTREAM: &str = "/upstream/";

/// Pages that need no key, because load balancers ask for them.
const PUBLIC: [&str; 3] = ["/healthz", "/health", "/readyz"];

/// The API of a path, which sets the shape of its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Api {
    pub(crate) fn of(path: &str) -> Self {
        if is_at_or_below(path, "/v1/messages") {
            Self::Anthropic
        } else if is_at_or_below(path, "/api") && !is_at_or_below(path, "/api/models") {
            Self::Ollama
        } else {
            Self::OpenAi // and of all that have no shape of their own, such as llama-swap's `/api/models`
        }
    }
}

/// Returns `true` if `path` is one of a known API, for requests that name a model in their body.
pub(crate) fn is_known(path: &str) -> bool {
    KNOWN.contains(&path)
}

/// Removes the slash at the end of a path that is one of a known API, or of a page, without it. Some clients build their paths
/// so, and servers of these APIs take both for the same.
pub(crate) fn without_last_slash(uri: &mut Uri) {
    let Some(path) = uri.path().strip_suffix('/') else {
        return;
    };
    if route(path).is_none() {
        return;
    }
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let target = PathAndQuery::try_from(format!("{path}{query}"));
    let mut parts = std::mem::take(uri).into_parts();
    // Both are parts of a valid target.
    parts.path_and_query = target.ok();
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// Returns the path itself if it is that of a known API or of one of the gateway's pages. So it has few values, whatever
/// paths clients ask for.
pub(crate) fn route(path: &str) -> Option<&'static str> {
    let mut known = KNOWN.iter().chain(&PAGES);
    known.find(|known| **known == path).copied()
}

/// Returns `true` if a request needs no key.
pub(crate) fn is_public(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && PUBLIC.contains(&path)
}

/// Returns `true` if `path` is `page`, or has further segments behind it.
pub(crate) fn is_at_or_below(path: &str, page: &str) -> bool {
    let rest = path.strip_prefix(page.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if every server reads the path of a request alike.
pub(crate) fn is_valid(method: &Method, path: &str) -> bool {
    is_known(path) || has_plain_segments(path, names_own_page(method, path))
}

fn names_own_page(method: &Method, path: &str) -> bool {
    let is_page = matches!(*method, Method::GET | Method::HEAD);
    OF_MODELS.iter().any(|page| {
        let is_action = page.ends_with("/unload/") || page.starts_with("/admin/");
        (is_page || is_action) && path.starts_with(page)
    })
}

/// Returns `true` if `path` has no empty segment but the last, no `.` or `..`, and no backslash, control character or
/// encoded slash. Nor has it a letter, digit, `-`, `.`, `_` or `~` that is encoded without need, because servers differ in
/// whether that is the same path. A segment is compared without its parameters, because some servers drop them first: `..;x`
/// is `..` to them.
pub(crate) fn has_plain_segments(path: &str, may_encode_slashes: bool) -> bool {
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if !is_plain(segment, is_last, may_encode_slashes) {
            return false;
        }
    }
    true
}

fn is_plain(segment: &str, is_last: bool, may_encode_slashes: bool) -> bool {
    let mut rest = segment.as_bytes();
    // The name is the part before the parameters.
    let mut is_name = true;
    let (mut length, mut dots) = (0, 0);
    while let Some((byte, after)) = next_byte(rest) {
        let is_encoded = rest.len() - after.len() > 1;
        match byte {
            b'-' | b'.' | b'_' | b'~' if is_encoded => return false,
            _ if is_encoded && byte.is_ascii_alphanumeric() => return false,
            b'/' if may_encode_slashes => {}
            b'/' | b'\\' | ..b' ' | 0x7f => return false,
            _ => {}
        }
        is_name &= byte != b';';
        if is_name {
            length += 1;
            dots += u32::from(byte == b'.');
        }
        rest = after;
    }
    match length {
        0 => is_last,
        1 | 2 => dots < length,
        _ => true,
    }
}

/// Returns the first byte, decoded if it is encoded, and the bytes after it.
fn next_byte(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    if let [b'%', high, low, after @ ..] = bytes
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Some(((high * 16 + low) as u8, after));
    }
    let (first, after) = bytes.split_first()?;
    Some((*first, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_paths_are_valid_and_each_is_there_once() {
        for (index, path) in KNOWN.iter().enumerate() {
            assert!(has_plain_segments(path, false), "{path}");
            assert!(!KNOWN[..index].contains(path), "{path}");
        }
    }

    #[test]
    fn the_api_of_a_path_sets_the_shape_of_its_errors() {
        for (path, api) in [
            ("/v1/chat/completions", Api::OpenAi),
            ("/v1/messages/count_tokens", Api::Anthropic),
            ("/v1/messages_of_others", Api::OpenAi),
            ("/api/chat", Api::Ollama),
            ("/api/models/unload", Api::OpenAi),
            ("/apis", Api::OpenAi),
            ("/apply-template", Api::OpenAi),
        ] {
            assert_eq!(Api::of(path), api, "{path}");
        }
    }

    #[test]
    fn a_known_path_may_end_with_a_slash() {
        for (uri, expected) in [
            ("/v1/chat/completions/", "/v1/chat/completions"),
            ("/v1/chat/completions/?a=b/", "/v1/chat/completions?a=b/"),
            ("http://x/v1/models/", "http://x/v1/models"),
            ("/v1/chat/completions//", "/v1/chat/completions//"),
            ("/v1/models", "/v1/models"),
            ("/v1/other/", "/v1/other/"),
            ("/", "/"),
        ] {
            let mut uri = Uri::from_static(uri);
            without_last_slash(&mut uri);
            assert_eq!(uri, expected);
        }
    }

    #[test]
    fn routes_are_known_paths_alone() {
        assert_eq!(route("/v1/messages"), Some("/v1/messages"));
        assert_eq!(route("/healthz"), Some("/healthz"));
        assert_eq!(route("/v1/messages/1"), None);
    }

    #[test]
    fn paths_that_servers_may_read_differently_are_invalid() {
        for (path, valid) in [
            ("/", true),
            ("/v1/x", true),
            ("/v1/x/", true),
            ("/v1/...", true),
            ("/v1/.hidden/a..b", true),
            ("/v1/a%20b%C3%A9", true),
            ("/v1/50%/%zz", true),
            ("/v1/a;b=c/x", true),
            ("/v1/...;x/y", true),
            ("/v1/x/;y", true),
            ("/v1/a;../x", true),
            ("", false),
            ("*", false),
            ("//v1/x", false),
            ("/v1//x", false),
            ("/v1/x//", false),
            ("/v1/./x", false),
            ("/v1/../x", false),
            ("/v1/..", false),
            ("/v1/.", false),
            ("/v1/%2e%2E/x", false),
            ("/v1/.%2e/x", false),
            ("/v1/%2e", false),
            ("/v1/..;/x", false),
            ("/v1/.;/x", false),
            ("/v1/..;a=b", false),
            ("/v1/..;a;b/x", false),
            ("/v1/..%3b/x", false),
            ("/v1/.%3B", false),
            ("/v1/;x/y", false),
            ("/v1/%63hat", false),
            ("/v1/a%2Dz", false),
            ("/v1/a%2fb", false),
            ("/v1/a%5Cb", false),
            ("/v1/a\\b", false),
            ("/v1/a%00b", false),
            ("/v1/a%0d%0ab", false),
            ("/v1/a%7f", false),
        ] {
            assert_eq!(is_valid(&Method::POST, path), valid, "{path}");
        }
    }

    #[test]
    fn own_pages_of_models_may_have_encoded_slashes() {
        for (method, path, valid) in [
            (Method::GET, "/v1/models/org%2Fm", true),
            (Method::GET, "/v1/models/..%2Fm", true),
            (Method::GET, "/v1/models/%2e%2e", false),
            (Method::GET, "/v1/other/org%2Fm", false),
            (Method::POST, "/v1/models/org%2Fm", false),
            (Method::POST, "/api/models/unload/org%2Fm", true),
        ] {
            assert_eq!(is_valid(&method, path), valid, "{method} {path}");
        }
    }

    #[test]
    fn prefixes_end_with_a_segment() {
        for (path, prefix, is_below) in [
            ("/v1/x", "/v1", true),
            ("/v1", "/v1/", true),
            ("/v10/x", "/v1", false),
            ("/x", "/", true),
        ] {
            assert_eq!(is_at_or_below(path, prefix), is_below, "{path} {prefix}");
        }
    }
}

//! The format of a rejection, which depends on the content type of the request.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns the content type of the gRPC answer that the client of a request with these headers can read. Returns `None`
/// if the answer is plain HTTP.
///
/// gRPC-Web differs only in its content type. Its clients read the status from the headers, too, and the body of a
/// rejection is empty, so Base64 would not change it.
pub(crate) fn grpc_content_type(request: &HeaderMap) -> Option<&'static str> {
    let value = request.get(CONTENT_TYPE)?;
    let rest = strip(value.as_bytes(), b"application/grpc")?; // most requests end here
    let web = strip(rest, b"-web");
    let text = web.and_then(|rest| strip(rest, b"-text"));
    let (content_type, rest) = match (web, text) {
        (_, Some(rest)) => ("application/grpc-web-text", rest),
        (Some(rest), None) => ("application/grpc-web", rest),
        (None, None) => ("application/grpc", rest),
    };
    matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..]).then_some(content_type)
}

/// Returns the rest of `value` after `prefix`, which is compared without regard to case.
fn strip<'a>(value: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = value.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_content_type_tells() {
        const GRPC: Option<&str> = Some("application/grpc");
        const WEB: Option<&str> = Some("application/grpc-web");
        const WEB_TEXT: Option<&str> = Some("application/grpc-web-text");
        let cases: [(&[u8], Option<&str>); 15] = [
            (b"application/grpc", GRPC),
            (b"application/grpc+proto", GRPC),
            (b"Application/GRPC; charset=utf-8", GRPC),
            (b"application/grpc ;x=y", GRPC),
            (b"application/grpc-web", WEB),
            (b"application/grpc-web+json", WEB),
            (b"application/GRPC-Web-Text", WEB_TEXT),
            (b"application/grpc-web-text+proto;x=y", WEB_TEXT),
            (b"application/grpcfoo", None),
            (b"application/grpc-foo", None),
            (b"application/grpc-web-", None),
            (b"application/grpc-web-texts", None),
            (b"application/json", None),
            (b"application/grp", None),
            (b"", None),
        ];
        for (value, expected) in cases {
            let value = HeaderValue::from_bytes(value).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.clone())]);
            assert_eq!(grpc_content_type(&headers), expected, "{value:?}");
        }
        assert_eq!(grpc_content_type(&HeaderMap::new()), None);
    }
}

//! The format of a rejection, by the content type of the request.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerFormat {
    /// An HTTP status and a JSON body.
    Http,
    /// A gRPC status in trailers, which travel as headers where there is nothing else.
    Grpc,
    /// The same, with another content type: clients of gRPC-Web read the status from the headers, too.
    GrpcWeb,
    /// gRPC-Web with its body in Base64. A rejection has no body.
    GrpcWebText,
}

impl AnswerFormat {
    /// The form that the client of a request with these headers can read, by their content type.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(CONTENT_TYPE) else {
            return Self::Http;
        };
        // Most requests end here.
        let Some(rest) = strip(value.as_bytes(), b"application/grpc") else {
            return Self::Http;
        };
        let web = strip(rest, b"-web");
        let text = web.and_then(|rest| strip(rest, b"-text"));
        let (format, rest) = match (web, text) {
            (_, Some(rest)) => (Self::GrpcWebText, rest),
            (Some(rest), None) => (Self::GrpcWeb, rest),
            (None, None) => (Self::Grpc, rest),
        };
        match rest {
            [] | [b'+' | b';' | b' ' | b'\t', ..] => format,
            _ => Self::Http,
        }
    }

    /// The content type of a gRPC answer.
    pub(super) fn grpc_content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Http | Self::Grpc => "application/grpc",
            Self::GrpcWeb => "application/grpc-web",
            Self::GrpcWebText => "application/grpc-web-text",
        })
    }
}

/// What comes after `prefix`, in any case.
fn strip<'a>(value: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = value.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_tells() {
        use AnswerFormat::{Grpc, GrpcWeb, GrpcWebText, Http};
        let cases: [(&[u8], AnswerFormat); 15] = [
            (b"application/grpc", Grpc),
            (b"application/grpc+proto", Grpc),
            (b"Application/GRPC; charset=utf-8", Grpc),
            (b"application/grpc ;x=y", Grpc),
            (b"application/grpc-web", GrpcWeb),
            (b"application/grpc-web+json", GrpcWeb),
            (b"application/GRPC-Web-Text", GrpcWebText),
            (b"application/grpc-web-text+proto;x=y", GrpcWebText),
            (b"application/grpcfoo", Http),
            (b"application/grpc-foo", Http),
            (b"application/grpc-web-", Http),
            (b"application/grpc-web-texts", Http),
            (b"application/json", Http),
            (b"application/grp", Http),
            (b"", Http),
        ];
        for (value, expected) in cases {
            let value = HeaderValue::from_bytes(value).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.clone())]);
            assert_eq!(AnswerFormat::of(&headers), expected, "{value:?}");
        }
        assert_eq!(AnswerFormat::of(&HeaderMap::new()), Http);
    }
}

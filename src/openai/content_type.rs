//! The content type of a request's body, which decides how a server reads the body.
//!
//! The router reads bodies as UTF-8. A server that obeys another charset could find another model in the same bytes, so only
//! types that every server reads alike pass.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::endpoints::RouteError;

/// The way in which a body is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    /// A multipart form, whose parts the boundary separates.
    Form {
        boundary: Vec<u8>,
    },
}

const JSON: &str = "application/json";

/// The longest boundary in bytes, by RFC 2046.
const LONGEST_BOUNDARY: usize = 70;

impl BodyKind {
    /// Returns the kind of the body of a request with these headers. The type of a form loses its charset, and URL-encoded
    /// fields become JSON, because the router reads them so.
    ///
    /// # Errors
    ///
    /// Returns an error if servers may read the body in another way.
    #[inline]
    pub(crate) fn of(headers: &mut HeaderMap) -> Result<Self, RouteError> {
        let mut values = headers.get_all(CONTENT_TYPE).iter();
        let Some(value) = values.next() else {
            return Ok(Self::Json);
        };
        match values.next() {
            None if *value == JSON => Ok(Self::Json),
            None => Self::read(value.clone(), headers),
            Some(_) => Err(unsupported(value)),
        }
    }

    #[cold]
    #[inline(never)]
    fn read(value: HeaderValue, headers: &mut HeaderMap) -> Result<Self, RouteError> {
        if value.as_bytes().trim_ascii().is_empty() {
            return Ok(Self::Json);
        }
        let content_type = ContentType::read(value.as_bytes());
        let content_type = content_type.ok_or_else(|| unsupported(&value))?;
        if content_type.is("application/x-www-form-urlencoded") {
            // The body is read as JSON, so the server must not find another model in it by reading it as fields.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            return Ok(Self::Json);
        }
        if !content_type.is_multipart() {
            return Ok(Self::Json);
        }
        let boundary = content_type.form_boundary();
        let boundary = boundary.ok_or_else(|| unsupported(&value))?.to_vec();
        if content_type.has_charset {
            let of_form = [b"multipart/form-data; boundary=\"", &boundary[..], b"\""].concat();
            let of_form = HeaderValue::try_from(of_form).map_err(|_| unsupported(&value))?;
            headers.insert(CONTENT_TYPE, of_form);
        }
        Ok(Self::Form { boundary })
    }
}

fn unsupported(value: &HeaderValue) -> RouteError {
    RouteError::UnsupportedContentType {
        content_type: String::from_utf8_lossy(value.as_bytes()).into_owned(),
    }
}

/// Returns `true` if a text of this type is read as UTF-8.
pub(super) fn is_utf8(content_type: &[u8]) -> bool {
    ContentType::read(content_type).is_some()
}

/// A content type that every server reads alike, with a charset that is UTF-8 or a part of it.
struct ContentType<'a> {
    /// The type and subtype.
    kind: &'a [u8],
    boundary: Option<&'a [u8]>,
    has_charset: bool,
    /// `true` if there are parameters other than the boundary and the charset.
    has_others: bool,
}

impl<'a> ContentType<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = split_at(value, b';').unwrap_or((value, b""));
        let mut content_type = Self {
            kind: kind.trim_ascii(),
            boundary: None,
            has_charset: false,
            has_others: false,
        };
        let is_plain = |byte: &u8| is_of_tokens(*byte) || *byte == b'/';
        if !content_type.kind.iter().all(is_plain) {
            return None;
        }
        while !rest.trim_ascii().is_empty() {
            let (key, value, next) = parameter(rest.trim_ascii_start())?;
            let is_second = match key.to_ascii_lowercase().as_slice() {
                b"boundary" => content_type.boundary.replace(value).is_some(),
                b"charset" if !is_part_of_utf8(value) => return None,
                b"charset" => std::mem::replace(&mut content_type.has_charset, true),
                _ => {
                    content_type.has_others = true;
                    key.contains(&b'*') // a value with a charset of its own
                }
            };
            if is_second {
                return None;
            }
            rest = next;
        }
        Some(content_type)
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind.as_bytes())
    }

    fn is_multipart(&self) -> bool {
        let begin = self.kind.get(..b"multipart/".len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(b"multipart/"))
    }

    /// Returns the boundary of a form. Returns `None` for any other multipart body.
    fn form_boundary(&self) -> Option<&'a [u8]> {
        let boundary = self.boundary?;
        let is_form = self.is("multipart/form-data") && !self.has_others;
        let is_valid = (1..=LONGEST_BOUNDARY).contains(&boundary.len())
            && boundary.iter().all(|&byte| is_of_boundaries(byte));
        (is_form && is_valid).then_some(boundary)
    }
}

/// Returns the first parameter's name and value, and the rest behind its semicolon.
fn parameter(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, after) = split_at(text, b'=')?;
    let (value, rest) = match after.strip_prefix(b"\"") {
        Some(quoted) => {
            let (value, rest) = split_at(quoted, b'"')?;
            (!value.contains(&b'\\')).then_some((value, rest))?
        }
        None => {
            let end = after.iter().position(|&byte| !is_of_tokens(byte));
            after.split_at(end.unwrap_or(after.len()))
        }
    };
    let is_token = !key.is_empty() && key.iter().all(|&byte| is_of_tokens(byte));
    match rest.trim_ascii_start() {
        [] if is_token => Some((key, value, b"")),
        [b';', rest @ ..] if is_token => Some((key, value, rest)),
        _ => None,
    }
}

fn is_part_of_utf8(charset: &[u8]) -> bool {
    let names = [&b"utf-8"[..], b"utf8", b"us-ascii"];
    names.iter().any(|name| charset.eq_ignore_ascii_case(name))
}

/// Returns `true` if a token may contain the byte, by RFC 9110.
fn is_of_tokens(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns `true` if a boundary may contain the byte, by RFC 2046. A space is left out, because servers skip it behind a
/// boundary.
fn is_of_boundaries(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte)
}

/// Returns the parts before and after the first `separator`.
pub(super) fn split_at(value: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|&byte| byte == separator)?;
    Some((&value[..at], &value[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kind of a body, and the content type that the server gets.
    fn read(content_types: &[&str]) -> Option<(BodyKind, Option<String>)> {
        let mut headers = HeaderMap::new();
        for value in content_types {
            headers.append(CONTENT_TYPE, HeaderValue::from_str(value).unwrap());
        }
        let kind = BodyKind::of(&mut headers).ok()?;
        let passed = headers.get(CONTENT_TYPE);
        Some((kind, passed.map(|it| it.to_str().unwrap().to_owned())))
    }

    #[test]
    fn forms_have_one_boundary_and_nothing_else() {
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        for (value, boundary) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data;Boundary=\"a/b\" ;", Some("a/b")),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=a; boundary=b", None),
            ("multipart/form-data; boundary=a; x=y", None),
            ("multipart/form-data; boundary=a; charset=utf-7", None),
            ("multipart/form-data; boundary*=utf-8''a", None),
            ("multipart/form-data; boundary = abc", None),
            ("multipart/form-data; boundary=a/b", None),
            ("multipart/form-data; boundary=\"a;b\"", None),
            ("multipart/form-data; boundary=\"a\\b\"", None),
            ("multipart/form-data; boundary=\"abc", None),
            ("multipart/form-data", None),
            ("multipart/mixed; boundary=abc", None),
            (&long, None),
        ] {
            let form = boundary.map(|boundary| BodyKind::Form {
                boundary: boundary.into(),
            });
            let passed = Some(value.to_owned());
            assert_eq!(read(&[value]), form.map(|form| (form, passed)), "{value}");
        }
        let form = "multipart/form-data; boundary=b";
        for content_types in [[form, form], [form, "text/plain"], ["text/plain", form]] {
            assert_eq!(read(&content_types), None);
        }
    }

    #[test]
    fn a_form_passes_without_its_charset() {
        let (kind, passed) =
            read(&["multipart/form-data; charset=UTF-8; boundary=\"a=b\""]).unwrap();
        let boundary = b"a=b".to_vec();
        assert_eq!(kind, BodyKind::Form { boundary });
        let plain = "multipart/form-data; boundary=\"a=b\"";
        assert_eq!(passed.as_deref(), Some(plain));
    }

    #[test]
    fn text_that_is_no_utf_8_is_refused() {
        let json = "application/json";
        for (value, passed) in [
            ("application/json", Some(json)),
            (
                "application/json; charset=utf-8",
                Some("application/json; charset=utf-8"),
            ),
            (
                "text/plain;charset=\"UTF8\"",
                Some("text/plain;charset=\"UTF8\""),
            ),
            (
                "application/vnd.api+json; v=1;",
                Some("application/vnd.api+json; v=1;"),
            ),
            ("application/x-www-form-urlencoded", Some(json)),
            (
                "Application/X-WWW-Form-URLEncoded ; charset=utf-8",
                Some(json),
            ),
            ("", Some("")),
            ("application/json; charset=utf-7", None),
            ("application/json; charset=\"UTF-7\"", None),
            ("application/json; CHARSET=utf-16", None),
            ("application/json; charset=utf-8; charset=utf-7", None),
            ("application/json; charset*=utf-7", None),
            ("application/json; charset =utf-7", None),
            ("application/json; x=\"\\\"; charset=utf-7", None),
            ("application/json, x; charset=utf-8", None),
            (
                "application/x-www-form-urlencoded; charset=iso-8859-1",
                None,
            ),
        ] {
            let read = read(&[value]);
            let expected = passed.map(|passed| (BodyKind::Json, Some(passed.to_owned())));
            assert_eq!(read, expected, "{value}");
        }
        assert_eq!(read(&[]), Some((BodyKind::Json, None)));
        assert_eq!(read(&[json, "application/x-www-form-urlencoded"]), None);
    }
}

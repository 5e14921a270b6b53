//! The parameters of the headers of a form, and of its parts.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns the boundary of the form that a request with these headers has as its body, or `None` if it has none.
pub(crate) fn form_boundary(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    let (kind, _) = value.split_at_checked(FORM.len())?;
    if !kind.eq_ignore_ascii_case(FORM) {
        return None;
    }
    let boundary = parameter(value, b"boundary")?;
    (1..=LONGEST_BOUNDARY)
        .contains(&boundary.len())
        .then_some(boundary)
}

const FORM: &[u8] = b"multipart/form-data";

/// The longest boundary in bytes, by RFC 2046.
const LONGEST_BOUNDARY: usize = 70;

/// Returns a parameter of a header's value, such as `name` of `form-data; name="model"`. A quoted value is returned as it is
/// written between its quotes.
pub(super) fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (_, mut rest) = split_at(value, b';')?;
    loop {
        let (key, after) = split_at(rest, b'=')?;
        let after = after.trim_ascii_start();
        let (found, next) = match after.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = end_of_quoted(quoted)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = after.iter().position(|&byte| byte == b';');
                let (token, next) = after.split_at(end.unwrap_or(after.len()));
                (token.trim_ascii_end(), next)
            }
        };
        if key.trim_ascii().eq_ignore_ascii_case(name) {
            return Some(found);
        }
        (_, rest) = split_at(next, b';')?;
    }
}

/// Returns the parts before and after the first `separator`.
pub(super) fn split_at(value: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|&byte| byte == separator)?;
    Some((&value[..at], &value[at + 1..]))
}

/// Returns the position of the quote that ends a quoted string. A backslash escapes the byte after it.
fn end_of_quoted(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match quoted.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn forms_have_a_boundary() {
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        for (value, boundary) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data;Boundary=\"a;b\" ; x=y", Some("a;b")),
            (
                "multipart/form-data; x=\"; boundary=no\"; boundary=yes",
                Some("yes"),
            ),
            ("multipart/form-data; boundary = abc", Some("abc")),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"abc", None),
            ("multipart/form-data", None),
            ("multipart/mixed; boundary=abc", None),
            ("application/json", None),
            (&long, None),
        ] {
            let value = HeaderValue::from_str(value).unwrap();
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.clone())]);
            assert_eq!(
                form_boundary(&headers),
                boundary.map(str::as_bytes),
                "{value:?}"
            );
        }
        assert_eq!(form_boundary(&HeaderMap::new()), None);
    }
}

//! The boundary between the parts of a form, which is a parameter of the form's content type.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns the boundary of the form that a request with these headers has as its body, or `None` if it has none,
/// or several.
pub(crate) fn form_boundary(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    let (kind, _) = value.split_at_checked(FORM.len())?;
    if !kind.eq_ignore_ascii_case(FORM) {
        return None;
    }
    let mut boundaries = parameters(value, b"boundary");
    let boundary = boundaries.next()?;
    if boundaries.next().is_some() {
        return None;
    }
    (1..=LONGEST_BOUNDARY)
        .contains(&boundary.len())
        .then_some(boundary)
}

const FORM: &[u8] = b"multipart/form-data";

/// The longest boundary in bytes, by RFC 2046.
const LONGEST_BOUNDARY: usize = 70;

/// Returns the values of a parameter of a header's value. A quoted value is returned as it is written between its quotes.
/// Servers differ in the one that counts if there are several.
fn parameters<'a>(value: &'a [u8], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = split_at(value, b';').map(|(_, rest)| rest);
    let all = std::iter::from_fn(move || {
        let (key, found, next) = next_parameter(rest?)?;
        rest = split_at(next, b';').map(|(_, rest)| rest);
        Some((key.trim_ascii(), found))
    });
    all.filter_map(move |(key, found)| key.eq_ignore_ascii_case(name).then_some(found))
}

/// Returns the first parameter's key and value, and the rest.
fn next_parameter(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, after) = split_at(text, b'=')?;
    let after = after.trim_ascii_start();
    if let Some(quoted) = after.strip_prefix(b"\"") {
        let end = end_of_quoted(quoted)?;
        return Some((key, &quoted[..end], &quoted[end + 1..]));
    }
    let end = after.iter().position(|&byte| byte == b';');
    let (token, next) = after.split_at(end.unwrap_or(after.len()));
    Some((key, token.trim_ascii_end(), next))
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
            ("multipart/form-data; boundary=a; boundary=b", None),
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

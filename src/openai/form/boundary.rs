//! The boundary between the parts of a form, which is a parameter of the form's content type.

use http::HeaderValue;
use http::header::GetAll;

/// Returns the boundary of the form that a request with these content types has as its body. Returns `None` if it has none,
/// or several.
pub(crate) fn form_boundary<'a>(content_types: &GetAll<'a, HeaderValue>) -> Option<&'a [u8]> {
    let mut values = content_types.iter();
    let value = values.next()?.as_bytes();
    if !begins_with(value, FORM) || values.next().is_some() {
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

/// Returns `true` if a server may read a body with these content types as URL-encoded fields.
pub(crate) fn names_url_encoded(content_types: &GetAll<'_, HeaderValue>) -> bool {
    let mut values = content_types.iter();
    values.any(|value| begins_with(value.as_bytes(), URL_ENCODED))
}

fn begins_with(value: &[u8], content_type: &[u8]) -> bool {
    let begin = value.get(..content_type.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(content_type))
}

const FORM: &[u8] = b"multipart/form-data";

const URL_ENCODED: &[u8] = b"application/x-www-form-urlencoded";

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
    use http::HeaderMap;
    use http::header::CONTENT_TYPE;

    use super::*;

    fn headers(content_types: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &value in content_types {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(value));
        }
        headers
    }

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
                form_boundary(&headers.get_all(CONTENT_TYPE)),
                boundary.map(str::as_bytes),
                "{value:?}"
            );
        }
        let form = "multipart/form-data; boundary=b";
        for content_types in [&[][..], &[form, form], &[form, "text/plain"]] {
            let headers = headers(content_types);
            assert_eq!(form_boundary(&headers.get_all(CONTENT_TYPE)), None);
        }
    }

    #[test]
    fn url_encoded_types_may_have_parameters() {
        for (content_types, is_url_encoded) in [
            (&["application/x-www-form-urlencoded"][..], true),
            (&["Application/X-WWW-Form-URLEncoded ; charset=utf-8"], true),
            (
                &["application/json", "application/x-www-form-urlencoded"],
                true,
            ),
            (&["application/json"], false),
            (&["application/x-www-form"], false),
            (&[], false),
        ] {
            let headers = headers(content_types);
            let names = names_url_encoded(&headers.get_all(CONTENT_TYPE));
            assert_eq!(names, is_url_encoded, "{content_types:?}");
        }
    }
}

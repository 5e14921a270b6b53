//! The query parameters of a page.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Returns the decoded value of a query parameter. If the parameter appears several times, the first one counts.
pub(super) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let pairs = query?.split('&');
    let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let value = match value.contains('+') {
        true => Cow::Owned(value.replace('+', " ")),
        false => Cow::Borrowed(value),
    };
    Some(match percent_decode_str(&value).decode_utf8_lossy() {
        Cow::Borrowed(same) if same.len() == value.len() => value,
        decoded => Cow::Owned(decoded.into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_read_as_it_was_meant() {
        let query = Some("a=1&b=x%20y+z&a=2&c&d=%zz&e=");
        let read = |name| parameter(query, name);
        assert_eq!(read("a").as_deref(), Some("1"));
        assert_eq!(read("b").as_deref(), Some("x y z"));
        assert_eq!(read("c").as_deref(), Some(""));
        assert_eq!(read("d").as_deref(), Some("%zz"));
        assert_eq!(read("e").as_deref(), Some(""));
        assert_eq!(read("f"), None);
        assert_eq!(parameter(None, "a"), None);
    }
}

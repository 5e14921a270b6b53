//! The headers of a part, of which `Content-Disposition` names the part's field.

use percent_encoding::percent_decode;

use crate::openai::content_type::{is_utf8, split_at};

/// Returns `true` if the part with these headers names the model, whatever else they have.
///
/// # Errors
///
/// Returns an error if servers may differ in what the headers name, and it may be the model.
pub(super) fn is_model(headers: &[u8]) -> Result<bool, &'static str> {
    if has_half_break(headers) && may_be_model(headers) {
        return Err(AMBIGUOUS);
    }
    let lines = headers.split(|&byte| byte == b'\n');
    let is_folded = lines
        .clone()
        .any(|line| line.starts_with(b" ") || line.starts_with(b"\t"));
    let mut dispositions = values(headers, b"content-disposition");
    let Some(value) = dispositions.next() else {
        return Ok(false);
    };
    let is_single = dispositions.next().is_none() && !is_folded;
    match field_name(value).filter(|_| is_single) {
        Some(b"model") if is_plain_text(headers) => Ok(true),
        Some(b"model") => Err("the `model` of the form is encoded"),
        Some(name) if may_be_read_as_model(name) => Err(AMBIGUOUS),
        None if may_be_model(headers) => Err(AMBIGUOUS),
        _ => Ok(false),
    }
}

/// Returns the values of the header `name`, which is in lower case.
fn values<'a>(headers: &'a [u8], name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.split(|&byte| byte == b'\n');
    lines.filter_map(move |line| {
        let (key, value) = split_at(line, b':')?;
        let is_named = key.trim_ascii().eq_ignore_ascii_case(name);
        is_named.then(|| value.trim_ascii())
    })
}

/// Returns `true` if a server takes the content of the part with these headers as it is, in UTF-8.
fn is_plain_text(headers: &[u8]) -> bool {
    let plain = [&b"7bit"[..], b"8bit", b"binary"];
    let is_plain = |it: &[u8]| plain.iter().any(|plain| it.eq_ignore_ascii_case(plain));
    values(headers, b"content-transfer-encoding").all(is_plain)
        && values(headers, b"content-type").all(is_utf8)
}

/// Returns `true` if these headers have half a line break, which some servers take for a whole one.
fn has_half_break(headers: &[u8]) -> bool {
    let mut before = 0;
    let mut has_half = false;
    for &byte in headers {
        has_half |= (before == b'\r') != (byte == b'\n');
        before = byte;
    }
    has_half || before == b'\r'
}

const AMBIGUOUS: &str =
    "the headers of a part of the form name its field in a way that servers may read differently";

/// Returns the name of the field in the value of `Content-Disposition`. Returns `None` unless every reader finds the same: the
/// name is the first parameter and in lower case, no other parameter mentions one, and there is no backslash.
fn field_name(value: &[u8]) -> Option<&[u8]> {
    let (kind, mut rest) = split_at(value, b';').unwrap_or((value, b""));
    if mentions_name(kind) || value.contains(&b'\\') || value.contains(&b'\r') {
        return None;
    }
    let mut name = None;
    while !rest.trim_ascii().is_empty() {
        let (key, found, next) = parameter(rest)?;
        match key {
            b"name" if name.is_none() => name = Some(found),
            b"filename" | b"filename*" if name.is_some() && !mentions_parameter(found) => {}
            _ if mentions_name(key) || mentions_name(found) => return None,
            _ => {}
        }
        rest = next;
    }
    Some(name.unwrap_or_default())
}

/// Returns the first parameter's key and value, and the rest behind its semicolon.
fn parameter(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, after) = split_at(text, b'=')?;
    let after = after.trim_ascii_start();
    let (value, rest) = match after.strip_prefix(b"\"") {
        Some(quoted) => split_at(quoted, b'"')?,
        None => {
            let is_end = |byte: &u8| *byte == b';' || byte.is_ascii_whitespace();
            let end = after.iter().position(is_end).unwrap_or(after.len());
            after.split_at(end)
        }
    };
    let is_plain = after.starts_with(b"\"") || !value.contains(&b'"');
    match rest.trim_ascii_start() {
        [] if is_plain => Some((key.trim_ascii(), value, b"")),
        [b';', rest @ ..] if is_plain => Some((key.trim_ascii(), value, rest)),
        _ => None,
    }
}

/// Returns `true` if a part of this text may be taken for the key `name` or `filename`.
fn mentions_name(text: &[u8]) -> bool {
    contains(text, b"name")
}

/// Returns `true` if a server that ignores quotes may find the parameter `name` in this text.
fn mentions_parameter(text: &[u8]) -> bool {
    mentions_name(text) && text.contains(&b'=')
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    let mut words = text.windows(word.len());
    words.any(|it| it.eq_ignore_ascii_case(word))
}

/// Returns `true` if a server may find the name `model` in this text: as it is, with backslashes, or encoded.
fn may_be_model(text: &[u8]) -> bool {
    let plain: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'\\').collect();
    let decoded: Vec<u8> = percent_decode(&plain).collect();
    contains(&decoded, b"model") || contains(&decoded, b"name*")
}

/// Returns `true` if a server may read a name other than `model` as `model`. Servers strip spaces, ignore the case, decode, end
/// a name at its first bracket, or take `_charset_` for the charset of the other parts.
fn may_be_read_as_model(name: &[u8]) -> bool {
    let decoded: Vec<u8> = percent_decode(name).collect();
    let Ok(decoded) = std::str::from_utf8(&decoded) else {
        return true; // it is read in another charset
    };
    let end = decoded.find('[').filter(|&at| at > 0);
    let base = decoded[..end.unwrap_or(decoded.len())].chars();
    let letters: String = base.filter(|letter| letter.is_alphanumeric()).collect();
    letters.eq_ignore_ascii_case("model")
        || decoded.eq_ignore_ascii_case("_charset_")
        || decoded.contains("=?")
        || decoded.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_model(value: &str) -> Option<bool> {
        is_model(format!("Content-Disposition: {value}\r\nContent-Type: x").as_bytes()).ok()
    }

    #[test]
    fn a_plain_header_names_its_field() {
        for (value, expected) in [
            ("form-data; name=\"model\"", true),
            ("form-data;name=model", true),
            ("form-data; name = model ; size=3", true),
            ("form-data; name=\"model\"; filename=\"x\"", true),
            ("form-data; name=\"model\"; filename=\"\"", true),
            (
                "form-data; name=\"model\"; filename=a; filename*=utf-8''a",
                true,
            ),
            ("form-data; name=\"file\"; filename=\"model\"", false),
            ("form-data; name=\"file\"; filename=\"my name\"", false),
            (
                "form-data; name=file; filename*=utf-8''caf%C3%A9.wav",
                false,
            ),
            ("form-data; name=file; filename=\"\"", false),
            ("form-data; name=\"models\"", false),
            ("form-data; name=\"model_size\"", false),
            ("form-data; name=\"timestamp_granularities[model]\"", false),
            ("form-data; name=\"a\\\"b\"", false),
            ("form-data; name=\"file\"; filename=\"a\\\"b\"", false),
            ("form-data", false),
            ("", false),
        ] {
            assert_eq!(names_model(value), Some(expected), "{value}");
        }
        assert_eq!(is_model(b"Content-Type: model"), Ok(false));
        let plain = b"X: a\rb\r\nContent-Disposition: form-data; name=file";
        assert_eq!(is_model(plain), Ok(false));
        for hidden in [
            "X: a\rContent-Disposition: form-data; name=model",
            "X: a\nY: model",
        ] {
            assert_eq!(is_model(hidden.as_bytes()), Err(AMBIGUOUS), "{hidden:?}");
        }
    }

    #[test]
    fn a_header_that_servers_read_differently_is_refused() {
        for value in [
            "form-da;at name=\"model\"",
            "form-data name=model",
            "form-data; name=x; name=\"model\"",
            "form-data; name=\"model\"; name=x",
            "form-data; NAME=\"model\"",
            "form-data; name=\"mod\\el\"",
            "form-data; name=\"model\"x",
            "form-data; name=\"model",
            "form-data; name=x name=model",
            "form-data; x=\"; name=model \"; name=file",
            "form-data; filename=\"model\"; name=file",
            "form-data; name=file; filename=\"; name=model\"",
            "form-data; name=\"model\"; FILENAME=x",
            "form-data; name*=utf-8''mod%65l",
            "form-data; name=\"mod%65l\\\"",
            "form-data; name=x\r\nContent-Disposition: form-data; name=model",
            "form-data;\r\n name=model",
            "form-data; name=x\rname=model",
        ] {
            assert_eq!(names_model(value), None, "{value}");
        }
    }

    #[test]
    fn a_name_that_servers_may_clean_up_is_refused() {
        for name in [
            "Model",
            " model",
            "model ",
            "model\u{a0}",
            "mod\u{200b}el",
            "model\0",
            "mod%65l",
            "model[]",
            "model[0]",
            "=?utf-8?B?bW9kZWw=?=",
            "_charset_",
        ] {
            let value = format!("form-data; name=\"{name}\"");
            assert_eq!(names_model(&value), None, "{name:?}");
        }
    }

    #[test]
    fn a_model_is_plain_text() {
        for (header, is_plain) in [
            ("Content-Type: text/plain", true),
            ("Content-Type: text/plain; charset=utf-8", true),
            ("Content-Transfer-Encoding: 8bit", true),
            ("Content-Type: text/plain; charset=utf-7", false),
            ("Content-Transfer-Encoding: base64", false),
            ("content-transfer-encoding : Quoted-Printable", false),
        ] {
            let part = format!("Content-Disposition: form-data; name=model\r\n{header}");
            assert_eq!(is_model(part.as_bytes()).is_ok(), is_plain, "{header}");
        }
    }
}

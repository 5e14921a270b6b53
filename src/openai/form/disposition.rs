//! The header `Content-Disposition` of a part, which names the part's field.

use super::boundary::split_at;

/// Returns `true` if the part with these headers names the model. A file of this name does not.
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
    let mut dispositions = lines.filter_map(|line| {
        let (name, value) = split_at(line, b':')?;
        let is_disposition = name
            .trim_ascii()
            .eq_ignore_ascii_case(b"content-disposition");
        is_disposition.then(|| value.trim_ascii())
    });
    let Some(value) = dispositions.next() else {
        return Ok(false);
    };
    let is_single = dispositions.next().is_none() && !is_folded;
    match Field::read(value).filter(|_| is_single) {
        Some(field) => Ok(field.name == b"model" && !field.is_file),
        None if may_be_model(headers) => Err(AMBIGUOUS),
        None => Ok(false),
    }
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

/// The field that a header names without doubt.
struct Field<'a> {
    name: &'a [u8],
    is_file: bool,
}

impl<'a> Field<'a> {
    /// Reads a header's value. Returns `None` unless every reader finds the same: each name occurs once and in lower case, no
    /// other parameter mentions one, there is no backslash, and a file has a name.
    fn read(value: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = split_at(value, b';').unwrap_or((value, b""));
        let [mut name, mut filename, mut encoded_filename] = [None; 3];
        if mentions_name(kind) || value.contains(&b'\\') || value.contains(&b'\r') {
            return None;
        }
        while !rest.trim_ascii().is_empty() {
            let (key, found, next) = parameter(rest)?;
            let earlier = match key {
                b"name" => name.replace(found),
                b"filename" => filename.replace(found),
                b"filename*" => encoded_filename.replace(found),
                _ if mentions_name(key) || mentions_name(found) => return None,
                _ => None,
            };
            if earlier.is_some() {
                return None;
            }
            rest = next;
        }
        // Servers differ in whether an empty name, or an encoded one alone, makes a file of the part.
        let is_file = match filename {
            Some(filename) if !filename.trim_ascii().is_empty() => Some(true),
            None if encoded_filename.is_none() => Some(false),
            _ => None,
        };
        let name = name.unwrap_or_default();
        let is_file = is_file.or((name != b"model").then_some(true))?;
        Some(Self { name, is_file })
    }
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
    text.windows(4)
        .any(|word| word.eq_ignore_ascii_case(b"name"))
}

/// Returns `true` if a server may find the name `model` in this text: as it is, with backslashes, or encoded.
fn may_be_model(text: &[u8]) -> bool {
    let plain: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'\\').collect();
    let has = |word: &[u8]| {
        plain
            .windows(word.len())
            .any(|it| it.eq_ignore_ascii_case(word))
    };
    has(b"model") || has(b"name*")
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
            ("form-data; name=\"file\"; filename=\"model\"", false),
            (
                "form-data; filename=\"; name=model\"; name=\"model\"",
                false,
            ),
            (
                "form-data; name=\"model\"; filename*=utf-8''a; filename=a",
                false,
            ),
            ("form-data; name=\"Model\"", false),
            (
                "form-data; name=file; filename*=utf-8''caf%C3%A9.wav",
                false,
            ),
            ("form-data; name=file; filename=\"\"", false),
            ("form-data; name=\"model \"", false),
            ("form-data; name=\"a\\\"b\"", false),
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
            "form-data; name=\"model\"; FILENAME=x",
            "form-data; name=\"model\"; filename*=utf-8''x",
            "form-data; name=\"model\"; filename=\"\"",
            "form-data; name=\"model\"; filename=\" \"",
            "form-data; name*=utf-8''mod%65l",
            "form-data; name=x\r\nContent-Disposition: form-data; name=model",
            "form-data;\r\n name=model",
            "form-data; name=x\rname=model",
        ] {
            assert_eq!(names_model(value), None, "{value}");
        }
    }
}

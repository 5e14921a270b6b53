//! The values of a JSON body as they are written, so that an unexpected one is skipped and not refused.
//!
//! `serde_json` checks a value while it skips it, without a recursion that follows the nesting of the body. A tree and
//! typed values would refuse some that an endpoint may accept: a number too large for every float type, or half of a
//! surrogate pair.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// Reads an object that has not been checked, and passes each field to `read`, in the order of the text and with
/// repetitions. Nothing is collected, so the memory does not grow with the number of fields.
///
/// # Errors
///
/// Returns an error if the text is not one JSON object.
pub(super) fn read_object<'a>(
    text: &'a str,
    read: impl FnMut(Cow<'a, str>, &'a RawValue),
) -> serde_json::Result<()> {
    let mut from = Deserializer::from_str(text);
    from.deserialize_map(EachField(read))?;
    from.end()
}

/// Passes each field of `value` to `read`. There are none unless it is an object.
pub(super) fn each_field<'a>(value: &'a RawValue, read: impl FnMut(Cow<'a, str>, &'a RawValue)) {
    if value.get().starts_with('{') {
        read_object(value.get(), read).expect(CHECKED);
    }
}

/// Returns the last field of this name in `value`.
pub(super) fn last_field<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut last = None;
    each_field(value, |key, value| {
        if key == name {
            last = Some(value);
        }
    });
    last
}

/// Passes each element of `value` to `read`. There are none unless it is an array.
pub(super) fn each_item<'a>(value: &'a RawValue, read: impl FnMut(&'a RawValue)) {
    if value.get().starts_with('[') {
        let mut from = Deserializer::from_str(value.get());
        from.deserialize_seq(EachItem(read)).expect(CHECKED);
    }
}

/// Returns `true` if `value` is an array with elements.
pub(super) fn has_items(value: &RawValue) -> bool {
    let inside = value.get().strip_prefix('[');
    inside.is_some_and(|inside| !inside.trim_ascii_start().starts_with(']'))
}

/// A visitor that passes on each field of an object as it comes.
struct EachField<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue)> Visitor<'de> for EachField<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            // The name of a known field has no half of a surrogate pair in it.
            if let Some(key) = string(key) {
                (self.0)(key, value);
            }
        }
        Ok(())
    }
}

/// A visitor that passes on each element of an array as it comes.
struct EachItem<F>(F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for EachItem<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            (self.0)(item);
        }
        Ok(())
    }
}

const CHECKED: &str = "a value was checked when it was skipped";

/// Returns the text of a string. Returns `None` for any other value, and if half of a surrogate pair is in it.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = quoted(value)?;
    match memchr(b'\\', text.as_bytes()) {
        None => Some(Cow::Borrowed(text)),
        Some(_) => serde_json::from_str(value.get()).ok().map(Cow::Owned),
    }
}

/// Returns a string as it is written between its quotes, or `None` for any other value.
pub(super) fn quoted(value: &RawValue) -> Option<&str> {
    value.get().strip_prefix('"')?.strip_suffix('"')
}

/// Returns the number of characters in a string that is `written` like this between its quotes. Half of a surrogate
/// pair counts as one.
pub(super) fn chars(written: &str) -> u64 {
    let (mut rest, mut surplus) = (written.as_bytes(), 0);
    while let Some(at) = memchr(b'\\', rest) {
        let length = escape_len(&rest[at..]);
        surplus += length - 1;
        rest = &rest[at + length..];
    }
    (written.chars().count() - surplus) as u64
}

/// Returns the length in bytes of the escape for one character. A surrogate pair counts as one escape.
fn escape_len(written: &[u8]) -> usize {
    match written {
        #[rustfmt::skip]
        [_, b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'b' | b'A'..=b'B', _, _,
         b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..] => 12,
        [_, b'u', ..] => 6,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_escape_is_one_character() {
        for (json, expected) in [
            (r#""""#, 0),
            (r#""abc""#, 3),
            (r#""é🦙""#, 2),
            (r#""a\n\"\\\/\u00e9""#, 6),
            (r#""\ud83e\udd99\uD83E\uDD99""#, 2),
            (r#""\ud83e""#, 1),
            (r#""\udd99\ud83e""#, 2),
            (r#""\ud83e\ud83e\udd99""#, 2),
            (r#""\ud83e\n""#, 2),
            (r#""\ud83e\u0041""#, 2),
            (r#""\ud83edd99""#, 5),
            (r#""\\ud83e""#, 6),
        ] {
            assert_eq!(chars(quoted(raw(json)).unwrap()), expected, "{json}");
        }
    }

    #[test]
    fn a_word_is_known_however_it_is_written() {
        let is_type = |json| string(raw(json)).is_some_and(|word| word == "type");
        for json in [
            r#""type""#,
            r#""\u0074ype""#,
            r#""typ\u0065""#,
            r#""\u0074\u0079\u0070\u0065""#,
        ] {
            assert!(is_type(json), "{json}");
        }
        for json in [
            r#""""#,
            r#""typ""#,
            r#""types""#,
            r#""Type""#,
            r#""\\u0074ype""#,
            r#""\n\u0074ype""#,
            r#""\ud83eype""#,
            r#""typ\u00e9""#,
        ] {
            assert!(!is_type(json), "{json}");
        }
    }

    #[test]
    fn a_quote_is_found_wherever_it_stands() {
        for before in 0..100 {
            let json = format!("\"{}\\\"x\"", "é".repeat(before));
            assert_eq!(quoted(raw(&json)), Some(&json[1..json.len() - 1]));
            assert_eq!(chars(quoted(raw(&json)).unwrap()), before as u64 + 2);
        }
    }

    #[test]
    fn a_skipped_value_is_skipped_whole() {
        for value in [
            "null",
            "-1.5e400",
            r#""]\"}""#,
            "[]",
            "{}",
            r#"[[],{"]":[1 , 2]}]"#,
            r#" { "a" : "}" , "b":[true,null]} "#,
        ] {
            assert_eq!(raw(value).get(), value.trim());
            for json in [format!("[{value},7]"), format!(" [ {value}\n, 7 ] ")] {
                let mut items = Vec::new();
                each_item(raw(&json), |item| items.push(item.get()));
                assert_eq!(items, [value.trim(), "7"]);
                assert!(has_items(raw(&json)));
            }
        }
    }

    #[test]
    fn an_array_has_items_or_not() {
        for (json, expected) in [
            ("[]", false),
            ("[ \n ]", false),
            ("[[]]", true),
            ("{}", false),
        ] {
            assert_eq!(has_items(raw(json)), expected, "{json}");
        }
    }

    #[test]
    fn the_last_of_equal_fields_is_found() {
        let json = raw(r#"{"a":1,"\u0061":{"b":[2]},"c":3}"#);
        assert_eq!(
            last_field(json, "a").map(RawValue::get),
            Some(r#"{"b":[2]}"#)
        );
        assert!(last_field(json, "b").is_none());
        assert!(last_field(raw("[]"), "a").is_none());
    }
}

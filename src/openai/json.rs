//! The values of a JSON body as they are written, so that an unexpected one is skipped and not refused.
//!
//! `serde_json` checks a value while it skips it, without a recursion that follows the nesting of the body. A tree and
//! typed values would refuse some that an endpoint may accept: a number too large for every float type, or half of a
//! surrogate pair.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object, in the order of the text and with repetitions.
pub(super) struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Returns the fields of `value`, of which there are none unless it is an object.
    pub(super) fn of(value: &'a RawValue) -> Self {
        match value.get().starts_with('{') {
            true => serde_json::from_str(value.get()).expect(CHECKED),
            false => Self(Vec::new()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Cow<'a, str>, &'a RawValue)> {
        // The name of a known field has no half of a surrogate pair in it.
        self.0
            .iter()
            .filter_map(|(key, value)| Some((string(key)?, *value)))
    }

    /// Returns the last field of this name.
    pub(super) fn last(&self, name: &str) -> Option<&'a RawValue> {
        let is_named = |key: &RawValue| string(key).is_some_and(|key| key == name);
        let mut fields = self.0.iter().rev();
        fields.find_map(|(key, value)| is_named(key).then_some(*value))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EachField;

        impl<'de> Visitor<'de> for EachField {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(EachField)
    }
}

/// An element of an array.
pub(super) enum Item<'a> {
    Object(Fields<'a>),
    Other(&'a RawValue),
}

/// Returns the elements of `value`, of which there are none unless it is an array.
pub(super) fn items(value: &RawValue) -> Vec<Item<'_>> {
    if !value.get().starts_with('[') {
        return Vec::new();
    }
    // Most arrays have only objects. Then one pass reads the array and the fields.
    if let Ok(objects) = serde_json::from_str::<Vec<Fields<'_>>>(value.get()) {
        return objects.into_iter().map(Item::Object).collect();
    }
    let items: Vec<&RawValue> = serde_json::from_str(value.get()).expect(CHECKED);
    let items = items.into_iter();
    let items = items.map(|item| match item.get().starts_with('{') {
        true => Item::Object(Fields::of(item)),
        false => Item::Other(item),
    });
    items.collect()
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
                let [first, second] = &items(raw(&json))[..] else {
                    panic!("not two items: {json}");
                };
                match first {
                    Item::Object(fields) => {
                        assert_eq!(fields.iter().count(), value.matches(':').count())
                    }
                    Item::Other(first) => assert_eq!(first.get(), value.trim()),
                }
                assert!(matches!(second, Item::Other(seven) if seven.get() == "7"));
            }
        }
    }
}

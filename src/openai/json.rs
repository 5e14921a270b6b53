//! A reader of JSON that checks each value while it walks over it, so that a body is read once.
//!
//! It checks the grammar without a recursion that follows the nesting of the body, and it keeps values as they are
//! written. So an unexpected value is skipped and not refused. A tree and typed values would refuse some that an endpoint
//! may accept: a number too large for every float type, or half of a surrogate pair. `serde_json` accepts and refuses the
//! same texts, and says what is wrong with those that are refused.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2};
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// The error of a text that is not JSON. [`explain`] says what is wrong with it.
#[derive(Debug)]
pub(super) struct NotJson;

/// A value that was read, unless the text is not JSON.
pub(super) type Read<T> = Result<T, NotJson>;

/// A position in a JSON text, which moves over one value with each call.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// The number of bytes of a string that are read without a search, which takes longer to begin.
const SHORT: usize = 16;

/// A string as it is written between its quotes.
#[derive(Debug, Clone, Copy)]
struct Written<'a> {
    written: &'a str,
    has_escape: bool,
}

impl<'a> Written<'a> {
    /// Returns the text of the string. Returns `None` if half of a surrogate pair is in it.
    #[inline]
    fn text(self) -> Option<Cow<'a, str>> {
        match self.has_escape {
            false => Some(Cow::Borrowed(self.written)),
            true => unescape(self.written).map(Cow::Owned),
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the first byte of the next value, or the byte that stands in its place.
    #[inline]
    pub(super) fn peek(&mut self) -> Read<u8> {
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(NotJson),
            }
        }
    }

    /// Passes each field of an object to `read`, in the order of the text and with repetitions. `read` moves over the value.
    /// A value that is not an object is skipped.
    pub(super) fn fields(&mut self, mut read: impl FnMut(&mut Self, &str) -> Read<()>) -> Read<()> {
        // The name of a known field has no half of a surrogate pair in it.
        self.each_member(|json, key| match key.text() {
            Some(key) => read(json, &key),
            None => json.skip(),
        })
    }

    /// Passes each field of an object to `read`, as [`fields`](Self::fields) does, with its name as it is written between its
    /// quotes.
    pub(super) fn members(
        &mut self,
        mut read: impl FnMut(&mut Self, &'a str) -> Read<()>,
    ) -> Read<()> {
        self.each_member(|json, key| read(json, key.written))
    }

    #[inline]
    fn each_member(
        &mut self,
        mut read: impl FnMut(&mut Self, Written<'a>) -> Read<()>,
    ) -> Read<()> {
        if self.peek()? != b'{' {
            return self.skip();
        }
        let mut has_more = self.open(b'}')?;
        while has_more {
            let key = self.key()?;
            read(self, key)?;
            has_more = self.has_more(b'}')?;
        }
        Ok(())
    }

    /// Returns the position in the text, in bytes.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Passes each element of an array to `read`, which moves over it. A value that is not an array is skipped.
    pub(super) fn items(&mut self, mut read: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        let mut has_more = self.open(b']')?;
        while has_more {
            read(self)?;
            has_more = self.has_more(b']')?;
        }
        Ok(())
    }

    /// Moves over a value.
    pub(super) fn skip(&mut self) -> Read<()> {
        self.value().map(drop)
    }

    /// Moves over a value, and returns it as it is written.
    pub(super) fn value(&mut self) -> Read<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'{' | b'[' => self.nested()?,
            first => self.scalar(first)?,
        }
        self.since(start)
    }

    /// Moves over a value, and returns the text of a string. Returns `None` for any other value, and if half of a
    /// surrogate pair is in it.
    pub(super) fn text(&mut self) -> Read<Option<Cow<'a, str>>> {
        match self.peek()? {
            b'"' => Ok(self.written()?.text()),
            _ => self.skip().map(|()| None),
        }
    }

    /// Moves over a string, and returns it as it is written between its quotes.
    pub(super) fn string(&mut self) -> Read<&'a str> {
        Ok(self.written()?.written)
    }

    /// Moves over a string, and returns it. Most strings are short, and need no search for their end.
    fn written(&mut self) -> Read<Written<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        for _ in 0..SHORT / 8 {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let Some(word) = rest.first_chunk() else {
                break;
            };
            let plain = plain_bytes(*word);
            self.at += plain;
            match rest.get(plain) {
                Some(b'"') => {
                    let written = self.since(start)?;
                    self.at += 1;
                    let has_escape = false;
                    return Ok(Written {
                        written,
                        has_escape,
                    });
                }
                _ if plain == 8 => {}
                _ => break,
            }
        }
        self.long(start)
    }

    /// Moves over the rest of a string that began at `start`, and returns the string.
    fn long(&mut self, start: usize) -> Read<Written<'a>> {
        let bytes = self.text.as_bytes();
        let mut has_escape = false;
        loop {
            let rest = bytes.get(self.at..).ok_or(NotJson)?;
            let found = memchr2(b'"', b'\\', rest).ok_or(NotJson)?;
            self.at += found;
            if rest[found] == b'"' {
                break;
            }
            self.at += checked_escape_len(&rest[found..])?;
            has_escape = true;
        }
        let written = self.since(start)?;
        // The compiler turns this loop into one over whole vectors, which an early end would prevent.
        let lowest = written.bytes().fold(u8::MAX, u8::min);
        self.at += 1;
        let read = Written {
            written,
            has_escape,
        };
        (lowest >= b' ').then_some(read).ok_or(NotJson)
    }

    /// Fails unless only white space follows.
    pub(super) fn end(&mut self) -> Read<()> {
        match self.peek() {
            Ok(_) => Err(NotJson),
            Err(NotJson) => Ok(()),
        }
    }

    /// Moves over a value of any depth. The stack holds the brackets that are open.
    fn nested(&mut self) -> Read<()> {
        let mut open = Vec::new();
        loop {
            let has_more = match self.peek()? {
                b'{' => {
                    open.push(b'}');
                    self.open(b'}')?
                }
                b'[' => {
                    open.push(b']');
                    self.open(b']')?
                }
                first => {
                    self.scalar(first)?;
                    self.has_more(*open.last().ok_or(NotJson)?)?
                }
            };
            if !has_more && !self.close(&mut open)? {
                return Ok(());
            }
            if open.last() == Some(&b'}') {
                self.key()?;
            }
        }
    }

    /// Leaves the innermost value, which is over, and each one that is over with it. Returns `false` if all are.
    fn close(&mut self, open: &mut Vec<u8>) -> Read<bool> {
        open.pop();
        while let Some(&close) = open.last() {
            if self.has_more(close)? {
                return Ok(true);
            }
            open.pop();
        }
        Ok(false)
    }

    /// Moves over the opening bracket of a value that ends with `close`. Returns `false` if the value is empty, and then
    /// moves over its end, too.
    fn open(&mut self, close: u8) -> Read<bool> {
        self.at += 1;
        let is_empty = self.peek()? == close;
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Moves over the byte after an element. Returns `true` if it is a comma, and `false` if it is `close`.
    #[inline]
    fn has_more(&mut self, close: u8) -> Read<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Ok(true),
            byte if byte == close => Ok(false),
            _ => Err(NotJson),
        }
    }

    /// Moves over the name of a field and its colon, and returns the name as it is written between its quotes.
    #[inline]
    fn key(&mut self) -> Read<Written<'a>> {
        let key = self.written()?;
        self.expect(b':')?;
        Ok(key)
    }

    /// Moves over a value that begins with `first` and holds no other values.
    fn scalar(&mut self, first: u8) -> Read<()> {
        match first {
            b'"' => self.written().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => Err(NotJson),
        }
    }

    fn literal(&mut self, word: &str) -> Read<()> {
        let rest = self.text.as_bytes().get(self.at..).ok_or(NotJson)?;
        self.at += word.len();
        let is_there = rest.starts_with(word.as_bytes());
        is_there.then_some(()).ok_or(NotJson)
    }

    fn number(&mut self) -> Read<()> {
        self.at += usize::from(self.is_at(b"-"));
        match self.is_at(b"0") {
            true => self.at += 1, // a number has no leading zeros
            false => self.digits()?,
        }
        if self.is_at(b".") {
            self.at += 1;
            self.digits()?;
        }
        if self.is_at(b"eE") {
            self.at += 1;
            self.at += usize::from(self.is_at(b"+-"));
            self.digits()?;
        }
        Ok(())
    }

    /// Moves over digits, of which there is at least one.
    fn digits(&mut self) -> Read<()> {
        let rest = self.text.as_bytes().get(self.at..).ok_or(NotJson)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(()).ok_or(NotJson)
    }

    /// Returns `true` if the next byte is one of `bytes`.
    fn is_at(&self, bytes: &[u8]) -> bool {
        let next = self.text.as_bytes().get(self.at);
        next.is_some_and(|next| bytes.contains(next))
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Read<()> {
        if self.peek()? != byte {
            return Err(NotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the text from `start` up to here. Both are beside bytes of ASCII, so no character is cut.
    fn since(&self, start: usize) -> Read<&'a str> {
        self.text.get(start..self.at).ok_or(NotJson)
    }
}

/// Returns the number of bytes in `word` before the first quote, backslash or control character.
#[inline]
fn plain_bytes(word: [u8; 8]) -> usize {
    const fn each(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    let word = u64::from_le_bytes(word);
    // Sets the highest bit of the first byte below `bound`. It may set that of later bytes by mistake, because the first one
    // borrows from them.
    let below = |word: u64, bound: u8| word.wrapping_sub(each(bound)) & !word;
    let quotes = below(word ^ each(b'"'), 1);
    let backslashes = below(word ^ each(b'\\'), 1);
    let found = (quotes | backslashes | below(word, b' ')) & each(0x80);
    found.trailing_zeros() as usize / 8
}

/// Returns the length in bytes of the escape at the beginning of `written`, if JSON has such an escape.
fn checked_escape_len(written: &[u8]) -> Read<usize> {
    match written {
        [
            _,
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
            ..,
        ] => Ok(2),
        [_, b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|it| it.is_ascii_hexdigit()) => Ok(6),
        _ => Err(NotJson),
    }
}

/// Returns the reason why `text` is not one JSON object, with its position.
#[cold]
pub(super) fn explain(text: &str) -> String {
    let mut from = Deserializer::from_str(text);
    let read = from.deserialize_map(Fields).and_then(|()| from.end());
    read.map_or_else(
        |error| error.to_string(),
        |()| "not a JSON object".to_owned(),
    )
}

/// A visitor that reads an object for its mistakes.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<&RawValue, &RawValue>()?.is_some() {}
        Ok(())
    }
}

/// Returns the last field of this name in `value`, which has been checked.
pub(super) fn last_field<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let mut last = None;
    let read = Reader::new(value).fields(|json, key| {
        let value = json.value()?;
        if key == name {
            last = Some(value);
        }
        Ok(())
    });
    read.ok().and(last)
}

/// Returns `true` if `value` is an array with elements.
pub(super) fn has_items(value: &str) -> bool {
    let inside = value.strip_prefix('[');
    inside.is_some_and(|inside| !inside.trim_ascii_start().starts_with(']'))
}

/// Returns the text of a string. Returns `None` for any other value, and if half of a surrogate pair is in it.
pub(super) fn string(value: &str) -> Option<Cow<'_, str>> {
    unescaped(quoted(value)?)
}

/// Returns the text of a string that is `written` like this between its quotes. Returns `None` if half of a surrogate
/// pair is in it.
#[inline]
pub(super) fn unescaped(written: &str) -> Option<Cow<'_, str>> {
    match memchr(b'\\', written.as_bytes()) {
        None => Some(Cow::Borrowed(written)),
        Some(_) => unescape(written).map(Cow::Owned),
    }
}

#[cold]
fn unescape(written: &str) -> Option<String> {
    serde_json::from_str(&format!("\"{written}\"")).ok()
}

/// Returns a string as it is written between its quotes, or `None` for any other value.
pub(super) fn quoted(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// Returns the length in bytes of the escape for one character. A surrogate pair counts as one escape.
pub(super) fn escape_len(written: &[u8]) -> usize {
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

    /// Returns the value in `json` as the reader finds it.
    fn raw(json: &str) -> &str {
        let mut reader = Reader::new(json);
        let value = reader.value().unwrap();
        reader.end().unwrap();
        value
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
        }
    }

    #[test]
    fn strings_of_any_length_are_read_as_by_serde_json() {
        for length in 0..40 {
            for at in 0..=length {
                for part in ["", "\\n", "\\u0041", "\\x", "\n", "é", "\"", "\\\""] {
                    let json = format!("\"{}{part}{}\"", "a".repeat(at), "b".repeat(length - at));
                    let mut reader = Reader::new(&json);
                    let read = reader.text().and_then(|text| reader.end().map(|()| text));
                    let expected = serde_json::from_str::<String>(&json).ok();
                    let read = read.ok().flatten().map(Cow::into_owned);
                    assert_eq!(read, expected, "{json}");
                }
            }
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
            assert_eq!(raw(value), value.trim());
            for json in [format!("[{value},7]"), format!(" [ {value}\n, 7 ] ")] {
                let mut items = Vec::new();
                let read = Reader::new(&json).items(|json| {
                    items.push(json.value()?);
                    Ok(())
                });
                read.unwrap();
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
        assert_eq!(last_field(json, "a"), Some(r#"{"b":[2]}"#));
        assert!(last_field(json, "b").is_none());
        assert!(last_field(raw("[]"), "a").is_none());
    }
}

//! A cursor over JSON that is known to be valid, so that reading cannot fail.
//!
//! Typed visitors would refuse some values that are only skipped here, and that an endpoint may accept. Examples are a
//! number that is too large for every float type, and half of a surrogate pair.

use memchr::memchr2;
use serde::de::IgnoredAny;

/// A position in a JSON text. It is in front of a value whenever a method is called.
pub(super) struct Cursor<'a> {
    json: &'a str,
    at: usize,
}

/// The kind of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Array,
    Object,
    /// A word, which is `true`, `false` or `null`.
    Word,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor in front of the one value in `json`. Fails if the JSON is invalid.
    pub(super) fn new(json: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str::<IgnoredAny>(json)?; // checks all of it, and keeps nothing
        Ok(Self { json, at: 0 })
    }

    pub(super) fn kind(&mut self) -> Kind {
        match self.peek() {
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Word,
        }
    }

    /// Returns the position of the next value.
    pub(super) fn offset(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// Passes a value and returns its JSON text.
    pub(super) fn skip(&mut self) -> &'a str {
        let start = self.offset();
        let mut depth = 0; // counted, so that a client cannot choose the depth of the stack
        loop {
            match self.kind() {
                Kind::Text => {
                    self.string();
                }
                Kind::Number | Kind::Word => self.scalar(),
                Kind::Array | Kind::Object => {
                    self.at += 1; // the bracket
                    depth += 1;
                }
            }
            // The brackets need not be matched with each other, because the JSON is valid.
            while depth > 0 && (self.eat(b']') || self.eat(b'}')) {
                depth -= 1;
            }
            if depth == 0 {
                break;
            }
            _ = self.eat(b',') || self.eat(b':');
        }
        &self.json[start..self.at]
    }

    /// Passes a value and returns it if it is a string.
    pub(super) fn text(&mut self) -> Option<Text<'a>> {
        if self.kind() == Kind::Text {
            return Some(self.string());
        }
        self.skip();
        None
    }

    /// Passes a value. If the value is an array, `each` has to pass every element.
    pub(super) fn items(&mut self, mut each: impl FnMut(&mut Self)) {
        if self.kind() != Kind::Array {
            self.skip();
            return;
        }
        self.at += 1;
        while !self.ends(b']') {
            each(self);
        }
    }

    /// Passes a value. If the value is an object, `each` has to pass the value of every key.
    pub(super) fn fields(&mut self, mut each: impl FnMut(&mut Self, Text<'a>)) {
        if self.kind() != Kind::Object {
            self.skip();
            return;
        }
        self.at += 1;
        while !self.ends(b'}') {
            let key = self.string();
            self.eat(b':');
            each(self, key);
        }
    }

    /// Returns the first byte of the next token, after passing the white space in front of it.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.json.as_bytes().get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Passes the next byte if it is `byte`, and returns `true` in that case.
    fn eat(&mut self, byte: u8) -> bool {
        let eaten = self.peek() == Some(byte);
        self.at += usize::from(eaten);
        eaten
    }

    /// Passes the comma or the end of an array or object. Returns `true` if it ends here, and `false` if an element
    /// follows.
    fn ends(&mut self, close: u8) -> bool {
        self.eat(b',');
        self.eat(close)
    }

    /// Passes a string and returns it. The cursor is in front of its opening quote.
    fn string(&mut self) -> Text<'a> {
        let bytes = self.json.as_bytes();
        let start = self.at + 1; // behind the opening quote
        let (mut end, mut surplus) = (start, 0);
        loop {
            let rest = &bytes[end..];
            end += memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            // The index is in range, because a valid string has a closing quote.
            if bytes[end] == b'"' {
                break;
            }
            let escape = escape_len(&bytes[end..]);
            surplus += escape - 1; // an escape stands for one character
            end += escape;
        }
        self.at = end + 1; // behind the closing quote
        Text {
            written: &self.json[start..end],
            surplus,
        }
    }

    fn scalar(&mut self) {
        let rest = &self.json.as_bytes()[self.at..];
        let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace();
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }
}

/// A string as it is written, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    written: &'a str,
    /// The number of characters that the escapes add.
    surplus: usize,
}

impl<'a> Text<'a> {
    pub(super) fn written(self) -> &'a str {
        self.written
    }

    /// Returns `true` if the string reads `word`, which consists of characters without a short escape, such as letters.
    pub(super) fn is(self, word: &str) -> bool {
        if self.surplus == 0 {
            // Nearly all strings are without escapes.
            return self.written == word;
        }
        let rest = word.chars().try_fold(self.written, strip);
        rest.is_some_and(str::is_empty)
    }

    /// Returns the number of characters after the escapes are resolved. Half of a surrogate pair counts as one.
    pub(super) fn chars(self) -> u64 {
        (self.written.chars().count() - self.surplus) as u64
    }
}

/// Returns the rest of `written` after `letter`, which may be written as an escape.
fn strip(written: &str, letter: char) -> Option<&str> {
    written.strip_prefix(letter).or_else(|| {
        let (hex, rest) = written.strip_prefix("\\u")?.split_at_checked(4)?;
        (u32::from_str_radix(hex, 16) == Ok(letter.into())).then_some(rest)
    })
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

    fn text(json: &str) -> Text<'_> {
        Cursor::new(json).unwrap().text().unwrap()
    }

    #[test]
    fn an_escape_is_one_character() {
        for (json, chars) in [
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
            assert_eq!(text(json).chars(), chars, "{json}");
        }
    }

    #[test]
    fn a_word_is_known_however_it_is_written() {
        for json in [
            r#""type""#,
            r#""\u0074ype""#,
            r#""typ\u0065""#,
            r#""\u0074\u0079\u0070\u0065""#,
        ] {
            assert!(text(json).is("type"), "{json}");
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
            assert!(!text(json).is("type"), "{json}");
        }
    }

    #[test]
    fn a_quote_is_found_wherever_it_stands() {
        for before in 0..100 {
            let json = format!("\"{}\\\"x\"", "é".repeat(before));
            assert_eq!(text(&json).written(), &json[1..json.len() - 1]);
            assert_eq!(text(&json).chars(), before as u64 + 2);
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
            assert_eq!(Cursor::new(value).unwrap().skip(), value.trim());
            for json in [format!("[{value},7]"), format!(" [ {value}\n, 7 ] ")] {
                let mut at = Cursor::new(&json).unwrap();
                let mut seen = Vec::new();
                at.items(|at| seen.push(at.skip()));
                assert_eq!(seen, [value.trim(), "7"]);
                assert_eq!(at.peek(), None, "{json}");
            }
        }
    }
}

//! The length of a text in tokens, which is estimated from its bytes.
//!
//! A tokenizer would need the vocabulary of each model, and more time than all other decisions. The scripts differ enough
//! that the bytes of UTF-8 give a fair estimate: a token is about four letters of English, two letters of Russian, Arabic or
//! Hindi, and one character of Chinese, Japanese or Korean.

use memchr::memchr;

use super::json::escape_len;

/// The length of a token, in the unit of [`text_length`].
pub(super) const TOKEN: u64 = 4;

/// Returns the length in quarters of a token of a text that is `written` like this between the quotes of a JSON string.
/// The text is walked over once, and once more if it has escapes.
pub(super) fn text_length(written: &str) -> u64 {
    let bytes = written.as_bytes();
    let (mut rest, mut length) = (bytes, plain_length(bytes));
    while let Some(at) = memchr(b'\\', rest) {
        let escape = &rest[at..at + escape_len(&rest[at..])];
        // The bytes of the escape are ASCII, so they were counted as one quarter each.
        length += escaped_length(escape);
        length -= escape.len() as u64;
        rest = &rest[at + escape.len()..];
    }
    length
}

/// Returns the length of a text without escapes.
fn plain_length(bytes: &[u8]) -> u64 {
    // Most blocks are ASCII, which is found out faster than each byte is looked up.
    let blocks = bytes.chunks(128);
    let lengths = blocks.map(|block| match block.is_ascii() {
        true => block.len() as u64,
        false => mixed_length(block),
    });
    lengths.sum()
}

fn mixed_length(bytes: &[u8]) -> u64 {
    // The sum of 32 bytes fits into a byte, so the compiler adds up many of them with each instruction.
    let sum = |part: &[u8]| u64::from(part.iter().fold(0_u8, |sum, &byte| sum + quarters(byte)));
    let (parts, rest) = bytes.as_chunks::<32>();
    parts.iter().map(|part| sum(part)).sum::<u64>() + sum(rest)
}

/// Returns the quarters of a token that the first byte of a character stands for. All other bytes stand for none.
fn quarters(byte: u8) -> u8 {
    let starts_character = !(0x80..0xc0).contains(&byte);
    // From U+0080 on: Greek, Cyrillic, Hebrew, Arabic, the scripts of India, Thai, punctuation.
    let is_not_ascii = byte >= 0xc0;
    // From U+3000 on: Chinese, Japanese, Korean, emoji.
    let is_ideograph = byte >= 0xe3;
    u8::from(starts_character) + u8::from(is_not_ascii) + 2 * u8::from(is_ideograph)
}

/// Returns the length of the character that an escape such as `\n` or `\u4e2d` stands for.
fn escaped_length(escape: &[u8]) -> u64 {
    match escape {
        [_, b'u', b'0', b'0', b'0'..=b'7', ..] => 1,
        [_, b'u', b'0'..=b'2', ..] => 2,
        [_, b'u', ..] => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> u64 {
        text_length(text) / TOKEN
    }

    #[test]
    fn scripts_have_tokens_of_different_length() {
        for (text, characters, estimate) in [
            ("The quick brown fox jumps over the lazy dog.", 44, 11),
            (
                "Zwölf Boxkämpfer jagen Viktor über den Sylter Deich.",
                52,
                13,
            ),
            ("Съешь же ещё этих мягких французских булок", 42, 19),
            ("Ξεσκεπάζω την ψυχοφθόρα βδελυγμία", 33, 15),
            ("نص حكيم له سر قاطع وذو شأن عظيم", 31, 13),
            ("ऋषियों को सताने वाले दुष्ट राक्षसों के राजा", 43, 19),
            ("เป็นมนุษย์สุดประเสริฐเลิศคุณค่า", 31, 15),
            ("敏捷的棕色狐狸跳过了懒狗", 12, 12),
            ("いろはにほへと ちりぬるを", 13, 12),
            ("다람쥐 헌 쳇바퀴에 타고파", 14, 11),
            ("𠮷野家🦙", 4, 4),
        ] {
            assert_eq!(text.chars().count(), characters, "{text}");
            assert_eq!(tokens(text), estimate, "{text}");
        }
    }

    #[test]
    fn long_texts_are_counted_like_short_ones() {
        for (text, quarters) in [("a", 1), ("é", 2), ("ก", 2), ("中", 4), ("🦙", 4)] {
            for count in [0, 1, 10, 11, 31, 32, 33, 127, 128, 129, 1_000] {
                assert_eq!(
                    text_length(&text.repeat(count)),
                    quarters * count as u64,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn escapes_count_as_the_characters_that_they_stand_for() {
        for (escaped, plain) in [
            (r"\n\t\\", "abc"),
            (r"\u0041\u007f", "ab"),
            (r"\u0080\u00e9\u0416\u2fff", "éééé"),
            (r"\u3000\u4E2D\uac00\uFF01", "中中中中"),
            (r"a\ud83e\udd99b", "a🦙b"),
            (r"\ud83e\udd99\uD83E\uDD99", "🦙🦙"),
            (r"\ud83e", "中"),
            (r"\udd99\ud83e", "中中"),
            (r"\ud83e\ud83e\udd99", "中🦙"),
            (r"\ud83e\n", "中a"),
            (r"\ud83e\u0041", "中a"),
            (r"\ud83edd99", "中dd99"),
            (r"\\u4e2d", "au4e2d"),
            (r#"\"\/"#, "ab"),
        ] {
            assert_eq!(text_length(escaped), text_length(plain), "{escaped}");
        }
    }
}

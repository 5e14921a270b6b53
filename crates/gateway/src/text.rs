//! Text of clients, cut to a length that a log line or a page bears.

/// Returns the first `longest` bytes of `text`, cut at a character boundary.
pub(crate) fn truncated(text: &str, longest: usize) -> &str {
    let longest = text.len().min(longest);
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (text, longest, expected) in [
            ("abc", 3, "abc"),
            ("abc", 2, "ab"),
            ("aé", 2, "a"),
            ("é", 1, ""),
            ("", 4, ""),
        ] {
            assert_eq!(truncated(text, longest), expected, "{text} {longest}");
        }
    }
}

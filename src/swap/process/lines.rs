//! Lines of limited length, from pieces of bytes.

/// A splitter of pieces of bytes into lines, which keeps only the beginning of a line that is too long.
#[derive(Debug)]
pub(super) struct ByteLines {
    limit: usize,
    /// The beginning of the current line, of `limit` bytes at most.
    begun: Vec<u8>,
    /// `true` if the current line is longer than the limit.
    is_cut: bool,
    /// `true` after a carriage return, so that what follows in the line is written over it.
    is_returned: bool,
}

impl ByteLines {
    /// Returns a splitter into lines of `limit` bytes at most.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            begun: Vec::new(),
            is_cut: false,
            is_returned: false,
        }
    }

    /// Adds a piece. Calls `on_line` with each line that it ends, and with `true` if the line was cut. Of a line that is written
    /// over, as progress bars are, it has the last text.
    pub(super) fn push(&mut self, piece: &[u8], mut on_line: impl FnMut(&[u8], bool)) {
        for part in piece.split_inclusive(|&byte| byte == b'\n') {
            let part = self.restarted(part);
            let left = self.limit - self.begun.len();
            self.is_cut |= part.len() > left;
            self.begun.extend_from_slice(&part[..part.len().min(left)]);
            if part.ends_with(b"\n") {
                self.end(&mut on_line);
            }
        }
    }

    /// Drops what `part` of a line writes over. Returns the rest of the part.
    fn restarted<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let Some(last) = part.iter().rposition(|byte| !is_end(byte)) else {
            self.is_returned |= part.starts_with(b"\r");
            return part;
        };
        let start = part[..last].iter().rposition(|&byte| byte == b'\r');
        if start.is_some() || self.is_returned {
            self.begun.clear();
            self.is_cut = false;
        }
        self.is_returned = part[last..].contains(&b'\r');
        start.map_or(part, |start| &part[start + 1..])
    }

    /// Ends the current line, because the pieces have come to their end.
    pub(super) fn end(&mut self, mut on_line: impl FnMut(&[u8], bool)) {
        on_line(
            self.begun.trim_ascii_end(),
            std::mem::take(&mut self.is_cut),
        );
        self.begun.clear();
        self.is_returned = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of an output that comes in these pieces. A line that was cut ends with `~`.
    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let (mut read, mut lines) = (Vec::new(), ByteLines::new(8));
        let mut on_line = |line: &[u8], is_cut| {
            let line = String::from_utf8_lossy(line);
            read.push(format!("{line}{}", if is_cut { "~" } else { "" }));
        };
        for piece in pieces {
            lines.push(piece, &mut on_line);
        }
        lines.end(&mut on_line);
        read
    }

    #[test]
    fn lines_are_split_at_newlines_across_pieces() {
        let split = lines(&[b" a b\nc", b"d\r\n\n \n", b"", b"e"]);
        assert_eq!(split, [" a b", "cd", "", "", "e"]);
        let split = lines(&[b"caf\xc3", b"\xa9\n\xff!\n"]);
        assert_eq!(split, ["café", "\u{fffd}!", ""]);
    }

    #[test]
    fn a_line_that_is_written_over_ends_with_its_last_text() {
        for pieces in [
            &[&b"10 %\r20 %\r30 %\nnext"[..]][..],
            &[b"10 %\r", b"20 %", b"\r30 %\n", b"next"],
            &[b"10 %", b"\r", b"\r", b"30 %", b"\r", b"\n", b"next"],
            &[b"123456789\r30 %\r\r\nnext"],
        ] {
            assert_eq!(lines(pieces), ["30 %", "next"], "{pieces:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let split = lines(&[b"12345678", b"9", b"0\n12345678", b"\nnext\n"]);
        assert_eq!(split, ["12345678~", "12345678~", "next", ""]);
        assert_eq!(lines(&[b"1234567\n"]), ["1234567", ""]);
    }
}

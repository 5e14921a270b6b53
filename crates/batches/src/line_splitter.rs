//! A splitter that turns the pieces of a file into lines.

use bytes::{Buf, Bytes, BytesMut};

/// A buffer that collects pieces of a file, and returns its lines with their numbers.
///
/// It holds only the line that has begun and the latest piece, so the longest allowed line bounds its memory. Lines
/// that consist of white space are counted, but not returned.
#[derive(Debug)]
pub(super) struct LineSplitter {
    rest: BytesMut,
    /// The number of bytes at the beginning of `rest` that were already searched for a line feed.
    scanned: usize,
    /// The number of the next line, counted from 1.
    number: u64,
    limit: usize,
    /// `true` while the rest of an overlong line is skipped.
    skips: bool,
}

/// An error for a line that is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

type NumberedLine = (u64, Result<Bytes, TooLong>);

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl LineSplitter {
    /// Returns a splitter for lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            rest: BytesMut::new(),
            scanned: 0,
            number: 1,
            limit,
            skips: false,
        }
    }

    /// Adds the next piece of the file. The caller must have taken all complete lines of the earlier pieces.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// Takes the next complete line. Returns `None` if the splitter needs more of the file.
    pub(super) fn next(&mut self) -> Option<NumberedLine> {
        loop {
            let end = self.rest[self.scanned..].iter().position(|&b| b == b'\n');
            let Some(end) = end.map(|end| self.scanned + end) else {
                self.scanned = self.rest.len();
                if self.scanned > self.limit {
                    // The line is already too long, so its bytes are dropped. The error is returned once for each line.
                    self.rest.clear();
                    self.scanned = 0;
                    if !std::mem::replace(&mut self.skips, true) {
                        return Some((self.number, Err(TooLong)));
                    }
                }
                return None;
            };
            let line = self.rest.split_to(end);
            self.rest.advance(1);
            self.scanned = 0;
            if let Some(line) = self.end_of_line(line) {
                return Some(line);
            }
        }
    }

    /// Takes the last line after the last piece. It may lack a line feed.
    pub(super) fn last(&mut self) -> Option<NumberedLine> {
        let line = self.rest.split();
        self.scanned = 0;
        self.end_of_line(line)
    }

    fn end_of_line(&mut self, line: BytesMut) -> Option<NumberedLine> {
        let number = self.number;
        self.number += 1;
        if std::mem::take(&mut self.skips) {
            return None;
        }
        if line.len() > self.limit {
            return Some((number, Err(TooLong)));
        }
        let mut line = line.freeze();
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.advance(BYTE_ORDER_MARK.len());
        }
        let line = line.slice_ref(line.trim_ascii());
        (!line.is_empty()).then_some((number, Ok(line)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(file: &[u8], limit: usize, piece: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut splitter = LineSplitter::new(limit);
        let mut lines = Vec::new();
        for piece in file.chunks(piece.max(1)) {
            splitter.push(piece);
            lines.extend(std::iter::from_fn(|| splitter.next()));
        }
        lines.extend(splitter.last());
        let plain = |(number, line): NumberedLine| (number, line.ok().map(|line| line.to_vec()));
        lines.into_iter().map(plain).collect()
    }

    #[test]
    fn empty_lines_are_counted_and_left_out() {
        let file = b"\xef\xbb\xbfa\r\n\n  \nb";
        let expected = vec![(1, Some(b"a".to_vec())), (4, Some(b"b".to_vec()))];
        assert_eq!(split(file, 10, 100), expected);
        assert_eq!(split(b"", 10, 100), []);
        assert_eq!(split(b"\n\n", 10, 100), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_named_once_and_not_kept() {
        let file = b"ok\n0123456789abcdef\nok";
        let ok = |number| (number, Some(b"ok".to_vec()));
        for piece in 1..file.len() {
            assert_eq!(split(file, 5, piece), [ok(1), (2, None), ok(3)], "{piece}");
        }
        let mut splitter = LineSplitter::new(5);
        for _ in 0..1_000 {
            splitter.push(b"0123456789");
            splitter.next();
            assert!(splitter.rest.len() <= 15);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_lines(file in "[ab\n ]{0,60}", piece in 1_usize..10) {
            prop_assert_eq!(split(file.as_bytes(), 4, piece), split(file.as_bytes(), 4, 1_000));
        }
    }
}

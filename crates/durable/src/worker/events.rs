//! Splits a stream of server-sent events into its events, regardless of how its pieces are cut.

use bytes::{Bytes, BytesMut};

/// A splitter for a stream of server-sent events. An empty line ends an event and is left out, so that fields can still
/// be added to the event.
#[derive(Debug, Default)]
pub(super) struct EventCutter {
    /// The bytes of the event that is still incomplete.
    event: BytesMut,
    /// The length of the complete lines in `event`, which is where the current line begins.
    line_at: usize,
    /// `true` if the last byte was a carriage return, so a line feed after it belongs to the same end of the line.
    after_return: bool,
}

impl EventCutter {
    /// Takes the next piece of the stream, and calls `found` for each event that ends in it.
    pub(super) fn push(&mut self, piece: &[u8], mut found: impl FnMut(Bytes)) {
        for &byte in piece {
            let is_rest_of_end = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            if is_rest_of_end {
                continue; // every end of a line becomes a single line feed
            }
            if !matches!(byte, b'\n' | b'\r') {
                self.event.extend_from_slice(&[byte]);
                continue;
            }
            if self.event.len() == self.line_at {
                self.cut(&mut found); // an empty line ends the event
            } else {
                self.event.extend_from_slice(b"\n");
                self.line_at = self.event.len();
            }
        }
    }

    /// Takes the end of the stream, which also ends the last event if its empty line is missing.
    pub(super) fn end(&mut self, mut found: impl FnMut(Bytes)) {
        if self.event.len() > self.line_at {
            self.event.extend_from_slice(b"\n");
        }
        self.cut(&mut found);
    }

    /// Passes the current event on, unless it is empty, and begins a new one.
    fn cut(&mut self, found: &mut impl FnMut(Bytes)) {
        self.line_at = 0;
        if !self.event.is_empty() {
            found(self.event.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Bytes> {
        let mut cutter = EventCutter::default();
        let mut events = Vec::new();
        for piece in pieces {
            cutter.push(piece, |event| events.push(event));
        }
        cutter.end(|event| events.push(event));
        events
    }

    #[test]
    fn an_empty_line_ends_an_event() {
        let text = b"data: 1\n\ndata: 2\r\ndata: 3\r\n\r\n\n: note\r\rdata: 4";
        let events = cut([&text[..]]);
        assert_eq!(
            events,
            ["data: 1\n", "data: 2\ndata: 3\n", ": note\n", "data: 4\n"]
        );
        assert!(cut([&b"\n\r\n"[..]]).is_empty());
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_stream_do_not_matter(
            text in "[ab\r\n]{0,40}",
            size in 1_usize..8,
        ) {
            let whole = cut([text.as_bytes()]);
            prop_assert_eq!(whole, cut(text.as_bytes().chunks(size)));
        }
    }
}

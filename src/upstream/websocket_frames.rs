//! The frames in one direction of a websocket, as far as it takes to tell data from pings.

/// A reader of the frames in one direction of a websocket, which may come in pieces.
#[derive(Debug, Default)]
pub(super) struct WebsocketFrames {
    /// The bytes of a frame's head that have come so far; empty within a frame.
    head: Vec<u8>,
    /// The bytes that are left of the present frame.
    left: u64,
    is_data: bool,
}

impl WebsocketFrames {
    /// Reads the next bytes. Returns `true` if some of them belong to a frame with data; pings, pongs and closes are none.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut any = false;
        // The loop ends because each round takes at least one byte.
        while let [first, rest @ ..] = bytes {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX);
                let taken = taken.min(bytes.len());
                self.left -= taken as u64;
                bytes = &bytes[taken..];
                any |= self.is_data;
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let Some(length) = payload(&self.head) {
                // The control frames have the opcodes from 8 on.
                self.is_data = self.head[0] & 0x0f < 8;
                self.left = length;
                self.head.clear();
                any |= self.is_data;
            }
        }
        any
    }
}

/// Returns the length of the payload that follows this head. `None` while the head is incomplete.
fn payload(head: &[u8]) -> Option<u64> {
    let &second = head.get(1)?;
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if second & 0x80 != 0 { 4 } else { 0 };
    if head.len() < 2 + extended + mask {
        return None;
    }
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    Some(match extended {
        0 => u64::from(second & 0x7f),
        _ => number(&head[2..2 + extended]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_no_data_however_they_are_cut() {
        let ping = [&[0x89, 0x85, 1, 2, 3, 4][..], b"hello"].concat();
        let text = [&[0x81, 126, 1, 0][..], &[b'x'; 256]].concat();
        let long = [
            &[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 9, 9, 9, 9][..],
            &[0; 65_536],
        ]
        .concat();
        for step in [1, 3, 1_000] {
            let mut frames = WebsocketFrames::default();
            let mut any = |bytes: &[u8]| {
                let found = bytes.chunks(step).map(|piece| frames.read(piece));
                found.fold(false, |any, found| any | found)
            };
            assert!(!any(&ping), "{step}");
            assert!(any(&text), "{step}");
            assert!(!any(&ping), "{step}");
            assert!(any(&long), "{step}");
            assert!(!any(&[0x88, 0x00]), "{step}");
        }
    }
}

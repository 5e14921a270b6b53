//! A bound on the headers that come for one answer over HTTP/2.
//!
//! An answer may be preceded by any number of interim ones (1xx), which hyper reads and drops. An endpoint that sends them without
//! an end would keep a thread busy for as long as the request may take. Interim responses and the head of the answer are all
//! HEADERS frames, so this reads the heads of frames alone, and no headers.

use std::collections::HashMap;

/// A reader of the frames of a connection, which counts the headers of each answer until its body begins.
#[derive(Debug, Default)]
pub(in crate::upstream) struct HeadLimit {
    /// The beginning of the head of the next frame.
    head: Vec<u8>,
    /// The number of bytes that are left of the current frame.
    rest: usize,
    /// The bytes of the headers of each stream that has got headers and nothing else.
    headers: HashMap<u32, usize>,
}

/// The number of bytes of the headers of one answer, with its interim ones. Headers of a single response are limited further by
/// `LARGEST_HEADERS`.
const MOST_HEADERS: usize = 1 << 20;

/// The number of streams after which all counts begin anew. Streams that this side has reset stay until then.
const MOST_STREAMS: usize = 4096;

const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;

impl HeadLimit {
    /// Reads the next bytes of the connection. Returns `false` if the headers of an answer have become too large.
    pub(in crate::upstream) fn read(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            let missing = (HEAD - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            let Ok([a, b, c, kind, flags, stream @ ..]) = <[u8; HEAD]>::try_from(&*self.head)
            else {
                return true;
            };
            self.head.clear();
            self.rest = u32::from_be_bytes([0, a, b, c]) as usize;
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1); // without the reserved bit
            if !self.begin(kind, flags, stream) {
                return false;
            }
        }
    }

    /// Counts the current frame. Returns `false` if the headers of an answer have become too large.
    fn begin(&mut self, kind: u8, flags: u8, stream: u32) -> bool {
        let frame = HEAD + self.rest;
        let headers = match kind {
            HEADERS if flags & END_STREAM == 0 => {
                if self.headers.len() >= MOST_STREAMS {
                    self.headers.clear();
                }
                self.headers.entry(stream).or_default()
            }
            CONTINUATION => match self.headers.get_mut(&stream) {
                Some(headers) => headers,
                None => return true,
            },
            DATA | HEADERS | RST_STREAM => {
                self.headers.remove(&stream);
                return true;
            }
            _ => return true,
        };
        *headers += frame;
        *headers <= MOST_HEADERS
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut frame = u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.resize(HEAD + length, 0xff);
        frame
    }

    fn allows(frames: &[Vec<u8>]) -> bool {
        let mut limit = HeadLimit::default();
        frames.iter().all(|frame| limit.read(frame))
    }

    /// A quarter of the limit.
    fn quarter(kind: u8, flags: u8, stream: u32) -> Vec<u8> {
        frame(kind, flags, stream, MOST_HEADERS / 4 - HEAD)
    }

    #[test]
    fn headers_of_one_answer_have_a_limit() {
        let interim = || quarter(HEADERS, 0, 1);
        assert!(allows(&vec![interim(); 4]));
        assert!(!allows(&vec![interim(); 5]));
        let continued = [vec![interim()], vec![quarter(CONTINUATION, 0, 1); 4]];
        assert!(!allows(&continued.concat()));
    }

    #[test]
    fn each_answer_has_a_limit_of_its_own() {
        let of = |stream| vec![quarter(HEADERS, 0, stream); 4];
        let begun = [of(1), of(3), of(5)].concat();
        assert!(allows(&begun));
        for stream in [1, 3, 5] {
            assert!(!allows(
                &[begun.clone(), vec![frame(HEADERS, 0, stream, 1)]].concat()
            ));
        }
    }

    #[test]
    fn other_frames_are_no_headers() {
        for kind in (0..=255).filter(|kind| *kind != HEADERS) {
            assert!(allows(&vec![quarter(kind, 0, 1); 9]), "{kind}");
        }
    }

    #[test]
    fn streams_that_go_on_or_end_are_forgotten() {
        for end in [
            frame(DATA, 0, 1, 3),
            frame(HEADERS, END_STREAM, 1, 3),
            frame(RST_STREAM, 0, 1, 4),
        ] {
            let mut limit = HeadLimit::default();
            assert!(limit.read(&quarter(HEADERS, 0, 1)));
            assert!(limit.read(&end));
            assert!(limit.headers.is_empty());
        }
    }

    #[test]
    fn streams_that_neither_go_on_nor_end_take_bounded_memory() {
        let mut limit = HeadLimit::default();
        for stream in 0..100_000 {
            assert!(limit.read(&frame(HEADERS, 0, stream, 3)));
            assert!(limit.headers.len() <= MOST_STREAMS);
        }
    }

    proptest! {
        #[test]
        fn the_pieces_in_which_frames_come_do_not_matter(
            frames in vec((0u8..12, any::<u8>(), 0u32..4, 0usize..300), 0..60),
            cuts in vec(1usize..700, 1..80),
        ) {
            let frames = frames.iter().map(|&(kind, flags, stream, length)| frame(kind, flags, stream, length));
            let bytes: Vec<u8> = frames.flatten().collect();
            let mut whole = HeadLimit::default();
            prop_assert!(whole.read(&bytes));
            let mut cut = HeadLimit::default();
            let mut rest = &bytes[..];
            for length in cuts.iter().cycle() {
                let (piece, behind) = rest.split_at((*length).min(rest.len()));
                prop_assert!(cut.read(piece));
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(&whole.headers, &cut.headers);
            prop_assert_eq!((&whole.head, whole.rest), (&cut.head, cut.rest));
        }

        #[test]
        fn any_bytes_can_be_read(bytes in vec(any::<u8>(), 0..2_000)) {
            HeadLimit::default().read(&bytes);
        }
    }
}

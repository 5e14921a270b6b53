//! An event with the body of a whole response, which is written as its client takes it.

use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};

use super::body::OwnBody;

/// The body of a response as one event, piece by piece.
pub(super) struct AnswerEvent {
    /// `None` once the end of the event was written.
    body: Option<OwnBody>,
    data: EventData,
    has_begun: bool,
    /// The number of the event. `None` for an event of the type `error`.
    number: Option<u64>,
}

impl AnswerEvent {
    /// Returns the event with this number, or an event of the type `error` without one.
    pub(super) fn new(body: OwnBody, number: Option<u64>) -> Self {
        Self {
            body: Some(body),
            data: EventData::default(),
            has_begun: false,
            number,
        }
    }

    /// Returns the next piece of the event, or `None` after its end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        let body = self.body.as_mut()?;
        let mut event = BytesMut::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            if self.number.is_none() {
                event.extend_from_slice(ERROR);
            }
            event.extend_from_slice(DATA);
        }
        match poll_fn(|cx| body.poll_data(cx)).await {
            Some(Ok(piece)) => self.data.put(&mut event, &piece),
            // Without the end, the client drops the event.
            Some(Err(error)) => {
                tracing::warn!(%error, "a stored response can't be read to its end");
                self.body = None;
                return None;
            }
            None => {
                self.body = None;
                event.put_u8(b'\n');
                if let Some(number) = self.number {
                    event.extend_from_slice(format!("id: {number}\n").as_bytes());
                }
                event.put_u8(b'\n');
            }
        }
        Some(event.freeze())
    }
}

/// Returns a whole event of the type `error` with this data.
pub(super) fn error_event(data: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(data.len() + 32);
    event.extend_from_slice(ERROR);
    event.extend_from_slice(DATA);
    EventData::default().put(&mut event, data);
    event.extend_from_slice(b"\n\n");
    event.freeze()
}

const ERROR: &[u8] = b"event: error\n";
const DATA: &[u8] = b"data: ";

/// A writer of the data of an event, one `data` field for each line. Clients join the lines again.
#[derive(Default)]
struct EventData {
    /// `true` after a line break that is written once more data comes. The last one is left out.
    is_line_over: bool,
}

impl EventData {
    /// Writes more data behind the first `data: `.
    fn put(&mut self, event: &mut BytesMut, data: &[u8]) {
        for &byte in data {
            if byte == b'\r' {
                continue; // a carriage return would end the line
            }
            if std::mem::replace(&mut self.is_line_over, byte == b'\n') {
                event.put_u8(b'\n');
                event.extend_from_slice(DATA);
            }
            if byte != b'\n' {
                event.put_u8(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(pieces: &[&[u8]]) -> String {
        let (mut event, mut data) = (BytesMut::from(DATA), EventData::default());
        pieces.iter().for_each(|piece| data.put(&mut event, piece));
        String::from_utf8(event.to_vec()).unwrap()
    }

    #[test]
    fn each_line_is_a_field_and_the_last_break_is_left_out() {
        assert_eq!(whole(&[]), "data: ");
        assert_eq!(whole(&[b"a\n"]), "data: a");
        assert_eq!(whole(&[b"a\r\nb"]), "data: a\ndata: b");
        assert_eq!(whole(&[b"a\n\n"]), "data: a\ndata: ");
        assert_eq!(error_event(b"a\nb"), "event: error\ndata: a\ndata: b\n\n");
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_event_as_the_whole(text in "[a\r\n]{0,20}", at in 0..20_usize) {
            let (first, second) = text.split_at(at.min(text.len()));
            prop_assert_eq!(whole(&[first.as_bytes(), second.as_bytes()]), whole(&[text.as_bytes()]));
        }
    }

    #[tokio::test]
    async fn an_answer_is_one_event_with_its_number() {
        let mut answer = AnswerEvent::new(OwnBody::from(Bytes::from("{\n}\n")), Some(1));
        let mut event = Vec::new();
        while let Some(piece) = answer.next().await {
            event.extend_from_slice(&piece);
        }
        assert_eq!(event, b"data: {\ndata: }\nid: 1\n\n");
    }
}

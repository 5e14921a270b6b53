//! An endpoint of HTTP/2 that sends and reads exactly the frames that the test says.

#![allow(dead_code, reason = "each test program uses a part of it")]

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn ends_stream(&self) -> bool {
        [DATA, HEADERS].contains(&self.kind) && self.flags & END_STREAM != 0
    }

    /// The error code of a reset.
    pub(crate) fn code(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }
}

/// An interim response with the status 103.
pub(crate) fn early_hints(stream: u32) -> Vec<u8> {
    let status = b"\x08\x03103"; // by the name in HPACK's static table
    let mut frame = vec![0, 0, 5, HEADERS, END_HEADERS];
    frame.extend(stream.to_be_bytes());
    frame.extend(status);
    frame
}

/// A connection, from its preface on.
pub(crate) struct Frames<S = TcpStream>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Reads the client's preface, and sends settings without any limit.
    pub(crate) async fn begin(socket: S) -> Self {
        let mut frames = Self::preface(socket).await;
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames
    }

    /// Reads the client's preface, and sends no settings yet.
    pub(crate) async fn preface(mut socket: S) -> Self {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self(socket)
    }

    /// Sends the settings, with a limit of one stream at a time.
    pub(crate) async fn limit_to_one(&mut self) {
        const MAX_CONCURRENT_STREAMS: u8 = 3;
        let one = [0, MAX_CONCURRENT_STREAMS, 0, 0, 0, 1];
        self.send(SETTINGS, 0, 0, &one).await;
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// The next frame of a stream or the next `GOAWAY`, or `None` when the client has closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
                PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload).await,
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => {
                    return Some(Frame {
                        kind,
                        flags,
                        stream,
                        payload,
                    });
                }
            }
        }
    }

    /// The stream of the next whole request, and its body.
    pub(crate) async fn request(&mut self) -> (u32, String) {
        let mut body = Vec::new();
        loop {
            let frame = self.next().await.expect("a request");
            match frame.kind {
                HEADERS => {}
                DATA => body.extend(&frame.payload),
                _ => panic!("no request: {frame:?}"),
            }
            if frame.ends_stream() {
                return (frame.stream, String::from_utf8(body).unwrap());
            }
        }
    }

    /// The head of a 200.
    pub(crate) async fn head(&mut self, stream: u32) {
        const STATUS_200: u8 = 0x88; // in HPACK's static table
        self.send(HEADERS, END_HEADERS, stream, &[STATUS_200]).await;
    }

    pub(crate) async fn data(&mut self, stream: u32, text: &str) {
        self.send(DATA, 0, stream, text.as_bytes()).await;
    }

    /// The last frame of an answer.
    pub(crate) async fn last_data(&mut self, stream: u32, text: &str) {
        self.send(DATA, END_STREAM, stream, text.as_bytes()).await;
    }

    pub(crate) async fn end(&mut self, stream: u32) {
        self.send(DATA, END_STREAM, stream, &[]).await;
    }

    /// Sends a whole answer.
    pub(crate) async fn answer(&mut self, stream: u32, text: &str) {
        self.head(stream).await;
        self.data(stream, text).await;
        self.end(stream).await;
    }

    /// Lets the client send so many more bytes.
    pub(crate) async fn window(&mut self, stream: u32, bytes: u32) {
        for stream in [0, stream] {
            let more = bytes.to_be_bytes();
            self.send(WINDOW_UPDATE, 0, stream, &more).await;
        }
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32) {
        self.go_away_because(last, NO_ERROR).await;
    }

    pub(crate) async fn go_away_because(&mut self, last: u32, code: u32) {
        let payload = [last, code].map(u32::to_be_bytes).concat();
        self.send(GOAWAY, 0, 0, &payload).await;
    }
}

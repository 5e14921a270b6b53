//! The memory of a request's body over HTTP/2 before anything reads it.
//!
//! The client of a stream may send a window of its body at once, and the connection keeps it until the body is read. Over
//! HTTP/1 the operating system keeps it.

use http_body::Body;
use hyper::body::Incoming;
use tower_triage::openai::{BodyMemory, MemoryShare};

/// The number of bytes of a body that may be here before anything asks for them. Most prompts are sent in one round trip.
pub(super) const STREAM_WINDOW: u32 = 128 << 10;

/// The window of a stream in the memory of all bodies.
///
/// The window counts while the body is not being read. While its reader waits for the next piece, nothing is here, so a client
/// that sends slowly uses no memory.
#[derive(Debug)]
pub(super) struct UnreadWindow {
    memory: BodyMemory,
    /// The bytes that may be here, or `None` while there are none.
    held: Option<MemoryShare>,
}

impl UnreadWindow {
    /// Creates the window of a body that is about to be read, which does not count.
    pub(super) fn new(memory: &BodyMemory) -> Self {
        Self {
            memory: memory.clone(),
            held: None,
        }
    }

    /// Counts the window of a body that will not be read before its request has waited. Returns `false` if the memory has no room
    /// for it.
    pub(super) fn try_hold(&mut self, body: &Incoming) -> bool {
        self.held = self.memory.try_hold(window(body));
        self.held.is_some()
    }

    /// Records that the reader waits for the next piece of the body.
    pub(super) fn on_awaited(&mut self) {
        self.held = None;
    }

    /// Records that the reader took a piece of the body, and may not ask for the next one before its request has waited.
    pub(super) fn on_piece(&mut self, body: &Incoming) {
        if self.held.is_none() {
            self.held = Some(self.memory.hold(window(body)));
        }
    }
}

/// Returns the number of bytes of a body that may be here unread.
fn window(body: &Incoming) -> usize {
    let rest = body.size_hint().upper().unwrap_or(u64::MAX);
    rest.min(u64::from(STREAM_WINDOW)) as usize
}

//! Answers that the gateway makes itself, which count against the memory of `[server] own_answer_memory_bytes`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tower_triage::rejection::Rejection;

use crate::answer_memory::{AnswerMemory, AnswerShare};
use crate::pages;

/// The largest answer that does not count, in bytes: health checks and errors are never refused.
const SMALL: usize = 4 << 10;
/// The bytes that an answer reserves if it is read in pieces: a piece of a stored answer, or of a file.
const PIECE: usize = 128 << 10;
/// The bytes that a stream of events reserves.
const EVENTS: usize = 16 << 10;

/// The part of an answer that is in memory at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InMemory {
    /// All of it.
    Whole,
    /// A piece, because the rest is read as the client takes it.
    Piece,
}

impl InMemory {
    /// Returns the bytes that an answer reserves, or `None` if it does not count.
    fn of(self, answer: &Response<Body>) -> Option<usize> {
        let length = answer.body().size_hint().exact();
        let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        match (length, self) {
            (Some(length), _) if length <= SMALL => None,
            (Some(length), Self::Whole) => Some(length),
            (Some(length), Self::Piece) => Some(length.min(PIECE)),
            (None, _) => Some(EVENTS),
        }
    }
}

/// Counts an answer of the gateway to a request at `path`, or refuses it while too many are in memory.
pub(crate) fn counted(
    memory: &AnswerMemory,
    path: &str,
    answer: Response<Body>,
    in_memory: InMemory,
) -> Response<Body> {
    let Some(reserved) = in_memory.of(&answer) else {
        return answer;
    };
    match memory.reserve(reserved) {
        Some(share) => with_share(answer, share),
        None => full(path),
    }
}

/// Counts an answer of the gateway that is given even if the memory is full. It is then sent piece by piece.
pub(crate) fn given(memory: &AnswerMemory, answer: Response<Body>) -> Response<Body> {
    let Some(reserved) = InMemory::Piece.of(&answer) else {
        return answer;
    };
    let share = memory.reserve(reserved);
    with_share(answer, share.unwrap_or_else(|| memory.share()))
}

fn with_share(answer: Response<Body>, share: AnswerShare) -> Response<Body> {
    answer.map(|body| Body::new(CountedBody { body, share }))
}

fn full(path: &str) -> Response<Body> {
    let message = "the gateway holds too much of its own answers that clients have yet to read: read the answer later";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let rejection = Rejection::new(status, "own_answer_memory_full", message);
    pages::in_shape_of(path, rejection.with_retry_after(Duration::from_secs(1)))
}

/// The body of an answer that counts.
struct CountedBody {
    body: Body,
    share: AnswerShare,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        ready!(self.share.poll_room(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let count = |piece| self.share.count(piece);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(count))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Response<Body> {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    #[test]
    fn a_full_memory_refuses_large_answers_and_no_small_ones() {
        let memory = AnswerMemory::new(PIECE + 10_000);
        let of = |bytes, part| counted(&memory, "/", answer(bytes), part);
        let held = [of(10_000, InMemory::Whole), of(1 << 20, InMemory::Piece)];
        assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
        let refused = of(SMALL + 1, InMemory::Whole);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(of(SMALL, InMemory::Whole).status(), StatusCode::OK);
        drop(held);
        assert_eq!(of(SMALL + 1, InMemory::Whole).status(), StatusCode::OK);
    }
}

//! Streams of the events of a response that is still in progress, beginning at any event.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use super::answer;
use super::answer_event::{AnswerEvent, error_event};
use super::body::OwnBody;
use super::shared::{CancelOnDrop, Front};
use crate::{Chunks, RequestId, RequestStatus, rejections};
use tower_triage::rejection::Rejection;

/// The events of one response, each of which carries its number as `id`.
pub(super) struct Events {
    front: Arc<Front>,
    id: RequestId,
    /// The number of the last event that the caller has received.
    after: u64,
    /// Events that were read to find out whether the response is a stream, and that the body begins with.
    first: Option<Bytes>,
    /// The whole answer as the last event, once all other events are on their way.
    answer: Option<AnswerEvent>,
    /// `true` once the last event is on its way, so the stream ends after it.
    is_done: bool,
    /// A guard that cancels the request if the body is dropped before its end.
    guard: Option<CancelOnDrop>,
}

impl Events {
    /// Returns the events that follow the one with this number.
    pub(super) fn after(front: Arc<Front>, id: RequestId, after: u64) -> Self {
        Self {
            front,
            id,
            after,
            first: None,
            answer: None,
            is_done: false,
            guard: None,
        }
    }

    /// Returns all events for the caller that sent the request. The guard cancels the request if that caller
    /// disconnects.
    pub(super) fn of_answer(front: Arc<Front>, id: RequestId, guard: Option<CancelOnDrop>) -> Self {
        Self {
            guard,
            ..Self::after(front, id, 0)
        }
    }

    /// Waits for the first event and returns the stream, or returns the whole response if it is not a stream. Returns
    /// `None` if the front shuts down before that.
    pub(super) async fn answer(mut self) -> Result<Option<Response<OwnBody>>, Rejection> {
        let shutdown = self.front.shutdown.clone();
        let Some(chunks) = shutdown.run_until_cancelled(self.chunks()).await else {
            self.defuse();
            return Ok(None);
        };
        let chunks = chunks.ok_or_else(rejections::not_found)?;
        if chunks.is_end {
            self.defuse();
            let found = self.front.ended(self.id).await;
            let found = found.ok_or_else(rejections::not_found)?;
            return answer::of_ended(&self.front, found).await.map(Some);
        }
        self.first = Some(self.write(&chunks));
        Ok(Some(self.stream()))
    }

    /// Returns the stream as a response of the type `text/event-stream`.
    pub(super) fn stream(self) -> Response<OwnBody> {
        let mut response = Response::new(OwnBody::Events(EventBody::new(self)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    /// Returns the next part of the stream together with the remaining events, or `None` at the end.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        if let Some(answer) = &mut self.answer {
            match answer.next().await {
                Some(part) => return Some((part, self)),
                None => self.answer = None,
            }
        }
        let shutdown = self.front.shutdown.clone();
        while !self.is_done {
            let chunks = tokio::time::timeout(KEEP_ALIVE, self.chunks());
            let Some(chunks) = shutdown.run_until_cancelled(chunks).await else {
                break; // a client reconnects with the number of its last event
            };
            let Ok(chunks) = chunks else {
                // Clients ignore this comment, while it keeps proxies from closing an idle connection.
                return Some((Bytes::from_static(b": waiting\n\n"), self));
            };
            let part = match chunks {
                Some(chunks) => {
                    let mut part = BytesMut::from(&self.write(&chunks)[..]);
                    if chunks.is_end {
                        self.is_done = true;
                        part.extend_from_slice(&self.end().await);
                    }
                    part.freeze()
                }
                None => {
                    self.is_done = true;
                    error_event(&rejections::not_found().into_response().into_body())
                }
            };
            if !part.is_empty() {
                return Some((part, self));
            }
            if self.answer.is_some() {
                return Box::pin(self.next()).await;
            }
        }
        self.defuse();
        None
    }

    /// Waits for events that follow the last one that the caller has.
    async fn chunks(&mut self) -> Option<Chunks> {
        let front = &self.front;
        let chunks = || front.store.chunks(self.id, self.after);
        front.health.until_done(chunks).await
    }

    fn write(&mut self, chunks: &Chunks) -> Bytes {
        let mut events = BytesMut::new();
        if chunks.has_gap {
            events.extend_from_slice(&error_event(GAP));
        }
        for chunk in &chunks.chunks {
            events.extend_from_slice(&chunk.data);
            self.put_id(&mut events, chunk.number);
        }
        events.freeze()
    }

    /// Ends an event with its number. The `id` comes last, because clients use the last `id` of an event.
    fn put_id(&mut self, events: &mut BytesMut, number: u64) {
        self.after = number;
        events.extend_from_slice(format!("id: {number}\n\n").as_bytes());
    }

    /// Returns the end of the stream: the whole answer if the response had no events, or an `error` event if the request
    /// has failed. An event with the body of a response follows piece by piece.
    async fn end(&mut self) -> Bytes {
        let Some(found) = self.front.ended(self.id).await else {
            return error_event(&rejections::not_found().into_response().into_body());
        };
        let is_success = found.info.status == RequestStatus::Succeeded;
        if is_success && self.after > 0 {
            return Bytes::new();
        }
        match answer::of_ended(&self.front, found).await {
            Ok(response) => {
                let number = is_success.then_some(1);
                self.after = number.unwrap_or(self.after);
                self.answer = Some(AnswerEvent::new(response.into_body(), number));
                Bytes::new()
            }
            Err(rejection) => error_event(&rejection.into_response().into_body()),
        }
    }

    fn defuse(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.defuse();
        }
    }
}

/// The time after which a silent stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const GAP: &[u8] = br#"{"error":{"message":"events before this one are gone","type":"server_error","param":null,"code":"stream_gap"}}"#;

type NextPart = Pin<Box<dyn Future<Output = Option<(Bytes, Events)>> + Send>>;

/// A response body that consists of events.
pub(super) struct EventBody {
    /// The future of the next part, or `None` after the end of the stream.
    next: Option<NextPart>,
}

impl EventBody {
    fn new(events: Events) -> Self {
        Self {
            next: Some(Box::pin(events.next())),
        }
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let part = ready!(next.as_mut().poll(cx));
        self.next = None;
        Poll::Ready(part.map(|(part, events)| {
            self.next = Some(Box::pin(events.next()));
            part
        }))
    }
}

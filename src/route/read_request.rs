//! The reading of a request's body, which ends early if the request cannot be served anyway. Of a form, only the beginning
//! is read.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body;
use pin_project_lite::pin_project;

use super::observer::observer;
use super::parsed_request::RequestHead;
use super::shared::RouterShared;
use crate::admit::RejectReason;
use crate::endpoints::{Endpoints, RouteError};
use crate::gate::{self, PermitExtension};
use crate::openai::{BodyKind, FormStart, ReadBody, ReadForm};
use crate::queue;

pin_project! {
    /// The body of a request, which is read because it says which model the request asks for.
    #[project = ReadRequestProj]
    pub(super) enum ReadRequest<B> {
        Small { #[pin] read: ReadBody<B> },
        Large { large: LargeBody<B> },
        Form { form: Box<ReadForm<B>> },
    }
}

/// A body that was read.
pub(super) enum ReadContent<B> {
    /// All of a body in JSON.
    Json(Bytes),
    /// The beginning of a form.
    Form(FormStart<B>),
}

/// A body that is large, or of unknown length. It is turned away before it is read if no request like it may wait. So is any
/// body of a type that servers may read in different ways.
pub(super) struct LargeBody<B> {
    /// The body, in a box that outlives the request if the rest of the body is drained. `None` after the end.
    read: Option<Pin<Box<ReadBody<B>>>>,
    /// `true` until the waiting room was asked.
    asks_room: bool,
    /// The reason for which the body is refused unread.
    refusal: Option<RouteError>,
}

/// The length in bytes from which on a body is large. Smaller ones are mostly there together with their head, and the
/// buffers of a connection hold as much.
const LARGE: usize = 64 << 10;

/// The outcome of reading a body.
type Read<T> = Result<T, RejectReason<RouteError>>;

impl<B: Body<Data = Bytes> + Send + 'static> ReadRequest<B> {
    pub(super) fn new(body: B, head: &mut Parts, shared: &RouterShared) -> Self {
        match BodyKind::of(&mut head.headers) {
            Ok(BodyKind::Json) => {}
            Ok(BodyKind::Form { boundary }) => {
                let (limit, memory) = (shared.options.body_limit, shared.body_memory.as_ref());
                let form = Box::new(ReadForm::new(body, &boundary, limit, memory));
                return Self::Form { form };
            }
            Err(refusal) => {
                let read = ReadBody::new(body, shared.options.body_limit);
                let large = LargeBody {
                    read: Some(Box::pin(read)),
                    asks_room: false,
                    refusal: Some(refusal),
                };
                return Self::Large { large };
            }
        }
        let is_large = body
            .size_hint()
            .exact()
            .is_none_or(|length| length > LARGE as u64);
        // A request with a slot in hand is as good as served, and the slots bound the number of such requests.
        let has_slot = shared.state.gate.expects_extensions()
            && head
                .extensions
                .get::<PermitExtension<Endpoints>>()
                .is_some();
        let mut read = ReadBody::new(body, shared.options.body_limit);
        if let Some(memory) = shared.body_memory.as_ref().filter(|_| !has_slot) {
            read = read.kept_in(memory);
        }
        if head.headers.contains_key(EXPECT) {
            read = read.announced();
        }
        if !is_large {
            let read = read.reading_on();
            return Self::Small { read };
        }
        let large = LargeBody {
            read: Some(Box::pin(read)),
            asks_room: !has_slot,
            refusal: None,
        };
        Self::Large { large }
    }
}

impl<B> ReadRequest<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// Reads the body. Resolves to an error if the body cannot be read, or if the request of `head` is turned away.
    #[inline]
    pub(super) fn poll_read<S>(
        self: Pin<&mut Self>,
        head: &mut Option<RequestHead<S>>,
        cx: &mut Context<'_>,
    ) -> Poll<Read<ReadContent<B>>> {
        let body = match self.project() {
            ReadRequestProj::Small { read } => {
                let read = read.poll(cx).map_ok(ReadContent::Json);
                read.map_err(RejectReason::Unservable)
            }
            ReadRequestProj::Large { large } => {
                large.poll_read(head.as_ref(), cx).map_ok(ReadContent::Json)
            }
            ReadRequestProj::Form { form } => {
                let read = form.poll_read(cx).map_ok(ReadContent::Form);
                read.map_err(RejectReason::Unservable)
            }
        };
        // If the body is not there at once, the time to read it counts as time since the arrival.
        if let (Poll::Pending, Some(head)) = (&body, head)
            && head.attempt.since.is_none()
        {
            let now = gate::now();
            head.attempt.since = Some(now);
            if let Some(observer) = observer(&head.head.extensions) {
                observer.on_reading(now);
            }
        }
        body
    }
}

impl<B> LargeBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    #[cold]
    #[inline(never)]
    fn poll_read<S>(
        &mut self,
        head: Option<&RequestHead<S>>,
        cx: &mut Context<'_>,
    ) -> Poll<Read<Bytes>> {
        if let Some(refusal) = self.refusal.take() {
            return Poll::Ready(self.refuse(RejectReason::Unservable(refusal)));
        }
        loop {
            let Some(read) = &mut self.read else {
                unreachable!("a body is read once");
            };
            // A body of unknown length turns out to be large while it is read.
            if self.asks_room && read.least_length() > LARGE && !read.is_too_large() {
                self.asks_room = false;
                if head.is_some_and(RequestHead::finds_room_full) {
                    return Poll::Ready(self.refuse(RejectReason::Full));
                }
            }
            match read.as_mut().poll(cx) {
                Poll::Pending
                    if self.asks_room && read.least_length() > LARGE && !read.is_too_large() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(full @ RouteError::BodyMemoryFull { .. })) => {
                    return Poll::Ready(self.refuse(RejectReason::Unservable(full)));
                }
                Poll::Ready(read) => return Poll::Ready(read.map_err(RejectReason::Unservable)),
            }
        }
    }

    /// Lets the rest of the body be drained behind the answer.
    fn refuse(&mut self, why: RejectReason<RouteError>) -> Read<Bytes> {
        if let Some(read) = self.read.take() {
            read.drain();
        }
        Err(why)
    }
}

impl<S> RequestHead<S> {
    /// Returns `true` if the request would be rejected because the waiting room is full. The model is not known yet, so
    /// that is certain only while every slot is busy.
    fn finds_room_full(&self) -> bool {
        if self.prepared.is_some() {
            return false; // a place may be reserved for the request
        }
        let state = &self.attempt.shared.state;
        let head = queue::RequestHead::of_parts(&self.head);
        let ticket = self.attempt.classify(&head, gate::now());
        if ticket.patient {
            return false; // it takes no place in the waiting room
        }
        let levels = &state.settings().config.room.levels;
        let level = || Some(levels.clamp(ticket.priority).0);
        !self.attempt.shared.endpoints().has_free_slot() && state.gate.fast_reject(level).is_some()
    }
}

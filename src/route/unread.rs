//! An answer that is kept unread keeps its connection, and its endpoint is busy with it beside the next request
//! that has the slot.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use super::retry::Failed;
use super::{Decision, Endpoints};
use crate::clock;
use crate::gate::Permit;

pin_project! {
    /// The answer of an endpoint that failed, while it is read so that the request can be tried again. It has its
    /// slot until then.
    ///
    /// Resolves to the answer without a body if that is too long, takes too long, or breaks off.
    pub(super) struct Unread<R, E> {
        #[pin]
        body: Option<R>,
        read: BytesMut,
        late: Option<Pin<Box<Sleep>>>,
        answer: Option<Failed<(), E>>,
        // Given back when the body is gone.
        permit: Option<Permit<Endpoints>>,
    }
}

/// Longer answers are not kept. What says why a request failed is short.
const LENGTH_LIMIT: usize = 64 << 10;

/// Slower answers are not kept: their request waits meanwhile.
const TIME_LIMIT: Duration = Duration::from_secs(1);

impl<R: Body<Data = Bytes>, E> Unread<R, E> {
    pub(super) fn new(answer: Failed<R, E>, permit: Permit<Endpoints>) -> Self {
        let mut body = None;
        let result = answer.result.map(|response| {
            response.map(|unread| {
                body = Some(unread);
            })
        });
        let failed = Failed {
            result,
            decision: answer.decision,
            waited: answer.waited,
            options: answer.options,
        };
        Self {
            body,
            read: BytesMut::new(),
            late: None,
            answer: Some(failed),
            permit: Some(permit),
        }
    }
}

impl<R, E> Unread<R, E> {
    /// Where it comes from.
    pub(super) fn decision(&self) -> Option<&Decision> {
        Some(&self.answer.as_ref()?.decision)
    }
}

impl<R: Body<Data = Bytes>, E> Future for Unread<R, E> {
    type Output = Failed<Option<Bytes>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let is_whole = match this.body.as_mut().as_pin_mut() {
            Some(body) => match read(body, this.read, cx) {
                Poll::Ready(is_whole) => is_whole,
                Poll::Pending => {
                    ready!(poll_late(this.late, cx));
                    false
                }
            },
            None => true,
        };
        this.body.set(None);
        *this.permit = None;
        let Some(answer) = this.answer.take() else {
            panic!("an answer is read once");
        };
        let body = is_whole.then(|| this.read.split().freeze());
        Poll::Ready(Failed {
            result: answer.result.map(|response| response.map(|()| body)),
            decision: answer.decision,
            waited: answer.waited,
            options: answer.options,
        })
    }
}

/// Reads on. Resolves to whether that was all.
fn read<R>(mut body: Pin<&mut R>, read: &mut BytesMut, cx: &mut Context<'_>) -> Poll<bool>
where
    R: Body<Data = Bytes>,
{
    while !body.is_end_stream() {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if read.len().saturating_add(announced) > LENGTH_LIMIT {
            return Poll::Ready(false);
        }
        match ready!(body.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if read.len() + data.len() > LENGTH_LIMIT {
                    return Poll::Ready(false);
                }
                read.extend_from_slice(&data);
            }
            Some(Err(_)) => return Poll::Ready(false),
            None => break,
        }
    }
    Poll::Ready(true)
}

/// Resolves when it has taken too long, which without Tokio's clock is at once.
fn poll_late(late: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    let late = match late {
        Some(late) => late,
        None => match clock::sleep_until(clock::now() + TIME_LIMIT) {
            Some(sleep) => late.insert(Box::pin(sleep)),
            None => return Poll::Ready(()),
        },
    };
    late.as_mut().poll(cx)
}

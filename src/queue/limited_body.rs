//! The body of a response whose slot has limits.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::gate::BodyPermit;
use crate::http::LimitedHold;

pin_project! {
    /// The body of a response whose slot comes back when the body ends, or when a limit is over.
    pub(super) struct LimitedBody<B> {
        // Declared before the slot, which must be free only after the work is gone. `None` after the end.
        #[pin]
        body: Option<B>,
        hold: Option<LimitedHold<BodyPermit>>,
    }
}

impl<B> LimitedBody<B> {
    pub(super) fn new(body: B, hold: LimitedHold<BodyPermit>) -> Self {
        Self {
            body: Some(body),
            hold: Some(hold),
        }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut this = self.project();
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let polled = body.as_mut().poll_frame(cx);
        let frame = match this.hold {
            Some(hold) => match ready!(hold.check(polled, cx)) {
                Ok(frame) => frame,
                Err(over) => {
                    this.body.set(None);
                    *this.hold = None;
                    return Poll::Ready(Some(Err(over.into())));
                }
            },
            None => ready!(polled),
        };
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            *this.hold = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

//! The response of a failed attempt, which is read before the next attempt begins. Unread, it would hold its connection and
//! keep the endpoint busy.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::clock;
use crate::endpoints::Endpoints;
use crate::gate::Permit;
use crate::http::read_short;

pin_project! {
    /// The body of a failed attempt's response, while it is read. The attempt keeps its slot until then.
    ///
    /// Resolves to `None` if the body is too long, takes too long, or breaks off.
    pub(super) struct ReadFailed<R> {
        #[pin]
        body: Option<R>,
        read: BytesMut,
        // The timer of `TIME_LIMIT`. `None` without Tokio's clock.
        #[pin]
        late: Option<Sleep>,
        // The slot's permit, which is released once the body is dropped.
        permit: Option<Permit<Endpoints>>,
    }
}

/// The longest time for reading a failed body. A slower body is given up, because the request waits meanwhile.
const TIME_LIMIT: Duration = Duration::from_secs(1);

impl<R> ReadFailed<R> {
    /// Creates the reader of a failed attempt. `body` is `None` if the attempt ended without a response.
    pub(super) fn new(body: Option<R>, permit: Permit<Endpoints>) -> Self {
        Self {
            body,
            read: BytesMut::new(),
            late: clock::sleep_until(clock::now() + TIME_LIMIT),
            permit: Some(permit),
        }
    }
}

impl<R: Body<Data = Bytes>> Future for ReadFailed<R> {
    type Output = Option<Bytes>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut this = self.project();
        let is_whole = match this.body.as_mut().as_pin_mut() {
            Some(body) => match read_short(body, this.read, cx) {
                Poll::Ready(is_whole) => is_whole,
                Poll::Pending => {
                    if let Some(late) = this.late.as_pin_mut() {
                        ready!(late.poll(cx));
                    }
                    false
                }
            },
            None => true,
        };
        this.body.set(None); // before the slot is freed, because dropping the body ends the endpoint's work
        *this.permit = None;
        Poll::Ready(is_whole.then(|| this.read.split().freeze()))
    }
}

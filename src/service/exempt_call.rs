//! The call of a request that takes no slot.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    /// The call of a request that takes no slot: it waits until the inner service is ready, and calls it.
    #[project = ExemptCallProj]
    pub(super) enum ExemptCall<S, Req, F> {
        // `None` once the inner service has failed.
        WaitingForInner { call: Option<(S, Req)> },
        Calling {
            #[pin]
            future: F,
        },
    }
}

impl<S, Req, F> ExemptCall<S, Req, F> {
    pub(super) fn new(inner: S, request: Req) -> Self {
        let call = Some((inner, request));
        Self::WaitingForInner { call }
    }
}

impl<S: Service<Req>, Req> Future for ExemptCall<S, Req, S::Future> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                ExemptCallProj::Calling { future } => return future.poll(cx),
                ExemptCallProj::WaitingForInner { call } => {
                    let ready = match call {
                        Some((inner, _)) => ready!(inner.poll_ready(cx)),
                        None => Ok(()),
                    };
                    let (mut inner, request) = super::admission::take(call);
                    ready?;
                    inner.call(request)
                }
            };
            // ## WaitingForInner => Calling
            self.set(Self::Calling { future });
        }
    }
}

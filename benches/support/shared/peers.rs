//! Limits that hold their permit until the response body has ended, as `QueueLayer` does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use priority_semaphore::PrioritySemaphore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use tower::Service;

pin_project! {
    /// A body and the permit of its request.
    pub struct BodyWithPermit<B, G> {
        #[pin]
        body: B,
        permit: Option<G>,
    }
}

impl<B: Body<Data = Bytes>, G> Body for BodyWithPermit<B, G> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// The inner future and a permit, which moves to the response's body.
    pub struct CallWithPermit<F, G> {
        #[pin]
        call: F,
        permit: Option<G>,
    }
}

impl<F, B, E, G> Future for CallWithPermit<F, G>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<BodyWithPermit<B, G>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.call.poll(cx))?;
        let permit = this.permit.take();
        Poll::Ready(Ok(response.map(|body| BodyWithPermit { body, permit })))
    }
}

/// tower's `ConcurrencyLimit`, except that its permit is held until the body has ended.
pub struct LimitToBodyEnd<S> {
    inner: S,
    semaphore: PollSemaphore,
    permit: Option<OwnedSemaphorePermit>,
}

impl<S> LimitToBodyEnd<S> {
    /// Limits `inner` to `slots` requests at a time.
    pub fn new(inner: S, slots: usize) -> Self {
        Self {
            inner,
            semaphore: PollSemaphore::new(Arc::new(Semaphore::new(slots))),
            permit: None,
        }
    }
}

impl<S: Clone> Clone for LimitToBodyEnd<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            semaphore: self.semaphore.clone(),
            permit: None,
        }
    }
}

impl<S, Req, B> Service<Req> for LimitToBodyEnd<S>
where
    S: Service<Req, Response = Response<B>>,
{
    type Response = Response<BodyWithPermit<B, OwnedSemaphorePermit>>;
    type Error = S::Error;
    type Future = CallWithPermit<S::Future, OwnedSemaphorePermit>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.permit.is_none() {
            self.permit = ready!(self.semaphore.poll_acquire(cx));
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        CallWithPermit {
            permit: Some(self.permit.take().expect("poll_ready came first")),
            call: self.inner.call(request),
        }
    }
}

/// `priority-semaphore` in front of a service: the priority is that of the header `x-priority`, and the permit is held
/// until the body has ended.
#[derive(Clone)]
pub struct PrioritySemaphoreLimit<S> {
    inner: S,
    semaphore: Arc<PrioritySemaphore>,
}

impl<S> PrioritySemaphoreLimit<S> {
    /// Limits `inner` to `slots` requests at a time.
    pub fn new(inner: S, slots: usize) -> Self {
        Self {
            inner,
            semaphore: Arc::new(PrioritySemaphore::new(slots)),
        }
    }
}

pin_project! {
    /// A request that waits for its permit, then its call.
    #[project = PriorityCallProj]
    pub enum PriorityCall<S: Service<Request<B>>, B> {
        /// Waits for the permit.
        Waiting {
            #[pin]
            permit: priority_semaphore::AcquireFuture,
            inner: S,
            request: Option<Request<B>>,
        },
        /// Is being answered.
        Calling {
            #[pin]
            call: CallWithPermit<S::Future, priority_semaphore::Permit>,
        },
    }
}

impl<S, B, R> Future for PriorityCall<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<BodyWithPermit<R, priority_semaphore::Permit>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let call = match self.as_mut().project() {
                PriorityCallProj::Calling { call } => return call.poll(cx),
                PriorityCallProj::Waiting {
                    permit,
                    inner,
                    request,
                } => {
                    let permit = ready!(permit.poll(cx)).expect("the semaphore is open");
                    ready!(inner.poll_ready(cx))?;
                    let call = inner.call(request.take().expect("is called once"));
                    CallWithPermit {
                        call,
                        permit: Some(permit),
                    }
                }
            };
            self.set(PriorityCall::Calling { call });
        }
    }
}

impl<S, B, R> Service<Request<B>> for PrioritySemaphoreLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<BodyWithPermit<R, priority_semaphore::Permit>>;
    type Error = S::Error;
    type Future = PriorityCall<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let header = request.headers().get("x-priority");
        let is_high = header.is_some_and(|value| value == "high");
        PriorityCall::Waiting {
            permit: self.semaphore.acquire(i32::from(is_high)),
            inner: self.inner.clone(),
            request: Some(request),
        }
    }
}

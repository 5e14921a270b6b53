//! Response bodies that hold a permit.
//!
//! If the slot were freed with the head of the response, a streamed body would run outside the limit.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A response body that holds a permit, or another guard, until the body ends. The body of a rejection is of this
    /// type, too, but without a guard.
    ///
    /// The guard is dropped when the body reports its end, when the body fails or when it is dropped, whichever comes
    /// first. A body of known length reports its end with its last frame.
    ///
    /// This type is for handlers that acquire a permit of a [`Gate`](crate::Gate) themselves. A
    /// [`QueueLayer`](crate::QueueLayer) does this for all requests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, Full};
    /// use tower_triage::gate::PermitBody;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let permit = Arc::new(());
    /// let mut body = PermitBody::new(Full::new(Bytes::from("hi")), Some(permit.clone()));
    /// assert_eq!(Arc::strong_count(&permit), 2);
    ///
    /// body.frame().await;
    /// assert_eq!(Arc::strong_count(&permit), 1);
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct PermitBody<B, G> {
        // This field is declared before the guard and so dropped first, because the slot must be free only after the
        // work is gone.
        #[pin]
        content: Content<B>,
        guard: Option<G>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ContentProj]
    enum Content<B> {
        Inner { #[pin] body: B },
        // The bytes are boxed, so that this type is as small as `B`.
        Rejected { bytes: Box<Bytes> },
    }
}

impl<B: Body<Data = Bytes>, G> PermitBody<B, G> {
    /// Creates a body that holds `guard`, if there is one, until `body` ends. A body that has ended already drops the
    /// guard at once.
    #[inline]
    #[must_use]
    pub fn new(body: B, guard: Option<G>) -> Self {
        let guard = guard.filter(|_| !body.is_end_stream());
        Self::holding(body, guard)
    }
}

impl<B, G> PermitBody<B, G> {
    /// Creates a body from one that has not ended, with its guard or without one.
    #[inline]
    pub(crate) fn holding(body: B, guard: Option<G>) -> Self {
        let content = Content::Inner { body };
        Self { content, guard }
    }

    /// Creates the body of a rejection, which holds no guard.
    #[must_use]
    pub fn rejection(bytes: Bytes) -> Self {
        Self {
            content: Content::Rejected {
                bytes: Box::new(bytes),
            },
            guard: None,
        }
    }
}

/// Creates an empty body. Layers that answer in place of a service (timeouts, CORS) need such a body.
impl<B, G> Default for PermitBody<B, G> {
    fn default() -> Self {
        Self::rejection(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>, G> Body for PermitBody<B, G> {
    type Data = Bytes;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.content.project() {
            ContentProj::Inner { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                // The end is checked after each frame, because a body of known length is over with its last frame.
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *this.guard = None;
                }
                Poll::Ready(frame)
            }
            ContentProj::Rejected { bytes } if bytes.is_empty() => Poll::Ready(None),
            ContentProj::Rejected { bytes } => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut **bytes)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Rejected { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Rejected { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use http::HeaderMap;
    use http_body_util::{BodyExt, Empty, Full};

    use super::*;

    /// A guard that shows if its slot is taken.
    #[derive(Clone, Default)]
    struct Slot(Arc<()>);

    impl Slot {
        fn taken(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }

    /// A body of unknown length, which reports its end only when it is asked for one more frame.
    #[derive(Default)]
    struct Script(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Script {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn script<const N: usize>(
        frames: [Result<Frame<Bytes>, &'static str>; N],
    ) -> (Slot, PermitBody<Script, Slot>) {
        let slot = Slot::default();
        let body = PermitBody::new(Script(frames.into()), Some(slot.clone()));
        (slot, body)
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_holds_the_slot_until_none() {
        let (slot, mut body) = script([Ok(data("a")), Ok(data("b"))]);
        for _ in 0..2 {
            assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
            assert!(slot.taken());
        }
        assert!(body.frame().await.is_none());
        assert!(!slot.taken());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_sized_body_frees_the_slot_with_its_last_frame() {
        let slot = Slot::default();
        let mut body = PermitBody::new(Full::from("whole"), Some(slot.clone()));
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(slot.taken());
        assert!(body.frame().await.is_some());
        assert!(!slot.taken());
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn an_error_frees_the_slot() {
        let (slot, mut body) = script([Ok(data("a")), Err("reset")]);
        assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
        assert!(slot.taken());
        assert!(body.frame().await.is_some_and(|frame| frame.is_err()));
        assert!(!slot.taken());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn the_slot_is_held_until_after_the_trailers() {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        let (slot, body) = script([Ok(data("a")), Ok(Frame::trailers(trailers.clone()))]);
        let collected = body.collect().await.expect("no error in the script");
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "a");
        assert!(!slot.taken());
    }

    #[test]
    fn a_body_dropped_unread_frees_the_slot() {
        let (slot, body) = script([Ok(data("a"))]);
        assert!(slot.taken());
        drop(body);
        assert!(!slot.taken());
    }

    #[test]
    fn an_empty_body_never_holds_the_slot() {
        let slot = Slot::default();
        let body = PermitBody::new(Empty::new(), Some(slot.clone()));
        assert!(!slot.taken());
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
    }

    #[test]
    fn a_body_that_panics_when_dropped_frees_the_slot() {
        struct PanicOnDrop;
        impl Drop for PanicOnDrop {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        impl Body for PanicOnDrop {
            type Data = Bytes;
            type Error = &'static str;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
                Poll::Pending
            }
        }
        let slot = Slot::default();
        let body = PermitBody::new(PanicOnDrop, Some(slot.clone()));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(body))).is_err());
        assert!(!slot.taken());
    }

    #[tokio::test]
    async fn a_rejection_is_one_frame_of_known_length() {
        let mut body = PermitBody::<Script, Slot>::rejection(Bytes::from_static(b"busy"));
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(4));
        let frame = body.frame().await.and_then(Result::ok);
        assert_eq!(
            frame.and_then(|frame| frame.into_data().ok()),
            Some("busy".into())
        );
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
        assert!(PermitBody::<Script, Slot>::default().is_end_stream());
    }
}

//! The body of a request as the inner service gets it.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::client_wait::ClientWait;
use super::response_body::BoxError;
use crate::endpoints::EndpointRef;
use crate::gate::ClientStall;
use crate::openai::RestOfForm;

pin_project! {
    /// The body of a request as the inner service gets it: the whole body in memory if the demand is read from it, or else
    /// the caller's own body, which is streamed. Of a form, the beginning is in memory and the rest is streamed.
    ///
    /// A body that was read is passed on byte for byte, but for the model's name where another model serves the request, and for
    /// the parameters that its model or alias sets and removes. It fails if the caller's body does, and if a form names a second
    /// model in the part that is streamed.
    pub struct RouteBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<B> {
        // The parts still to be sent. Another model's name may be a part of its own.
        Buffered { parts: [Bytes; 3] },
        Streamed { #[pin] body: B, wait: ClientWait },
        // The beginning of a form, as parts that are still to be sent, and the rest.
        Form { parts: [Bytes; 3], form: Box<Form<B>> },
    }
}

/// The rest of a form whose beginning was read.
struct Form<B> {
    start: BufferedBody,
    rest: RestOfForm<B>,
    wait: ClientWait,
}

/// A body that was read as a whole, or the beginning of a form.
#[derive(Debug, Clone, Default)]
pub(super) struct BufferedBody {
    pub(super) bytes: Bytes,
    /// The range of the model's name within the bytes. In JSON it includes the quotes.
    pub(super) model_at: Option<Range<usize>>,
    /// `true` if the body is a form, in which the name is written without quotes.
    pub(super) is_form: bool,
}

impl BufferedBody {
    /// Returns a body whose model is not renamed.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Returns the body unchanged.
    pub(super) fn unchanged<B>(self) -> RouteBody<B> {
        let parts = [self.bytes, Bytes::new(), Bytes::new()];
        let inner = Inner::Buffered { parts };
        RouteBody { inner }
    }

    /// Returns the body with `model` in place of the model that it names. It stays unchanged if it names no model.
    pub(super) fn naming<B>(self, model: &str) -> RouteBody<B> {
        let parts = self.parts_naming(model);
        let inner = Inner::Buffered { parts };
        RouteBody { inner }
    }

    fn parts_naming(self, model: &str) -> [Bytes; 3] {
        let Self {
            bytes, model_at, ..
        } = self;
        let Some(model_at) = model_at else {
            return [bytes, Bytes::new(), Bytes::new()];
        };
        let name = match self.is_form {
            true => model.to_owned(),
            false => serde_json::Value::from(model).to_string(), // quoted and escaped
        };
        let (before, after) = (bytes.slice(..model_at.start), bytes.slice(model_at.end..));
        [before, name.into(), after]
    }

    /// Returns a form of which this is the beginning.
    pub(super) fn followed_by<B>(self, rest: RestOfForm<B>) -> RouteBody<B> {
        let parts = [self.bytes.clone(), Bytes::new(), Bytes::new()];
        let form = Form {
            start: self,
            rest,
            wait: ClientWait::default(),
        };
        let form = Box::new(form);
        RouteBody {
            inner: Inner::Form { parts, form },
        }
    }
}

impl<B> RouteBody<B> {
    pub(super) fn streamed(body: B) -> Self {
        let wait = ClientWait::default();
        let inner = Inner::Streamed { body, wait };
        Self { inner }
    }

    /// Notes the endpoint that the body is sent to, and the stalls of its client, so that waits for the client are counted
    /// for both.
    #[inline]
    pub(super) fn set_endpoint(
        &mut self,
        endpoint: &EndpointRef,
        stall: Option<&Arc<ClientStall>>,
    ) {
        let at = || ClientWait::at(endpoint, stall.cloned());
        match &mut self.inner {
            Inner::Buffered { .. } => {}
            Inner::Streamed { wait, .. } => *wait = at(),
            Inner::Form { form, .. } => form.wait = at(),
        }
    }

    /// Puts `model` in place of the model that a form names. Other bodies that are streamed stay unchanged.
    pub(super) fn rename_in_form(&mut self, model: &str) {
        if let Inner::Form { parts, form } = &mut self.inner {
            *parts = form.start.clone().parts_naming(model);
        }
    }
}

impl<B> Body for RouteBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().inner.project() {
            InnerProj::Buffered { parts } => Poll::Ready(next_part(parts).map(Ok)),
            InnerProj::Streamed { body, wait } => poll_streamed(body, wait, cx),
            InnerProj::Form { parts, form } => match next_part(parts) {
                Some(part) => Poll::Ready(Some(Ok(part))),
                None => {
                    let Form { rest, wait, .. } = &mut **form;
                    poll_streamed(Pin::new(rest), wait, cx)
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Buffered { parts } => parts.iter().all(Bytes::is_empty),
            Inner::Streamed { body, .. } => body.is_end_stream(),
            Inner::Form { parts, form } => {
                parts.iter().all(Bytes::is_empty) && form.rest.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Buffered { parts } => SizeHint::with_exact(length(parts)),
            Inner::Streamed { body, .. } => body.size_hint(),
            Inner::Form { parts, form } => {
                let (start, rest) = (length(parts), form.rest.size_hint());
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(start));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(start));
                }
                hint
            }
        }
    }
}

/// Takes the next part, if one is still to be sent.
fn next_part(parts: &mut [Bytes; 3]) -> Option<Frame<Bytes>> {
    let next = parts.iter_mut().find(|part| !part.is_empty());
    next.map(|part| Frame::data(std::mem::take(part)))
}

fn length(parts: &[Bytes; 3]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Polls a body that comes from the client, and marks the waits for it.
fn poll_streamed<B>(
    body: Pin<&mut B>,
    wait: &mut ClientWait,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let frame = body.poll_frame(cx).map_err(Into::into);
    match &frame {
        Poll::Ready(Some(Ok(frame))) => wait.on_sent(frame.data_ref().map_or(0, Bytes::len)),
        Poll::Ready(_) => wait.set(false),
        Poll::Pending => wait.set(true),
    }
    frame
}

impl<B> fmt::Debug for RouteBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Empty};

    use super::*;

    fn buffered(text: &'static str, name: &str) -> BufferedBody {
        let start = text.find(name).unwrap();
        BufferedBody {
            bytes: Bytes::from_static(text.as_bytes()),
            model_at: Some(start..start + name.len()),
            is_form: false,
        }
    }

    fn read(body: RouteBody<Empty<Bytes>>) -> Bytes {
        let length = body.size_hint().exact().unwrap();
        let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        assert_eq!(bytes.len() as u64, length);
        bytes
    }

    #[test]
    fn only_the_name_is_replaced() {
        let body = buffered(
            "{\"n\":1.50, \"model\" : \"a\\u0062\" ,\"x\":\"ab\"}",
            "\"a\\u0062\"",
        );
        assert_eq!(read(body.clone().unchanged()), body.bytes);
        assert_eq!(
            read(body.naming("c\"d")),
            "{\"n\":1.50, \"model\" : \"c\\\"d\" ,\"x\":\"ab\"}"
        );
    }

    #[test]
    fn a_name_in_a_form_has_no_quotes() {
        let mut body = buffered("model\r\n\r\nwhisper\r\n--b", "whisper");
        body.is_form = true;
        assert_eq!(read(body.naming("a\"b")), "model\r\n\r\na\"b\r\n--b");
    }

    #[test]
    fn an_empty_body_is_at_its_end() {
        let body: RouteBody<Empty<Bytes>> = BufferedBody::default().unchanged();
        assert!(body.is_end_stream());
        assert!(RouteBody::streamed(Empty::<Bytes>::new()).is_end_stream());
    }
}

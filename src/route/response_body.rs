//! An answer is over when its last byte is, and whether it went well is known only then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::metrics::RequestOutcome;
use super::request_metrics::Tally;
use crate::endpoints::latency::CoarseInstant;
use crate::gate;

pin_project! {
    /// The body of an endpoint's answer, while it is measured how long it takes and whether it breaks off.
    #[derive(Debug)]
    pub struct RouteResponseBody<B> {
        #[pin]
        body: B,
        measure: Option<Measure>,
    }
}

#[derive(Debug)]
struct Measure {
    tally: Tally,
    called: Option<Instant>,
    outcome: RequestOutcome,
}

impl<B: Body> RouteResponseBody<B> {
    /// `tally` has what the request comes to if this body is read to its end.
    pub(super) fn new(body: B, mut tally: Tally, called: Option<Instant>) -> Self {
        let outcome = std::mem::replace(&mut tally.outcome, RequestOutcome::Cancelled);
        let mut measure = Some(Measure {
            tally,
            called,
            outcome,
        });
        if body.is_end_stream() {
            measure.take().into_iter().for_each(Measure::end);
        }
        Self { body, measure }
    }
}

impl Measure {
    fn end(mut self) {
        let decision = self.tally.decision.as_ref();
        if let (Some(called), Some(decision), RequestOutcome::Answered(status)) =
            (self.called, decision, self.outcome)
            && !status.is_server_error()
        {
            let now = gate::now();
            let took = now.saturating_duration_since(called);
            let state = decision.endpoint.state();
            state.latency.total.add(took, CoarseInstant::at(now));
            state.ejection.ended();
        }
        self.tally.outcome = self.outcome;
    }

    /// A piece of the answer has come.
    fn heard(&self) {
        if let Some(decision) = &self.tally.decision {
            decision.endpoint.state().activity.record();
        }
    }

    fn break_off(mut self) {
        self.tally.outcome = RequestOutcome::Reset;
        if let Some(decision) = &self.tally.decision
            && !self.tally.has_failed
        {
            self.tally.desk.broke_off(&decision.endpoint);
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RouteResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let (Some(Ok(_)), Some(measure)) = (&frame, &this.measure) {
            measure.heard();
        }
        match &frame {
            Some(Ok(_)) if !this.body.is_end_stream() => {}
            Some(Ok(_)) | None => this.measure.take().into_iter().for_each(Measure::end),
            Some(Err(_)) => this.measure.take().into_iter().for_each(Measure::break_off),
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

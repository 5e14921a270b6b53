//! The body of an answer whose slot may be recalled while nobody reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::BodyError;
use super::answer_body::AnswerBody;
use crate::gate::ClientStall;
use crate::on_cancel::OnCancel;

/// The body of an answer, which ends inside the recall of its slot. A client that has stopped reading does not poll its body, so
/// the endpoint would work on the answer meanwhile, beside the request that has the slot by then.
pub(super) struct RecallableBody {
    /// `None` once the slot was recalled.
    answer: Arc<Mutex<Option<Box<AnswerBody>>>>,
    /// `None` if the slot was recalled before the answer came.
    _on_recall: Option<OnCancel>,
}

impl RecallableBody {
    pub(super) fn new(answer: Box<AnswerBody>, stall: &ClientStall) -> Self {
        let answer = Arc::new(Mutex::new(Some(answer)));
        let weak = Arc::downgrade(&answer);
        let end = move || {
            let answer = weak.upgrade();
            let ended = answer.and_then(|answer| lock(&answer).take());
            drop(ended); // outside the lock, because it closes the connection
        };
        let on_recall = OnCancel::new(stall.recalled().clone(), end);
        if on_recall.is_none() {
            drop(lock(&answer).take());
        }
        Self {
            answer,
            _on_recall: on_recall,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *lock(&self.answer) {
            Some(answer) => answer.poll_frame(cx),
            None => Poll::Ready(Some(Err(BodyError::recalled()))),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        lock(&self.answer)
            .as_ref()
            .is_some_and(|it| it.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        lock(&self.answer)
            .as_ref()
            .map_or_else(SizeHint::default, |it| it.size_hint())
    }
}

fn lock<T>(answer: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a waker may poison the lock. The answer is whole even so.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}

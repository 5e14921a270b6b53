//! What drives the batches: one task for each inner service.
//!
//! Without it, one of the callers would have to drive the batch of all, and take it along when it goes away.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout_at;
use tower_service::Service;

use super::BatchError;
use super::answers::Answers;
use super::due::Due;
use super::member::{Members, Reply};

/// When a batch is full, and when it goes though it is not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) max_count: usize,
    pub(super) max_delay: Duration,
    pub(super) budget: u64,
}

/// The error with which an inner service has failed for good, if it has.
pub(super) type Fate<E> = Arc<OnceLock<Arc<E>>>;

pub(super) struct Worker<S, Req, M>
where
    S: Service<Vec<Req>>,
    M: Answers<S::Response>,
{
    inner: S,
    pub(super) waiting: Waiting<Req, M::Answer, S::Error, M::ItemError>,
    pub(super) fate: Fate<S::Error>,
    terms: Terms,
}

/// Those who wait. If the worker goes, nobody will ever take them: they learn that they are lost.
pub(super) struct Waiting<Req, A, E, I>(pub(super) Members<Req, A, E, I>);

impl<S, Req, M> Worker<S, Req, M>
where
    S: Service<Vec<Req>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + Sync + 'static,
    M: Answers<S::Response> + 'static,
    M::Answer: Send + 'static,
    M::ItemError: Send + 'static,
    Req: Send + 'static,
{
    pub(super) fn new(
        inner: S,
        queue: Members<Req, M::Answer, S::Error, M::ItemError>,
        terms: Terms,
    ) -> Self {
        Self {
            inner,
            waiting: Waiting(queue),
            fate: Fate::default(),
            terms,
        }
    }

    /// Sends batches until nobody waits and nobody will ever come.
    pub(super) async fn run(mut self) {
        while self.waiting.0.occupied().await {
            match self.is_next().await {
                Ok(true) => self.send(),
                Ok(false) => {}
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Waits until a batch is due and the inner service is ready. `false` if nobody waits any more.
    async fn is_next(&mut self) -> Result<bool, S::Error> {
        while self.waiting.is_due(&self.terms).await {
            poll_fn(|cx| self.inner.poll_ready(cx)).await?;
            // Those who made the batch due may have left meanwhile.
            if let Due::Now = self.waiting.0.due(&self.terms) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send(&mut self) {
        let Terms {
            max_count, budget, ..
        } = self.terms;
        let batch = self.waiting.0.take_batch(max_count, budget);
        if batch.is_empty() {
            return;
        }
        let members = batch
            .into_iter()
            .map(|member| (member.request, member.reply));
        let (requests, replies): (Vec<_>, Vec<_>) = members.unzip();
        // If it panics, the batch is lost, and only that.
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(requests)));
        if let Ok(answers) = called {
            tokio::spawn(answer::<_, _, _, M>(answers, replies));
        }
    }

    /// The inner service will never be ready again.
    fn fail(self, error: S::Error) {
        let error = Arc::new(error);
        let _ = self.fate.set(Arc::clone(&error));
        let queue = &self.waiting.0;
        queue.drain();
        for member in queue.clear() {
            // A caller that has gone needs no answer.
            let _ = member
                .reply
                .send(Err(BatchError::Inner(Arc::clone(&error))));
        }
    }
}

impl<Req, A, E, I> Waiting<Req, A, E, I> {
    /// Waits until a batch is due. `false` if nobody waits any more.
    async fn is_due(&self, terms: &Terms) -> bool {
        let Self(queue) = self;
        loop {
            let filled = poll_fn(|cx| queue.poll_filled(cx, terms));
            match queue.due(terms) {
                Due::Now => return true,
                Due::NotYet(Some(end)) => {
                    let _ = timeout_at(end.into(), filled).await;
                }
                Due::NotYet(None) => filled.await,
                Due::Nobody => return false,
            }
        }
    }
}

impl<Req, A, E, I> Drop for Waiting<Req, A, E, I> {
    fn drop(&mut self) {
        self.0.drain();
        drop(self.0.clear());
    }
}

/// Passes on what comes of a batch, as long as anybody waits for it.
async fn answer<F, R, E, M>(answers: F, mut replies: Vec<Reply<M::Answer, E, M::ItemError>>)
where
    F: Future<Output = Result<R, E>>,
    M: Answers<R>,
{
    let Some(result) = unless_everyone_left(answers, &mut replies).await else {
        return;
    };
    let requests = replies.len();
    let answers: Vec<_> = match result.map(M::split) {
        Ok(answers) if answers.len() == requests => answers
            .into_iter()
            .map(|answer| answer.map_err(BatchError::Item))
            .collect(),
        Ok(answers) => {
            let answers = answers.len();
            let wrong = || Err(BatchError::WrongCount { requests, answers });
            std::iter::repeat_with(wrong).take(requests).collect()
        }
        Err(error) => {
            let error = Arc::new(error);
            let failed = || Err(BatchError::Inner(Arc::clone(&error)));
            std::iter::repeat_with(failed).take(requests).collect()
        }
    };
    for (reply, answer) in replies.into_iter().zip(answers) {
        // A caller that has gone needs no answer.
        let _ = reply.send(answer);
    }
}

async fn unless_everyone_left<F: Future, A, E, I>(
    answers: F,
    replies: &mut [Reply<A, E, I>],
) -> Option<F::Output> {
    let mut answers = pin!(answers);
    let mut left = pin!(async {
        for reply in replies {
            reply.closed().await;
        }
    });
    poll_fn(|cx| match answers.as_mut().poll(cx) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => left.as_mut().poll(cx).map(|()| None),
    })
    .await
}

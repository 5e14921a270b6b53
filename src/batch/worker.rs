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
use super::due::{Due, Until};
use super::member::{Member, Members, Reply, discard};
use crate::gate::now;

/// When a batch is full, and when it goes though it is not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) max_count: usize,
    pub(super) max_delay: Duration,
    pub(super) budget: u64,
}

/// What is to be done next.
enum Next<E> {
    /// A batch is due, and the inner service is ready for it.
    Send,
    /// A batch is due, and the inner service panicked instead of being ready for it.
    Lose,
    /// No request waits.
    Nothing,
    Fail(E),
}

/// The inner service panicked in `poll_ready`.
struct Panicked;

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
        while self.waiting.0.wait_nonempty().await {
            match self.next().await {
                Next::Send => self.send(),
                Next::Lose => self.lose(),
                Next::Nothing => {}
                Next::Fail(error) => return self.fail(error),
            }
        }
    }

    /// Waits until a batch is due and the inner service is ready, or has failed.
    async fn next(&mut self) -> Next<S::Error> {
        while self.waiting.is_due(&self.terms).await {
            let ready = self.is_ready().await;
            if let Ok(Err(error)) = ready {
                return Next::Fail(error);
            }
            // Those who made the batch due may have left meanwhile.
            if let Due::Now = self.waiting.due(&self.terms) {
                return ready.map_or(Next::Lose, |_| Next::Send);
            }
        }
        Next::Nothing
    }

    /// Waits until the inner service is ready, or no request is left that needs it; or until it panics.
    async fn is_ready(&mut self) -> Result<Result<(), S::Error>, Panicked> {
        poll_fn(|cx| {
            let asked = catch_unwind(AssertUnwindSafe(|| self.inner.poll_ready(cx)));
            match asked {
                Ok(Poll::Ready(ready)) => Poll::Ready(Ok(ready)),
                Ok(Poll::Pending) => self
                    .waiting
                    .0
                    .poll_until(cx, Until::Deserted)
                    .map(|()| Ok(Ok(()))),
                Err(_) => Poll::Ready(Err(Panicked)),
            }
        })
        .await
    }

    /// The inner service panicked when it was asked for this batch. The next one is asked for anew.
    fn lose(&self) {
        for member in self.waiting.take_batch(&self.terms) {
            member.fail(BatchError::Lost);
        }
    }

    fn send(&mut self) {
        let batch = self.waiting.take_batch(&self.terms);
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
        self.waiting.fail(|| BatchError::Inner(Arc::clone(&error)));
    }
}

impl<Req, A, E, I> Waiting<Req, A, E, I> {
    /// Waits until a batch is due. `false` if nobody waits any more.
    async fn is_due(&self, terms: &Terms) -> bool {
        loop {
            let due = self.due(terms);
            let sooner = poll_fn(|cx| self.0.poll_until(cx, Until::Sooner(*terms, due)));
            match due {
                Due::Now => return true,
                Due::At(end) => {
                    let _ = timeout_at(end.into(), sooner).await;
                }
                Due::Filled => sooner.await,
                Due::Nobody => return false,
            }
        }
    }

    fn take_batch(&self, terms: &Terms) -> Vec<Member<Req, A, E, I>> {
        self.0.take_batch(terms.max_count, terms.budget)
    }

    /// When a batch is due, in so far as it is not yet.
    fn due(&self, terms: &Terms) -> Due {
        match self.0.due(terms) {
            Due::At(end) if end <= now() => Due::Now,
            due => due,
        }
    }

    /// Nobody is served any more.
    fn fail(&self, why: impl Fn() -> BatchError<E, I>) {
        self.0.drain();
        for member in self.0.clear() {
            member.fail(why());
        }
    }
}

impl<Req, A, E, I> Drop for Waiting<Req, A, E, I> {
    fn drop(&mut self) {
        self.fail(|| BatchError::Lost);
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
        if let Err(unwanted) = reply.send(answer) {
            discard(unwanted);
        }
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

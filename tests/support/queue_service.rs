//! Inner services that a test controls, and futures that are polled by hand.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};
use tower_triage::{Priority, Ticket};

/// A request of a plain service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) urgent: bool,
}

pub(crate) fn normal(name: &'static str) -> Job {
    let urgent = false;
    Job { name, urgent }
}

pub(crate) fn urgent(name: &'static str) -> Job {
    let urgent = true;
    Job { name, urgent }
}

/// The classifier of jobs.
pub(crate) fn triage(job: &Job, arrival: Instant) -> Ticket {
    Ticket::new(Priority(u8::from(!job.urgent)), arrival)
}

/// A service that records its calls, in order, and finishes them when the test says so.
#[derive(Debug, Clone)]
pub(crate) struct TestService(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    calls: Mutex<Vec<&'static str>>,
    running: AtomicUsize,
    peak: AtomicUsize,
    finish: Semaphore,
}

impl TestService {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            calls: Mutex::default(),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            finish: Semaphore::new(0),
        }))
    }

    /// Finishes `many` calls, now or when they are made.
    pub(crate) fn finish(&self, many: usize) {
        self.0.finish.add_permits(many);
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.0.calls.lock().unwrap().clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(SeqCst)
    }
}

impl Service<Job> for TestService {
    type Response = &'static str;
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<&'static str, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let shared = Arc::clone(&self.0);
        shared.calls.lock().unwrap().push(job.name);
        let running = shared.running.fetch_add(1, SeqCst) + 1;
        shared.peak.fetch_max(running, SeqCst);
        let leaving = Leaving(shared);
        Box::pin(async move {
            leaving.0.finish.acquire().await.unwrap().forget();
            Ok(job.name)
        })
    }
}

struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// A service that is ready when the test says so, for one call each time. All clones share their readiness, and only
/// the task that polled last is woken.
#[derive(Clone)]
pub(crate) struct Flaky(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    script: VecDeque<Answer>,
    waker: Option<Waker>,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
    calls: Vec<&'static str>,
    asked: usize,
}

/// What `poll_ready` returns next. Readiness lasts until a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    Ready,
    Error(&'static str),
    Panic,
}

impl Flaky {
    pub(crate) fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        let flaky = Self(Arc::default());
        flaky.0.lock().unwrap().script.extend(script);
        flaky
    }

    pub(crate) fn says(&self, answer: Answer) {
        let mut state = self.0.lock().unwrap();
        state.script.push_back(answer);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Runs `act` in the next `poll_ready`, before it returns.
    pub(crate) fn meanwhile(&self, act: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap().meanwhile = Some(Box::new(act));
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().calls.clone()
    }

    /// How often `poll_ready` was called.
    pub(crate) fn polls(&self) -> usize {
        self.0.lock().unwrap().asked
    }
}

impl Service<Job> for Flaky {
    type Response = &'static str;
    type Error = &'static str;
    type Future = std::future::Ready<Result<&'static str, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let meanwhile = self.0.lock().unwrap().meanwhile.take();
        if let Some(act) = meanwhile {
            act();
        }
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        match state.script.front().copied() {
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Answer::Ready) => Poll::Ready(Ok(())),
            Some(Answer::Error(error)) => {
                state.script.pop_front();
                Poll::Ready(Err(error))
            }
            Some(Answer::Panic) => {
                state.script.pop_front();
                drop(state);
                panic!("the inner service panics when it is asked");
            }
        }
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let mut state = self.0.lock().unwrap();
        let ready = state.script.pop_front();
        if ready != Some(Answer::Ready) {
            drop(state);
            panic!("called without being ready");
        }
        state.calls.push(job.name);
        std::future::ready(Ok(job.name))
    }
}

/// A future that is polled by hand, and counts how often it was woken.
pub(crate) struct ByHand<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl<F: Future> ByHand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.wakes.0.store(0, SeqCst);
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.wakes.0.load(SeqCst) > 0
    }

    /// Polls as an executor would: as long as it is woken.
    pub(crate) fn run(&mut self) -> Poll<F::Output> {
        while self.is_woken() {
            if let Poll::Ready(output) = self.poll() {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }
}

/// The task of a request that was sent.
pub(crate) type Sent<S> =
    tokio::task::JoinHandle<Result<<S as Service<Job>>::Response, <S as Service<Job>>::Error>>;

/// Sends a job through a fresh clone, which has arrived when this returns.
pub(crate) async fn send<S>(service: &S, job: Job) -> Sent<S>
where
    S: Service<Job> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    let sent = tokio::spawn(service.clone().oneshot(job));
    settle().await;
    sent
}

/// Lets every task run until all are idle.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

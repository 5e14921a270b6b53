//! A service of batches that records its calls, and that a test makes ready and lets respond.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_triage::admit::Tenant;
use tower_triage::batch::{Batch, BatchError, BatchLayer};
use tower_triage::queue::ClassifyContext;
use tower_triage::{Priority, RejectReason, Ticket, WaitingRoomConfig};

/// A request, whose response is twice its number.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) number: u32,
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
}

pub(crate) fn job(number: u32) -> Job {
    Job {
        number,
        ticket: Ticket::new(Priority(1), Instant::now().into_std()),
        cost: 1,
    }
}

impl Job {
    pub(crate) fn urgent(mut self) -> Self {
        self.ticket.priority = Priority::HIGHEST;
        self
    }

    pub(crate) fn costs(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) fn of(mut self, tenant: &'static str) -> Self {
        self.ticket.tenant = Tenant::from(tenant);
        self
    }

    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.ticket = self.ticket.timeout(timeout);
        self
    }
}

pub(crate) type Triage = fn(&Job, &ClassifyContext<'_>) -> Ticket;
pub(crate) type Error = BatchError<&'static str>;
pub(crate) type Service = Batch<Job, u32, &'static str, Infallible, Triage>;
pub(crate) type Answer = Result<u32, Error>;

pub(crate) fn layer(max_count: usize, max_delay: Duration) -> BatchLayer<Job, Triage> {
    let triage: Triage = |job, _| job.ticket.clone();
    BatchLayer::new(max_count, max_delay).classify(triage)
}

pub(crate) fn service(engine: &Engine, max_count: usize, max_delay: Duration) -> Service {
    layer(max_count, max_delay).layer(engine.service())
}

pub(crate) fn config(max_size: usize) -> WaitingRoomConfig {
    let mut config = WaitingRoomConfig::default();
    config.max_size = max_size;
    config.max_wait = None;
    config
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    Busy,
    Broken,
    Panics,
    /// Panics once, and is ready from then on.
    PanicsOnce,
}

/// A handle of the service.
#[derive(Clone)]
pub(crate) struct Engine {
    state: Arc<Mutex<State>>,
    begin: Instant,
}

struct State {
    readiness: Readiness,
    /// The waker of the last `poll_ready`.
    waker: Option<Waker>,
    /// Whether batches run until they are finished by a test.
    manual: bool,
    /// The batches, and after how many ms each was sent.
    calls: Vec<(u64, Vec<u32>)>,
    running: VecDeque<(Vec<u32>, oneshot::Sender<Finish>)>,
    service: Weak<()>,
}

type Finish = Result<Vec<u32>, &'static str>;

impl Engine {
    /// Responds at once.
    pub(crate) fn new() -> Self {
        let state = State {
            readiness: Readiness::Ready,
            waker: None,
            manual: false,
            calls: Vec::new(),
            running: VecDeque::new(),
            service: Weak::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            begin: Instant::now(),
        }
    }

    /// Responds when a test calls [`finish`](Self::finish).
    pub(crate) fn manual() -> Self {
        let engine = Self::new();
        engine.state().manual = true;
        engine
    }

    pub(crate) fn service(&self) -> EngineService {
        let alive = Arc::new(());
        self.state().service = Arc::downgrade(&alive);
        EngineService {
            engine: self.clone(),
            _alive: alive,
        }
    }

    pub(crate) fn set(&self, readiness: Readiness) {
        let mut state = self.state();
        state.readiness = readiness;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The batches that were sent, and after how many ms.
    pub(crate) fn calls(&self) -> Vec<(u64, Vec<u32>)> {
        self.state().calls.clone()
    }

    pub(crate) fn batches(&self) -> Vec<Vec<u32>> {
        self.calls().into_iter().map(|(_, batch)| batch).collect()
    }

    /// The number of running batches, without those that were dropped.
    pub(crate) fn running(&self) -> usize {
        let state = self.state();
        let running = state.running.iter();
        running.filter(|(_, finish)| !finish.is_closed()).count()
    }

    /// Finishes the batch that has run for the longest.
    pub(crate) fn finish(&self) {
        self.finish_with(|batch| Ok(batch.iter().map(|n| 2 * n).collect()));
    }

    pub(crate) fn finish_with(&self, answer: impl FnOnce(&[u32]) -> Finish) {
        let (batch, finish) = self.state().running.pop_front().expect("a batch runs");
        let _ = finish.send(answer(&batch));
    }

    /// Whether the service has not been dropped.
    pub(crate) fn is_alive(&self) -> bool {
        self.state().service.strong_count() > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Not `Clone`, because the layer must not need that.
pub(crate) struct EngineService {
    engine: Engine,
    _alive: Arc<()>,
}

/// A request with a number.
pub(crate) trait Numbered {
    fn number(self) -> u32;
}

impl Numbered for Job {
    fn number(self) -> u32 {
        self.number
    }
}

impl<T: Numbered> tower::Service<Vec<T>> for EngineService {
    type Response = Vec<u32>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Finish> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let mut state = self.engine.state();
        match state.readiness {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Busy => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Readiness::Broken => Poll::Ready(Err("broken")),
            Readiness::Panics => panic!("the engine panics in poll_ready"),
            Readiness::PanicsOnce => {
                state.readiness = Readiness::Ready;
                panic!("the engine panics once in poll_ready");
            }
        }
    }

    fn call(&mut self, batch: Vec<T>) -> Self::Future {
        let batch: Vec<_> = batch.into_iter().map(T::number).collect();
        let mut state = self.engine.state();
        assert_eq!(
            state.readiness,
            Readiness::Ready,
            "called though it was not ready"
        );
        let since = self.engine.begin.elapsed().as_millis();
        state.calls.push((since as u64, batch.clone()));
        if !state.manual {
            return Box::pin(async move { Ok(batch.iter().map(|n| 2 * n).collect()) });
        }
        let (finish, finished) = oneshot::channel();
        state.running.push_back((batch, finish));
        Box::pin(async move { finished.await.expect("finished, not forgotten") })
    }
}

/// Lets all tasks run until they wait.
pub(crate) async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// Sends a request from a task of its own.
pub(crate) async fn send(service: &Service, job: Job) -> JoinHandle<Answer> {
    let sent = tokio::spawn(service.clone().oneshot(job));
    settle().await;
    sent
}

pub(crate) async fn answer(sent: JoinHandle<Answer>) -> u32 {
    let a_month = Duration::from_secs(30 * 24 * 3600);
    let done = tokio::time::timeout(a_month, sent).await;
    let done = done.expect("a caller waits for ever");
    done.expect("no panic").expect("an answer")
}

/// The reason of its rejection.
pub(crate) async fn why(sent: JoinHandle<Answer>) -> RejectReason<tower_triage::batch::TooLarge> {
    match sent.await.expect("no panic") {
        Err(BatchError::Rejected(why)) => why,
        other => panic!("not rejected: {other:?}"),
    }
}

pub(crate) async fn is_done<T>(sent: &JoinHandle<T>) -> bool {
    settle().await;
    sent.is_finished()
}

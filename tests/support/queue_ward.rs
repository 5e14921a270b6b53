//! Inner services whose moods a test decides, and a hand that polls one future at a time.

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
pub(crate) struct Patient {
    pub(crate) name: &'static str,
    pub(crate) urgent: bool,
}

pub(crate) fn normal(name: &'static str) -> Patient {
    let urgent = false;
    Patient { name, urgent }
}

pub(crate) fn urgent(name: &'static str) -> Patient {
    let urgent = true;
    Patient { name, urgent }
}

/// The classifier of patients.
pub(crate) fn triage(patient: &Patient, arrival: Instant) -> Ticket {
    Ticket::new(Priority(u8::from(!patient.urgent)), arrival)
}

/// A service that notes who came, in order, and finishes one of them whenever it is told to.
#[derive(Debug, Clone)]
pub(crate) struct Ward(Arc<Beds>);

#[derive(Debug)]
struct Beds {
    came: Mutex<Vec<&'static str>>,
    running: AtomicUsize,
    peak: AtomicUsize,
    finish: Semaphore,
}

impl Ward {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Beds {
            came: Mutex::default(),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            finish: Semaphore::new(0),
        }))
    }

    /// Finishes as many as that, now or when they come.
    pub(crate) fn finish(&self, many: usize) {
        self.0.finish.add_permits(many);
    }

    pub(crate) fn came(&self) -> Vec<&'static str> {
        self.0.came.lock().unwrap().clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(SeqCst)
    }
}

impl Service<Patient> for Ward {
    type Response = &'static str;
    type Error = &'static str;
    type Future = BoxFuture<'static, Result<&'static str, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, patient: Patient) -> Self::Future {
        let beds = Arc::clone(&self.0);
        beds.came.lock().unwrap().push(patient.name);
        let running = beds.running.fetch_add(1, SeqCst) + 1;
        beds.peak.fetch_max(running, SeqCst);
        let leaving = Leaving(beds);
        Box::pin(async move {
            leaving.0.finish.acquire().await.unwrap().forget();
            Ok(patient.name)
        })
    }
}

struct Leaving(Arc<Beds>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// A service that is ready when it is told to be, for one call each time. All clones are ready or not
/// together, and only the one that asked last is woken.
#[derive(Clone)]
pub(crate) struct Moody(Arc<Mutex<Mood>>);

#[derive(Default)]
struct Mood {
    script: VecDeque<Answer>,
    waker: Option<Waker>,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
    came: Vec<&'static str>,
    asked: usize,
}

/// What `poll_ready` says next. Readiness lasts until a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    Ready,
    Error(&'static str),
    Panic,
}

impl Moody {
    pub(crate) fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        let moody = Self(Arc::default());
        moody.0.lock().unwrap().script.extend(script);
        moody
    }

    pub(crate) fn says(&self, answer: Answer) {
        let mut mood = self.0.lock().unwrap();
        mood.script.push_back(answer);
        let waker = mood.waker.take();
        drop(mood);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Does this while it is asked the next time, before it answers.
    pub(crate) fn meanwhile(&self, act: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap().meanwhile = Some(Box::new(act));
    }

    pub(crate) fn came(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().came.clone()
    }

    /// How often it was asked whether it is ready.
    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }
}

impl Service<Patient> for Moody {
    type Response = &'static str;
    type Error = &'static str;
    type Future = std::future::Ready<Result<&'static str, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let meanwhile = self.0.lock().unwrap().meanwhile.take();
        if let Some(act) = meanwhile {
            act();
        }
        let mut mood = self.0.lock().unwrap();
        mood.asked += 1;
        match mood.script.front().copied() {
            None => {
                mood.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Answer::Ready) => Poll::Ready(Ok(())),
            Some(Answer::Error(error)) => {
                mood.script.pop_front();
                Poll::Ready(Err(error))
            }
            Some(Answer::Panic) => {
                mood.script.pop_front();
                drop(mood);
                panic!("the inner service panics when it is asked");
            }
        }
    }

    fn call(&mut self, patient: Patient) -> Self::Future {
        let mut mood = self.0.lock().unwrap();
        let ready = mood.script.pop_front();
        if ready != Some(Answer::Ready) {
            drop(mood);
            panic!("called without being ready");
        }
        mood.came.push(patient.name);
        std::future::ready(Ok(patient.name))
    }
}

/// A future that is polled by hand, and knows how often it was woken.
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

/// A request on its way, in a task of its own.
pub(crate) type Sent<S> = tokio::task::JoinHandle<
    Result<<S as Service<Patient>>::Response, <S as Service<Patient>>::Error>,
>;

/// Sends a patient through a fresh clone, which has arrived when this returns.
pub(crate) async fn send<S>(service: &S, patient: Patient) -> Sent<S>
where
    S: Service<Patient> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    let sent = tokio::spawn(service.clone().oneshot(patient));
    settle().await;
    sent
}

/// Lets every task run until it can't.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

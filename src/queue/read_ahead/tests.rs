//! Tests of the bodies, without sockets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::body::ReadAheadBody;
use super::*;
use crate::QueueLayer;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Data(usize),
    Trailers,
    Error,
    /// A piece that comes later.
    Wait,
}

/// A body of these steps. It ends behind trailers and errors.
struct Script {
    steps: VecDeque<Step>,
    knows_length: bool,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>, knows_length: bool) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            knows_length,
        }
    }

    fn length(&self) -> u64 {
        let lengths = self.steps.iter().map(|step| match step {
            Step::Data(length) => *length as u64,
            _ => 0,
        });
        lengths.sum()
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(Step::Data(length)) => Some(Ok(Frame::data(vec![7; length].into()))),
            Some(Step::Trailers) => {
                self.steps.clear();
                let value = HeaderValue::from_static("0");
                Some(Ok(Frame::trailers(HeaderMap::from_iter([(
                    http::HeaderName::from_static("x-sum"),
                    value,
                )]))))
            }
            Some(Step::Error) => {
                self.steps.clear();
                Some(Err("broken"))
            }
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.knows_length {
            true => SizeHint::with_exact(self.length()),
            false => SizeHint::new(),
        }
    }
}

fn limits(memory: &BodyMemory, max_body: usize) -> Limits {
    Limits {
        memory: memory.clone(),
        max_body,
    }
}

fn ahead<B>(body: &mut ReadAheadBody<B>, limits: &Limits) -> Poll<()>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut blocked = None;
    body.poll_ahead(
        limits,
        &mut blocked,
        &mut Context::from_waker(Waker::noop()),
    )
}

/// Reads a body to its end: its data, its trailers and its error.
fn rest<B>(body: &mut ReadAheadBody<B>) -> (usize, Option<HeaderMap>, Option<B::Error>)
where
    B: Body<Data = Bytes> + Unpin,
{
    let (mut length, mut trailers) = (0, None);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Pending => {}
            Poll::Ready(None) => return (length, trailers, None),
            Poll::Ready(Some(Err(error))) => return (length, trailers, Some(error)),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => length += data.len(),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_usize).prop_map(Step::Data),
        2 => Just(Step::Wait),
        1 => Just(Step::Trailers),
        1 => Just(Step::Error),
    ]
}

proptest! {
    #[test]
    fn a_body_is_the_same_however_far_it_was_read_ahead(
        steps in prop::collection::vec(step(), 0..8),
        knows_length: bool,
        polls in 0..6_usize,
        max_body in 0..200_usize,
        room in 0..200_usize,
    ) {
        let script = || {
            let end = steps.iter().position(|step| matches!(step, Step::Trailers | Step::Error));
            let steps = &steps[..end.map_or(steps.len(), |end| end + 1)];
            Script::new(steps.to_vec(), knows_length)
        };
        let memory = BodyMemory::new(room);
        let limits = limits(&memory, max_body);
        let expected = rest(&mut ReadAheadBody::new(script()));
        let hint = script().size_hint();
        let mut body = ReadAheadBody::new(script());
        for _ in 0..polls {
            _ = ahead(&mut body, &limits);
        }
        prop_assert!(memory.used() <= max_body + 40 && memory.used() <= room + 40);
        // The length that is told does not change.
        if let Some(length) = hint.exact() {
            prop_assert_eq!(body.size_hint().exact(), Some(length));
        }
        if body.is_end_stream() {
            prop_assert_eq!(&expected, &(0, None, None));
        }
        prop_assert_eq!(rest(&mut body), expected);
        prop_assert_eq!(memory.used(), 0);
        prop_assert_eq!(rest(&mut body), (0, None, None));
    }
}

#[test]
fn a_body_that_is_dropped_gives_its_memory_back() {
    let memory = BodyMemory::new(100);
    let mut body = ReadAheadBody::new(Script::new([Step::Data(60), Step::Wait], false));
    assert!(ahead(&mut body, &limits(&memory, 100)).is_pending());
    assert_eq!(memory.used(), 60);
    drop(body);
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn a_body_is_read_once_the_memory_is_given_back() {
    let memory = BodyMemory::new(100);
    let limits = limits(&memory, 100);
    let mut first = ReadAheadBody::new(Full::from(vec![7; 80]));
    assert!(ahead(&mut first, &limits).is_ready());
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limits = limits.clone();
            tokio::spawn(async move {
                let mut body = ReadAheadBody::new(Full::from(vec![7; 30]));
                let mut blocked = None;
                poll_fn(|cx| body.poll_ahead(&limits, &mut blocked, cx)).await;
                body
            })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(memory.used(), 80);
    drop(first);
    for other in others {
        assert_eq!(rest(&mut other.await.unwrap()).0, 30);
    }
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn a_request_that_leaves_passes_the_memory_on() {
    let memory = BodyMemory::new(100);
    let limits = limits(&memory, 100);
    let mut first = ReadAheadBody::new(Full::from(vec![7; 80]));
    assert!(ahead(&mut first, &limits).is_ready());
    let (mut gone, mut blocked) = (ReadAheadBody::new(Full::from(vec![7; 30])), None);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(gone.poll_ahead(&limits, &mut blocked, &mut cx).is_pending());
    let next = tokio::spawn({
        let limits = limits.clone();
        async move {
            let mut body = ReadAheadBody::new(Full::from(vec![7; 30]));
            let mut blocked = None;
            poll_fn(|cx| body.poll_ahead(&limits, &mut blocked, cx)).await;
        }
    });
    tokio::task::yield_now().await;
    drop(first);
    drop(blocked);
    next.await.unwrap();
}

/// Sends a request with a body of this length to a layer whose only slot is taken.
fn waits(layer: &ReadAheadLayer<QueueLayer>, length: usize) -> JoinHandle<()> {
    let slot = layer.handle().gate().unwrap().try_acquire(&());
    let service = layer.layer(service_fn(|_: Request<ReadAheadBody<Full<Bytes>>>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    }));
    let mut request = Request::new(Full::from(vec![7; length]));
    *request.version_mut() = Version::HTTP_2;
    tokio::spawn(async move {
        let _slot = slot;
        _ = service.oneshot(request).await;
    })
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn memory_that_another_layer_gives_back_is_used() {
    let memory = BodyMemory::new(100);
    let layers = [(); 2].map(|()| QueueLayer::limit(1).read_ahead(memory.clone()));
    let first = waits(&layers[0], 80);
    settle().await;
    let _second = waits(&layers[1], 50);
    settle().await;
    assert_eq!(memory.used(), 80);
    first.abort();
    settle().await;
    assert_eq!(memory.used(), 50);
}

#[tokio::test]
async fn memory_that_a_server_gives_back_is_used() {
    let memory = BodyMemory::new(100);
    let window = memory.try_hold(80);
    let _waiting = waits(&QueueLayer::limit(1).read_ahead(memory.clone()), 50);
    settle().await;
    assert_eq!(memory.used(), 80);
    drop(window);
    settle().await;
    assert_eq!(memory.used(), 50);
}

/// Sends a request over a version of HTTP, while another one has the only slot. Returns the bytes that are read meanwhile.
async fn read_while_waiting(version: Version, expects: bool) -> usize {
    let memory = BodyMemory::new(100);
    let layer = QueueLayer::limit(1).read_ahead(memory.clone());
    let handle = layer.handle();
    let mut service = layer.layer(service_fn(
        |request: Request<ReadAheadBody<Full<Bytes>>>| async {
            let body = request.into_body().collect().await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::new(body.to_bytes())))
        },
    ));
    let slot = handle.gate().unwrap().try_acquire(&()).unwrap();
    let mut request = Request::new(Full::from("body"));
    *request.version_mut() = version;
    if expects {
        let value = HeaderValue::from_static("100-continue");
        request.headers_mut().insert("expect", value);
    }
    let mut waiting = service.ready().await.unwrap().call(request).boxed();
    assert!((&mut waiting).now_or_never().is_none());
    let used = memory.used();
    drop(slot);
    let body = waiting.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "body");
    assert_eq!(memory.used(), 0);
    used
}

#[tokio::test]
async fn only_bodies_that_hold_up_others_are_read_ahead() {
    assert_eq!(read_while_waiting(Version::HTTP_2, false).await, 4);
    assert_eq!(read_while_waiting(Version::HTTP_11, false).await, 0);
    assert_eq!(read_while_waiting(Version::HTTP_2, true).await, 0);
}

#[tokio::test]
async fn a_request_that_runs_is_not_read_ahead() {
    let memory = BodyMemory::new(100);
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let service = QueueLayer::limit(1)
        .read_ahead(memory.clone())
        .layer(service_fn(
            move |request: Request<ReadAheadBody<Full<Bytes>>>| {
                *keep.lock().unwrap() = Some(request.into_body());
                std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
            },
        ));
    let mut request = Request::new(Full::from("body"));
    *request.version_mut() = Version::HTTP_2;
    let mut running = service.oneshot(request).boxed();
    assert!((&mut running).now_or_never().is_none());
    assert_eq!(memory.used(), 0);
    let mut body = kept.lock().unwrap().take().unwrap();
    assert_eq!(rest(&mut body).0, 4);
}

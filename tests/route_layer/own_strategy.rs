//! Custom strategies that call a router or panic.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;
use std::{fmt, thread};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_triage::RouteHandle;
use tower_triage::endpoints::{Candidates, Choice, Strategy};
use tower_triage::route::{RoutingConfig, StrategyChoice};

use super::support::{Routed, TestRouter, endpoint, settle};

const GUARD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Own {
    handle: OnceLock<RouteHandle>,
    panics: AtomicBool,
    other: Mutex<Option<Other>>,
}

/// Another router, and a strategy that asks it.
struct Other(TestRouter);

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Other")
    }
}

impl Other {
    fn ask(&self) {
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        let mut answer = Box::pin(self.0.route.clone().oneshot(request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut cx).is_pending());
    }
}

impl Strategy for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        assert!(!self.panics.load(SeqCst), "a bug");
        if let Some(other) = &*self.other.lock().unwrap() {
            other.ask();
        }
        if let Some(handle) = self.handle.get() {
            let _ = handle.status();
        }
        candidates.free().last().map(Choice::new)
    }
}

fn router(own: &Arc<Own>) -> TestRouter {
    let routing = RoutingConfig::default().strategy(StrategyChoice::Custom(own.clone()));
    let endpoints = ["a", "b"].map(|name| endpoint(name, 1, &["m"]));
    TestRouter::new(endpoints, routing)
}

/// Reads the answer to its end, where its slot comes back.
fn read(asked: JoinHandle<Routed>) -> JoinHandle<Bytes> {
    tokio::spawn(async move {
        let body = asked.await.unwrap().into_body();
        body.collect().await.unwrap().to_bytes()
    })
}

/// Panics if `act` does not end, on a paused clock.
fn within_guard<F: Future<Output = ()>>(act: impl FnOnce() -> F + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(act());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(GUARD).expect("it hangs, or panicked");
}

#[test]
fn a_strategy_calling_its_router_does_not_deadlock() {
    asks_its_router(|| None);
}

#[test]
fn a_strategy_calling_two_routers_does_not_deadlock() {
    asks_its_router(|| Some(Other(router(&Arc::new(Own::default())))));
}

fn asks_its_router(other: fn() -> Option<Other>) {
    within_guard(move || async move {
        let own = Arc::new(Own::default());
        let mut router = router(&own);
        own.handle.set(router.handle.clone()).unwrap();
        *own.other.lock().unwrap() = other();
        let asked: Vec<_> = (0..4).map(|_| read(router.ask("m"))).collect();
        settle().await;
        assert_eq!(router.handle.status().depth, 2);
        for _ in 0..4 {
            router.call().await.ok();
        }
        for answer in asked {
            assert_eq!(answer.await.unwrap(), "ok");
        }
    });
}

#[test]
fn a_strategy_panic_on_release_harms_no_request() {
    within_guard(|| async {
        let own = Arc::new(Own::default());
        let mut router = router(&own);
        let asked: Vec<_> = (0..3).map(|_| read(router.ask("m"))).collect();
        settle().await;
        assert_eq!(router.handle.status().depth, 1);
        own.panics.store(true, SeqCst);
        router.call().await.ok();
        router.call().await.ok();
        settle().await;
        assert_eq!(router.handle.status().depth, 0, "the waiter has the slot");
        router.call().await.ok();
        for answer in asked {
            assert_eq!(answer.await.unwrap(), "ok");
        }
    });
}

/// A strategy that keeps the prefix of the last request.
#[derive(Debug)]
struct LastPrefix {
    reads_prefixes: bool,
    prefix: Mutex<Option<u64>>,
}

impl Strategy for LastPrefix {
    fn name(&self) -> &'static str {
        "last_prefix"
    }

    fn reads_prefixes(&self) -> bool {
        self.reads_prefixes
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        *self.prefix.lock().unwrap() = candidates.prefix();
        candidates.free().next().map(Choice::new)
    }
}

#[tokio::test]
async fn only_a_strategy_that_reads_prefixes_gets_them() {
    for reads_prefixes in [true, false] {
        let prefix = Mutex::default();
        let own = Arc::new(LastPrefix {
            reads_prefixes,
            prefix,
        });
        let choice = StrategyChoice::Custom(Arc::clone(&own) as _);
        let routing = RoutingConfig::default().strategy(choice);
        let mut router = TestRouter::new([endpoint("a", 1, &["m"])], routing);
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
        let answer = router.send(Request::post("/").body(Full::from(body)).unwrap());
        router.call().await.ok();
        answer.await.unwrap();
        assert_eq!(own.prefix.lock().unwrap().is_some(), reads_prefixes);
    }
}

//! A single attempt to run a request.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tower_service::Service;

use super::guard::LeaseGuard;
use super::response::{SERVICE_FAILED, read_response};
use super::retry::{MayPass, RetryPolicy};
use super::{Shared, Slot};
use crate::{Fetched, Lease, OnCrash, Outcome, decode_request, encode_response, headers};

/// Runs a request with its slot in a service that is ready, and stores the outcome, also if the future is dropped before
/// its first poll.
pub(super) fn run<S, B>(
    shared: Arc<Shared>,
    service: S,
    slot: Slot,
    fetched: Fetched,
) -> impl Future<Output = ()>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let guard = LeaseGuard::new(&shared, fetched.lease.clone());
    run_guarded(shared, service, slot, fetched, guard)
}

async fn run_guarded<S, B>(
    shared: Arc<Shared>,
    service: S,
    slot: Slot,
    fetched: Fetched,
    guard: LeaseGuard,
) where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let deadline = fetched.deadline();
    let lease = fetched.lease;
    let (events, new_events) = unbounded_channel();
    let mut appending = JoinSet::new(); // a `JoinSet` aborts its task when the attempt is dropped
    appending.spawn(append(Arc::clone(&shared), lease.clone(), new_events));
    let settings = &shared.settings;
    let outcome = match prepare(&lease, fetched.request, slot, settings.on_crash) {
        Some(request) => {
            let work = respond(service, request, settings.response_limit, events);
            supervise(&shared, &lease, work).await
        }
        None => Some(Ended::finally("invalid_request")),
    };
    let outcome = outcome.map(|ended| {
        let time_left = deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        ended.outcome(&lease, settings.retry, time_left)
    });
    // The call is dropped completely by now, so its slot is free before the outcome is stored.
    match outcome {
        Some(outcome) => {
            // The call has dropped the sender of the events, so this ends as soon as the last event is stored.
            while appending.join_next().await.is_some() {}
            guard.finish(outcome).await;
        }
        None => guard.leave(),
    }
}

/// Builds the request that the inner service gets. Returns `None` if the stored request can't be decoded.
fn prepare(
    lease: &Lease,
    stored: Bytes,
    slot: Slot,
    on_crash: OnCrash,
) -> Option<Request<Full<Bytes>>> {
    let request = decode_request(stored).map_err(|error| {
        tracing::error!(id = %lease.id(), %error, "a stored request can't be read");
    });
    let mut request = request.ok()?;
    let id = HeaderValue::from_str(&lease.id().to_string()).ok()?;
    request.headers_mut().insert(headers::REQUEST_ID, id);
    let attempt = HeaderValue::from(lease.attempt());
    request.headers_mut().insert(headers::ATTEMPT, attempt);
    request.extensions_mut().extend(slot.into_extensions());
    if on_crash == OnCrash::Fail {
        request
            .extensions_mut()
            .insert(tower_triage::route::AtMostOnce);
    }
    Some(request.map(Full::new))
}

/// The end of an attempt.
struct Ended {
    outcome: Outcome,
    /// The failure, if it may pass.
    may_pass: Option<MayPass>,
}

impl Ended {
    /// Returns the end of an attempt that another one would end with, too.
    fn finally(reason: &str) -> Self {
        Self {
            outcome: failed(reason),
            may_pass: None,
        }
    }

    /// Returns the outcome to store, which is another attempt if the policy allows one.
    fn outcome(self, lease: &Lease, policy: RetryPolicy, time_left: Option<Duration>) -> Outcome {
        let failure = self.may_pass.as_ref();
        let pause = failure.and_then(|it| policy.pause(lease.attempt(), it, time_left));
        let Some(after) = pause else {
            return self.outcome;
        };
        let (id, attempt) = (lease.id(), lease.attempt());
        tracing::info!(%id, attempt, "a stored request failed, and runs again in {after:?}");
        Outcome::Retry {
            after,
            counts: true,
        }
    }
}

/// Waits for the outcome of an attempt. Returns `None` if the store stopped the attempt, because the outcome is then
/// unwanted.
async fn supervise(
    shared: &Shared,
    lease: &Lease,
    work: impl Future<Output = Ended>,
) -> Option<Ended> {
    let (store, health) = (&shared.store, &shared.health);
    let mut work = pin!(catch_panic(lease, work));
    let mut called = pin!(health.until_done(|| store.called(lease)));
    // The work is polled first, and its first poll calls the service, so `called` is recorded only after the call.
    let noting = async {
        tokio::select! {
            biased;
            outcome = &mut work => outcome,
            () = &mut called => work.await,
        }
    };
    tokio::select! {
        biased; // an outcome that is ready takes precedence over a stop
        outcome = noting => Some(outcome),
        () = tokio::time::sleep(shared.settings.attempt_timeout) => Some(Ended::finally("attempt_timeout")),
        _ = health.until_done(|| store.stopped(lease)) => None,
    }
}

/// Calls the service and reads its response.
async fn respond<S, B>(
    mut service: S,
    request: Request<Full<Bytes>>,
    limit: usize,
    events: tokio::sync::mpsc::UnboundedSender<Bytes>,
) -> Ended
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let response = match service.call(request).await {
        Ok(response) => response,
        Err(error) => {
            let error: Box<dyn Error + Send + Sync> = error.into();
            tracing::warn!(error, "the service failed on a stored request");
            return Ended {
                outcome: failed(SERVICE_FAILED),
                may_pass: Some(MayPass::default()),
            };
        }
    };
    match read_response(response, limit, events).await {
        Ok(response) => Ended {
            may_pass: MayPass::of(response.status(), response.headers()),
            outcome: Outcome::Responded {
                status: response.status().as_u16(),
                response: encode_response(&response),
            },
        },
        Err(reason) => Ended {
            may_pass: (reason == SERVICE_FAILED).then(MayPass::default),
            ..Ended::finally(reason)
        },
    }
}

/// Turns a panic of the service into a failure of the request, so that the worker survives.
async fn catch_panic(lease: &Lease, work: impl Future<Output = Ended>) -> Ended {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let poll = || work.as_mut().poll(cx);
        // This is unwind safe, because a panic ends the work, which is then dropped without another poll.
        catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| {
            tracing::error!(id = %lease.id(), "the service panicked on a stored request");
            Poll::Ready(Ended::finally("worker_panicked"))
        })
    })
    .await
}

/// Stores the events of a response as they come.
async fn append(shared: Arc<Shared>, lease: Lease, mut events: UnboundedReceiver<Bytes>) {
    while let Some(event) = events.recv().await {
        if shared.store.streams().is_none() {
            continue; // the whole response is stored at its end
        }
        let append = || shared.store.append(&lease, event.clone());
        shared.health.until_done(append).await;
    }
}

fn failed(reason: &str) -> Outcome {
    Outcome::Failed {
        reason: reason.to_owned(),
    }
}

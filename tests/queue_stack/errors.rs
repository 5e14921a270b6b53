//! The errors of a queue, found by downcast behind a boxed one.

use super::*;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::pin;

/// The first error of this type, from `error` down.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref())
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_inner_service_is_the_source() {
    let failing = service_fn(|_: Job| async { Err::<(), _>(io::Error::other("disk on fire")) });
    let (queue, _) = queue(QueueConfig::new(1), failing);
    let error: BoxError = queue.oneshot(normal("n")).await.unwrap_err().into();
    let source = error.source().and_then(|source| source.downcast_ref());
    let source: &io::Error = source.expect("the inner error");
    assert_eq!(source.kind(), io::ErrorKind::Other);
    assert_eq!(error.to_string(), "disk on fire");
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_rejection_is_the_source() {
    let (queue, handle) = queue(
        QueueConfig::new(1),
        service_fn(|_: Job| async { Ok::<_, io::Error>(()) }),
    );
    handle.close();
    let error: BoxError = queue.oneshot(normal("n")).await.unwrap_err().into();
    assert_eq!(find(&*error), Some(&<RejectReason>::ShuttingDown));
    assert_eq!(error.to_string(), <RejectReason>::ShuttingDown.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_boxed_error_keeps_its_source_through_a_stack() {
    let slow = service_fn(|_: Job| std::future::pending::<Result<(), io::Error>>());
    let mut stack = ServiceBuilder::new()
        .buffer(8)
        .timeout(secs(60.0))
        .layer(layer(QueueConfig::new(1)))
        .map_err(BoxedError)
        .timeout(secs(1.0))
        .service(slow);
    let error = stack
        .ready()
        .await
        .unwrap()
        .call(normal("n"))
        .await
        .unwrap_err();
    assert!(
        find::<tower::timeout::error::Elapsed>(&*error).is_some(),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "request timed out");
}

#[tokio::test(start_paused = true)]
async fn an_error_frees_the_slot_though_its_future_is_kept() {
    async fn check<F>(future: F, handle: QueueHandle)
    where
        F: Future<Output: fmt::Debug>,
    {
        let mut future = pin!(future);
        let answer = future.as_mut().await;
        assert_eq!(format!("{answer:?}"), "Err(\"failed\")");
        assert_eq!(handle.status().running, 0);
    }
    let inner = || {
        service_fn(|_: Request<Full<Bytes>>| async { Err::<Response<Full<Bytes>>, _>("failed") })
    };
    let request = || Request::new(Full::default());
    let layer = QueueLayer::new(QueueConfig::new(1));
    check(layer.layer(inner()).call(request()), layer.handle()).await;
    let layer = QueueLayer::until_headers(QueueConfig::new(1));
    check(layer.layer(inner()).call(request()), layer.handle()).await;
    let layer = QueueLayer::new(QueueConfig::new(1)).status_stream();
    check(layer.layer(inner()).call(request()), layer.handle()).await;
}

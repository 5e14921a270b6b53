use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;
use tower_triage::BatchLayer;
use tower_triage::batch::BatchError;

type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

fn doubling(
    seen: Seen,
) -> impl Service<Vec<u32>, Response = Vec<u32>, Error = Infallible, Future: Send + 'static>
+ Send
+ 'static {
    service_fn(move |batch: Vec<u32>| {
        seen.lock().unwrap().push(batch.clone());
        async move { Ok(batch.into_iter().map(|n| 2 * n).collect()) }
    })
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_goes_at_once_and_everyone_gets_their_own_answer() {
    let seen = Seen::default();
    let layer = BatchLayer::new(3, Duration::from_secs(3600));
    let service = layer.layer(doubling(Arc::clone(&seen)));
    let answers = (1..=3).map(|n| tokio::spawn(service.clone().oneshot(n)));
    for (n, answer) in answers.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(answer.await.unwrap().unwrap(), 2 * (n as u32 + 1));
    }
    assert_eq!(*seen.lock().unwrap(), [[1, 2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_full_goes_when_its_oldest_member_has_waited() {
    let seen = Seen::default();
    let layer = BatchLayer::new(8, Duration::from_millis(5));
    let service = layer.layer(doubling(Arc::clone(&seen)));
    let begin = tokio::time::Instant::now();
    assert_eq!(service.clone().oneshot(21).await.unwrap(), 42);
    assert_eq!(begin.elapsed(), Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_fails_its_members() {
    let failing = service_fn(|_: Vec<u32>| async { Err::<Vec<u32>, _>("out of memory") });
    let service = BatchLayer::new(2, Duration::from_secs(1)).layer(failing);
    let both = [1, 2].map(|n| tokio::spawn(service.clone().oneshot(n)));
    for one in both {
        match one.await.unwrap() {
            Err(BatchError::Inner(error)) => assert_eq!(*error, "out of memory"),
            other => panic!("{other:?}"),
        }
    }
}

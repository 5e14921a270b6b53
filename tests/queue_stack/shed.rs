//! Layers whose requests never wait.

use std::convert::Infallible;

use tower_triage::admit::TenantLimits;

use super::*;

const SHED: Result<&str, QueueError<&str>> = Err(QueueError::Rejected(RejectReason::Shed));

#[tokio::test(start_paused = true)]
async fn a_plain_queue_sheds_with_an_error() {
    let inner = TestService::new();
    let (queue, handle) = queue(QueueConfig::shed(1), inner.clone());
    let running = send(&queue, normal("running")).await;
    let refused = send(&queue, urgent("refused")).await;
    assert_eq!(refused.await.unwrap(), SHED);
    inner.finish(1);
    assert_eq!(running.await.unwrap(), Ok("running"));
    assert_eq!(handle.status().stats.full, 1);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_shed_when_the_configuration_says_so() {
    let inner = TestService::new();
    let (queue, handle) = queue(QueueConfig::new(1), inner.clone());
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    handle.reconfigure(QueueConfig::shed(1)).unwrap();
    assert_eq!(waiting.await.unwrap(), SHED);
    let refused = send(&queue, normal("refused")).await;
    assert_eq!(refused.await.unwrap(), SHED);
    let stats = handle.status().stats;
    assert_eq!((stats.full, stats.rejected()), (2, 2));

    handle.reconfigure(QueueConfig::new(1)).unwrap();
    let waiting = send(&queue, normal("waits again")).await;
    inner.finish(2);
    assert_eq!(running.await.unwrap(), Ok("running"));
    assert_eq!(waiting.await.unwrap(), Ok("waits again"));
    assert_eq!(handle.status().stats.full, 2);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_is_shutting_down_rather_than_overloaded() {
    let (queue, handle) = queue(QueueConfig::shed(0), TestService::new());
    handle.close();
    let refused = send(&queue, normal("refused")).await;
    let expected = Err(QueueError::Rejected(RejectReason::ShuttingDown));
    assert_eq!(refused.await.unwrap(), expected);
    assert_eq!(handle.status().stats.full, 0);
}

#[tokio::test(start_paused = true)]
async fn a_patient_waiter_of_the_gate_is_served_before_the_layers_requests() {
    let inner = TestService::new();
    let (queue, handle) = queue(QueueConfig::shed(1), inner.clone());
    let running = send(&queue, normal("running")).await;
    let stored = Ticket::from(Priority(1)).patient();
    let patient = tokio::spawn(handle.gate().unwrap().acquire(stored, ()));
    settle().await;
    assert_eq!(handle.status().depth, 1);
    let refused = send(&queue, normal("refused")).await;
    assert_eq!(refused.await.unwrap(), SHED);
    inner.finish(1);
    assert_eq!(running.await.unwrap(), Ok("running"));
    let permit = patient.await.unwrap().unwrap();
    assert_eq!(handle.status().stats.full, 1);
    drop(permit);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn reserved_slots_are_kept_from_requests_that_are_shed() {
    let inner = TestService::new();
    let config = QueueConfig::shed(2).reserve("high", ReservedSlots::Slots(1));
    let (queue, handle) = queue(config, inner.clone());
    let _first = send(&queue, normal("first")).await;
    let refused = send(&queue, normal("refused")).await;
    assert_eq!(refused.await.unwrap(), SHED);
    let _urgent = send(&queue, urgent("urgent")).await;
    assert_eq!(inner.calls(), ["first", "urgent"]);
    assert_eq!(handle.status().stats.full, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_its_limit_is_rejected_for_that_while_slots_are_free() {
    let limits = TenantLimits::default().concurrency(1);
    for config in [QueueConfig::shed(2), QueueConfig::new(2).max_size(0)] {
        let of_tenant = |job: &Job, context: &ClassifyContext<'_>| {
            triage(job, context.arrival()).tenant("a".into())
        };
        let layer = QueueLayer::plain(config.tenant_limits("a", limits)).classify(of_tenant);
        let inner = TestService::new();
        let queue = layer.layer(inner.clone());
        let _running = send(&queue, normal("running")).await;
        let refused = send(&queue, normal("refused")).await;
        let expected = Err(QueueError::Rejected(RejectReason::TenantFull));
        assert_eq!(refused.await.unwrap(), expected);
        let stats = layer.handle().status().stats;
        assert_eq!((stats.tenant_full, stats.full), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn no_classifier_makes_a_request_wait() {
    let patient =
        |job: &Job, context: &ClassifyContext<'_>| triage(job, context.arrival()).patient();
    // With a reserved slot, requests are shed under the lock.
    let config = QueueConfig::shed(2).reserve("high", ReservedSlots::Slots(1));
    let queue = QueueLayer::plain(config).classify(patient);
    let queue = queue.layer(TestService::new());
    let _running = send(&queue, normal("running")).await;
    let refused = send(&queue, normal("refused")).await;
    assert!(is_done(&refused).await, "it waits");
    assert_eq!(refused.await.unwrap(), SHED);
}

#[tokio::test]
async fn shedding_needs_an_inner_service_with_slots_of_its_own() {
    let config = QueueConfig::inner().overflow(Overflow::Shed);
    let error = QueueLayer::try_plain(config).unwrap_err().to_string();
    assert!(error.contains("needs a waiting room"), "{error}");
    assert!(error.contains("`overflow`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_either_served_or_counted_as_full() {
    const LIMIT: usize = 2;
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let inner = service_fn({
        let running = Arc::clone(&running);
        move |_: ()| {
            let running = Arc::clone(&running);
            async move {
                let before = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert!(before < LIMIT);
                tokio::task::yield_now().await;
                running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                Ok::<_, Infallible>(())
            }
        }
    });
    let layer = QueueLayer::plain(QueueConfig::shed(LIMIT));
    let service = layer.layer(inner);
    let tasks = (0..4).map(|_| {
        let service = service.clone();
        tokio::spawn(async move {
            let mut served = 0;
            for _ in 0..5_000 {
                match service.clone().oneshot(()).await {
                    Ok(()) => served += 1,
                    Err(why) => assert_eq!(why, QueueError::Rejected(RejectReason::Shed)),
                }
            }
            served
        })
    });
    let served: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    let status = layer.handle().status();
    assert_eq!(
        (status.served, status.stats.full),
        (served, 20_000 - served)
    );
    assert_eq!(status.stats.rejected(), status.stats.full);
    nothing_is_left(&layer.handle());
}

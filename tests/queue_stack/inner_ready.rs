use super::*;

#[tokio::test(start_paused = true)]
async fn calls_are_not_serialised() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::inner(), limited(&service, 3));
    let mut all = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        all.push(send(&queue, normal(name)).await);
    }
    assert_eq!(service.running(), 3);
    assert_eq!(handle.status().running, 3);
    assert_eq!(handle.status().depth, 2);
    service.finish(5);
    join_all(all).await;
    assert_eq!((service.peak(), service.calls().len()), (3, 5));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn the_next_head_polls_right_after_the_call() {
    let (flaky, service) = (Flaky::new([]), TestService::new());
    let both = Both(flaky.clone(), service.clone());
    let (queue, handle) = queue(QueueConfig::inner(), both);
    let all = [
        send(&queue, normal("a")).await,
        send(&queue, normal("b")).await,
    ];
    for running in 1..=2 {
        flaky.says(Answer::Ready);
        settle().await;
        assert_eq!(service.running(), running);
    }
    assert_eq!(handle.status().served, 2);
    service.finish(2);
    join_all(all).await;
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn closed_resolves_when_the_last_running_request_has_finished() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::inner(), limited(&service, 1));
    let running = send(&queue, normal("running")).await;
    let waiting = send(&queue, normal("waiting")).await;
    handle.close();
    let closed = tokio::spawn(async move { handle.closed().await });
    assert_eq!(
        waiting.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::ShuttingDown))
    );
    assert!(!is_done(&closed).await);
    service.finish(1);
    assert_eq!(running.await.unwrap(), Ok("running"));
    assert!(is_done(&closed).await);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_wakes_the_next() {
    let service = TestService::new();
    let (queue, handle) = queue(QueueConfig::inner(), limited(&service, 1));
    let first = send(&queue, normal("first")).await;
    let gone = send(&queue, normal("gone")).await;
    let next = send(&queue, normal("next")).await;
    gone.abort();
    service.finish(2);
    assert!(is_done(&first).await && is_done(&next).await);
    assert_eq!(service.calls(), ["first", "next"]);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_woken_head_that_leaves_wakes_the_next() {
    let flaky = Flaky::new([]);
    let (queue, handle) = queue(QueueConfig::inner(), flaky.clone());
    let mut gone = ByHand::new(queue.clone().oneshot(normal("gone")));
    let mut next = ByHand::new(queue.clone().oneshot(normal("next")));
    assert!(gone.poll().is_pending());
    assert!(next.poll().is_pending());
    flaky.says(Answer::Ready);
    assert!(gone.is_woken());
    assert!(!next.is_woken());
    drop(gone);
    assert_eq!(next.run(), Poll::Ready(Ok("next")));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_notified_head_that_leaves_wakes_the_next() {
    let flaky = Flaky::new([]);
    let (queue, handle) = queue(QueueConfig::inner(), flaky.clone());
    let [a, b, mut c] = ["a", "b", "c"].map(|name| {
        let mut sent = ByHand::new(queue.clone().oneshot(normal(name)));
        assert!(sent.poll().is_pending());
        sent
    });
    drop(a);
    assert!(b.is_woken());
    drop(b);
    assert!(c.is_woken());
    assert!(c.run().is_pending());
    flaky.says(Answer::Ready);
    assert_eq!(c.run(), Poll::Ready(Ok("c")));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_granted_request_that_leaves_frees_the_readiness() {
    let flaky = Flaky::new([]);
    let config = QueueConfig::inner().promote_after(secs(1.0)).max_wait(None);
    let (queue, handle) = queue(config, flaky.clone());
    let mut old = ByHand::new(queue.clone().oneshot(normal("old")));
    assert!(old.poll().is_pending());
    advance(secs(0.5)).await;
    let mut high = ByHand::new(queue.clone().oneshot(urgent("high")));
    assert!(high.poll().is_pending());
    advance(secs(0.6)).await;
    flaky.says(Answer::Ready);
    // By now the old one is the head, so the readiness that the high one obtains goes to it.
    assert!(high.run().is_pending());
    assert!(old.is_woken());
    assert_eq!(handle.status().running, 1);
    drop(old);
    assert_eq!(high.run(), Poll::Ready(Ok("high")));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_overtakes_a_polling_head_is_woken() {
    let flaky = Flaky::new([]);
    let (queue, handle) = queue(QueueConfig::inner(), flaky.clone());
    let mut n = ByHand::new(queue.clone().oneshot(normal("n")));
    let h = Arc::new(Mutex::new(ByHand::new(queue.clone().oneshot(urgent("h")))));
    let overtaking = Arc::clone(&h);
    flaky.meanwhile(move || {
        let mut overtaking = overtaking.lock().unwrap();
        assert!(overtaking.poll().is_pending());
        assert!(overtaking.run().is_pending());
    });
    assert!(n.poll().is_pending());
    assert!(n.run().is_pending());
    assert!(h.lock().unwrap().run().is_pending());
    assert_eq!(handle.status().depth, 2);

    flaky.says(Answer::Ready);
    assert!(n.run().is_pending());
    assert_eq!(h.lock().unwrap().run(), Poll::Ready(Ok("h")));
    assert!(n.run().is_pending());
    flaky.says(Answer::Ready);
    assert_eq!(n.run(), Poll::Ready(Ok("n")));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn readiness_without_a_waiter_is_not_kept() {
    let service = TestService::new();
    let asked = Flaky::new([]);
    let both = Both(asked.clone(), service.clone());
    let config = QueueConfig::inner().max_size(1).displace(true);
    let (queue, handle) = queue(config, both);
    let mut n = ByHand::new(queue.clone().oneshot(normal("n")));
    assert!(n.poll().is_pending());
    let mut other = queue.clone();
    asked.meanwhile(move || {
        let mut h = ByHand::new(other.call(urgent("h")));
        let _ = h.poll();
    });
    asked.says(Answer::Ready);
    asked.says(Answer::Ready);
    assert_eq!(
        n.run(),
        Poll::Ready(Err(QueueError::Rejected(RejectReason::Displaced)))
    );
    nothing_is_left(&handle);

    handle.reconfigure(QueueConfig::inner()).unwrap();
    let all = [
        send(&queue, normal("a")).await,
        send(&queue, normal("b")).await,
    ];
    asked.says(Answer::Ready);
    asked.says(Answer::Ready);
    settle().await;
    assert_eq!(service.running(), 2, "one would have waited for the other");
    service.finish(2);
    join_all(all).await;
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn only_the_head_polls_and_only_when_notified() {
    let flaky = Flaky::new([]);
    let (queue, _) = queue(QueueConfig::inner(), flaky.clone());
    let mut sent = ByHand::new(queue.clone().oneshot(normal("a")));
    assert!(sent.poll().is_pending());
    assert!(!sent.is_woken(), "an arrival that is the head knows it");
    let mut behind = ByHand::new(queue.clone().oneshot(normal("b")));
    assert!(behind.poll().is_pending());
    assert_eq!(flaky.polls(), 1);
    flaky.says(Answer::Ready);
    assert_eq!(sent.run(), Poll::Ready(Ok("a")));
    assert!(behind.is_woken());
    assert!(behind.run().is_pending());
    assert!(!behind.is_woken());
}

#[tokio::test(start_paused = true)]
async fn an_expiring_head_wakes_the_next() {
    let service = TestService::new();
    let config = QueueConfig::inner().max_wait(secs(1.0));
    let (queue, handle) = queue(config, limited(&service, 1));
    let first = send(&queue, normal("first")).await;
    let late = send(&queue, normal("late")).await;
    advance(secs(0.5)).await;
    let next = send(&queue, normal("next")).await;
    advance(secs(0.6)).await;
    assert_eq!(
        late.await.unwrap(),
        Err(QueueError::Rejected(RejectReason::TimedOut))
    );
    service.finish(2);
    assert!(is_done(&first).await && is_done(&next).await);
    assert_eq!(service.calls(), ["first", "next"]);
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_poll_ready_reaches_its_caller_alone() {
    let flaky = Flaky::new([]);
    let (queue, handle) = queue(QueueConfig::inner(), flaky.clone());
    let unlucky = send(&queue, normal("unlucky")).await;
    let next = send(&queue, normal("next")).await;
    flaky.says(Answer::Error("broken"));
    assert_eq!(unlucky.await.unwrap(), Err(QueueError::Inner("broken")));
    flaky.says(Answer::Ready);
    assert_eq!(next.await.unwrap(), Ok("next"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_call_wakes_the_next() {
    let (queue, handle) = queue(QueueConfig::inner(), explosive());
    let unlucky = send(&queue, normal("boom")).await;
    assert!(unlucky.await.unwrap_err().is_panic());
    assert_eq!(send(&queue, normal("b")).await.await.unwrap(), Ok("b"));
    nothing_is_left(&handle);
}

#[tokio::test(start_paused = true)]
async fn a_request_moved_to_another_task_is_woken() {
    let flaky = Flaky::new([]);
    let (queue, _) = queue(QueueConfig::inner(), flaky.clone());
    let mut by_hand = ByHand::new(queue.clone().oneshot(normal("a")));
    assert!(by_hand.poll().is_pending());
    let moved = tokio::spawn(async move {
        std::future::poll_fn(|cx| {
            let polled = by_hand.poll();
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                waker.wake();
            });
            polled
        })
        .await
    });
    settle().await;
    flaky.says(Answer::Ready);
    assert_eq!(moved.await.unwrap(), Ok("a"));
}

#[test]
fn no_order_of_events_loses_a_readiness() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let _clock = runtime.enter();
    let config = QueueConfig::inner().max_size(4).displace(false);
    for seed in 0..3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let flaky = Flaky::new([]);
        let (queue, handle) = queue(config.clone(), flaky.clone());
        let mut sent = Vec::new();
        let (mut served, mut room) = (0, 0);
        for _ in 0..random.usize(5..60) {
            match random.usize(0..6) {
                0 | 1 => {
                    let job = if random.bool() {
                        urgent("u")
                    } else {
                        normal("n")
                    };
                    let mut arriving = ByHand::new(queue.clone().oneshot(job));
                    match arriving.poll() {
                        Poll::Pending => sent.push(arriving),
                        Poll::Ready(Ok(_)) => served += 1,
                        Poll::Ready(Err(QueueError::Rejected(why))) => {
                            assert_eq!(why, RejectReason::Full, "seed {seed}");
                        }
                        Poll::Ready(Err(error)) => panic!("seed {seed}: {error}"),
                    }
                }
                2 if !sent.is_empty() => drop(sent.swap_remove(random.usize(..sent.len()))),
                3 => {
                    room += 1;
                    flaky.says(Answer::Ready);
                }
                _ if !sent.is_empty() => {
                    let at = random.usize(..sent.len());
                    if sent[at].is_woken() && sent[at].poll().is_ready() {
                        served += 1;
                        drop(sent.swap_remove(at));
                    }
                }
                _ => {}
            }
        }
        while let Some(at) = sent.iter().position(ByHand::is_woken) {
            if sent[at].poll().is_ready() {
                served += 1;
                drop(sent.swap_remove(at));
            }
        }
        assert_eq!(served, flaky.calls().len(), "seed {seed}");
        assert!(served == room || sent.is_empty(), "seed {seed}");
        assert_eq!(handle.status().depth, sent.len(), "seed {seed}");
        assert_eq!(handle.status().running, 0, "seed {seed}");
    }
}

#[tokio::test]
async fn many_requests_with_hang_ups_leave_no_waiter_behind() {
    // A busy machine must refuse none of them for a long wait.
    let config = || {
        let config = QueueConfig::inner().max_size(10_000);
        config.target_wait(TargetWait::Off)
    };
    let echo = service_fn(|job: Job| async move {
        tokio::task::yield_now().await;
        Ok::<_, &'static str>(job.name)
    });
    let (queue, handle) = queue(config(), ConcurrencyLimit::new(echo, 3));
    crowd(&queue).await;
    nothing_is_left(&handle);

    let rated = ServiceBuilder::new()
        .layer(layer(config()).share_inner().unwrap())
        .rate_limit(50, Duration::from_millis(1))
        .service(echo);
    crowd(&rated).await;
    nothing_is_left(&rated.handle());
}

async fn crowd<S>(queue: &S)
where
    S: Service<Job> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send + std::fmt::Debug,
{
    let pool = tokio::runtime::Handle::current();
    let sent: Vec<Sent<S>> = (0..2_000)
        .map(|i| {
            let job = if i % 3 == 0 { urgent("u") } else { normal("n") };
            pool.spawn(queue.clone().oneshot(job))
        })
        .collect();
    for (i, sent) in sent.into_iter().enumerate() {
        if i % 5 == 0 {
            sent.abort();
            let _ = sent.await;
        } else {
            let answered = tokio::time::timeout(secs(20.0), sent).await;
            assert!(answered.expect("no request is forgotten").unwrap().is_ok());
        }
    }
    settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_requests_on_many_threads_leave_no_waiter_behind() {
    let config = || {
        QueueConfig::inner()
            .max_size(10_000)
            .target_wait(TargetWait::Off)
    };
    let echo = service_fn(|job: Job| async move {
        tokio::task::yield_now().await;
        Ok::<_, &'static str>(job.name)
    });
    for _ in 0..5 {
        let (queue, handle) = queue(config(), ConcurrencyLimit::new(echo, 3));
        crowd(&queue).await;
        nothing_is_left(&handle);

        let rated = ServiceBuilder::new()
            .layer(layer(config()).share_inner().unwrap())
            .rate_limit(100, Duration::from_millis(1))
            .service(echo);
        crowd(&rated).await;
        nothing_is_left(&rated.handle());
    }
}

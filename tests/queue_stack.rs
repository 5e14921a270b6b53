//! `QueueLayer` among Tower's own layers and above services with moods of their own.
#![cfg(not(loom))]

#[path = "support/queue_ward.rs"]
mod ward;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::advance;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::queue::{Plain, Queue};
use tower_triage::{
    Priority, QueueConfig, QueueError, QueueHandle, QueueLayer, Rejected, Rejection, Ticket,
};
use ward::{Answer, ByHand, Moody, Patient, Sent, Ward, normal, send, settle, triage, urgent};

type Triage = Plain<fn(&Patient, Instant) -> Ticket>;

fn layer(config: QueueConfig) -> QueueLayer<Triage> {
    let triage: fn(&Patient, Instant) -> Ticket = triage;
    QueueLayer::plain(config).expect("valid").classify(triage)
}

fn queue<S>(config: QueueConfig, inner: S) -> (Queue<S, Triage>, QueueHandle) {
    let layer = layer(config);
    (layer.layer(inner), layer.handle())
}

fn limited(ward: &Ward, limit: usize) -> ConcurrencyLimit<Ward> {
    ConcurrencyLimit::new(ward.clone(), limit)
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

async fn is_done<T>(sent: &tokio::task::JoinHandle<T>) -> bool {
    settle().await;
    sent.is_finished()
}

fn nothing_is_left(handle: &QueueHandle) {
    let status = handle.status();
    assert_eq!((status.depth, status.running), (0, 0), "{status:?}");
}

mod order {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_exact_in_front_of_a_concurrency_limit_also_for_who_comes_last() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::inner(), limited(&ward, 1));
        let mut all = vec![send(&queue, normal("first")).await];
        for patient in [normal("n1"), normal("n2"), urgent("h")] {
            all.push(send(&queue, patient).await);
        }
        assert_eq!(handle.status().depth, 3);
        for _ in 0..4 {
            ward.finish(1);
            settle().await;
        }
        assert_eq!(ward.came(), ["first", "h", "n1", "n2"]);
        assert_eq!(ward.peak(), 1);
        for sent in all {
            assert!(sent.await.unwrap().is_ok());
        }
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn is_exact_in_front_of_a_rate_limit_also_for_who_comes_last() {
        let ward = Ward::new();
        ward.finish(100);
        let queue = ServiceBuilder::new()
            .layer(layer(QueueConfig::inner()).share_inner().unwrap())
            .rate_limit(1, secs(1.0))
            .service(ward.clone());
        let mut all = vec![send(&queue, normal("first")).await];
        for patient in [normal("n1"), normal("n2"), urgent("h")] {
            all.push(send(&queue, patient).await);
        }
        assert_eq!(ward.came(), ["first"]);
        for came in 2..=4 {
            advance(secs(1.01)).await;
            settle().await;
            assert_eq!(ward.came().len(), came, "{:?}", ward.came());
        }
        assert_eq!(ward.came(), ["first", "h", "n1", "n2"]);
        nothing_is_left(&queue.handle());
    }

    #[tokio::test(start_paused = true)]
    async fn is_exact_with_a_limit_of_its_own() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::new(1), ward.clone());
        let mut all = vec![send(&queue, normal("first")).await];
        for patient in [normal("n1"), urgent("h"), normal("n2")] {
            all.push(send(&queue, patient).await);
        }
        ward.finish(4);
        join_all(all).await;
        assert_eq!(ward.came(), ["first", "h", "n1", "n2"]);
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn survives_promotion_between_asking_and_being_ready() {
        let moody = Moody::new([]);
        let config = QueueConfig::inner().promote_after(secs(1.0)).wait_forever();
        let (queue, handle) = queue(config, moody.clone());
        let old = send(&queue, normal("old")).await;
        advance(secs(0.5)).await;
        let high = send(&queue, urgent("high")).await;
        advance(secs(0.6)).await;
        for _ in 0..2 {
            moody.says(Answer::Ready);
            settle().await;
        }
        assert_eq!(moody.came(), ["old", "high"]);
        assert!(is_done(&old).await && is_done(&high).await);
        nothing_is_left(&handle);
    }
}

mod turns {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn do_not_serialise_the_calls() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::inner(), limited(&ward, 3));
        let mut all = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            all.push(send(&queue, normal(name)).await);
        }
        assert_eq!(ward.running(), 3);
        assert_eq!(handle.status().running, 3);
        assert_eq!(handle.status().depth, 2);
        ward.finish(5);
        join_all(all).await;
        assert_eq!((ward.peak(), ward.came().len()), (3, 5));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn go_on_at_the_call_and_not_at_its_end() {
        let (moody, ward) = (Moody::new([]), Ward::new());
        let both = Both(moody.clone(), ward.clone());
        let (queue, handle) = queue(QueueConfig::inner(), both);
        let all = [
            send(&queue, normal("a")).await,
            send(&queue, normal("b")).await,
        ];
        for running in 1..=2 {
            moody.says(Answer::Ready);
            settle().await;
            assert_eq!(ward.running(), running);
        }
        assert_eq!(handle.status().served, 2);
        ward.finish(2);
        join_all(all).await;
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn closed_resolves_when_the_last_running_request_has_finished() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::inner(), limited(&ward, 1));
        let running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        handle.close();
        let closed = tokio::spawn(async move { handle.closed().await });
        assert_eq!(
            waiting.await.unwrap(),
            Err(QueueError::Rejected(Rejected::ShuttingDown))
        );
        assert!(!is_done(&closed).await);
        ward.finish(1);
        assert_eq!(running.await.unwrap(), Ok("running"));
        assert!(is_done(&closed).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_head_hands_the_turn_on() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::inner(), limited(&ward, 1));
        let first = send(&queue, normal("first")).await;
        let gone = send(&queue, normal("gone")).await;
        let next = send(&queue, normal("next")).await;
        gone.abort();
        ward.finish(2);
        assert!(is_done(&first).await && is_done(&next).await);
        assert_eq!(ward.came(), ["first", "next"]);
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_woken_and_leaves_before_it_looks_hands_the_turn_on() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::inner(), moody.clone());
        let mut gone = ByHand::new(queue.clone().oneshot(normal("gone")));
        let mut next = ByHand::new(queue.clone().oneshot(normal("next")));
        assert!(gone.poll().is_pending());
        assert!(next.poll().is_pending());
        moody.says(Answer::Ready);
        assert!(gone.is_woken());
        assert!(!next.is_woken());
        drop(gone);
        assert_eq!(next.run(), Poll::Ready(Ok("next")));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_was_only_just_told_hands_the_turn_on() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::inner(), moody.clone());
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
        moody.says(Answer::Ready);
        assert_eq!(c.run(), Poll::Ready(Ok("c")));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_has_the_turn_and_leaves_before_the_call_hands_it_on() {
        let moody = Moody::new([]);
        let config = QueueConfig::inner().promote_after(secs(1.0)).wait_forever();
        let (queue, handle) = queue(config, moody.clone());
        let mut old = ByHand::new(queue.clone().oneshot(normal("old")));
        assert!(old.poll().is_pending());
        advance(secs(0.5)).await;
        let mut high = ByHand::new(queue.clone().oneshot(urgent("high")));
        assert!(high.poll().is_pending());
        advance(secs(0.6)).await;
        moody.says(Answer::Ready);
        // By now the old one goes first, so the room that the high one finds is the old one's.
        assert!(high.run().is_pending());
        assert!(old.is_woken());
        assert_eq!(handle.status().running, 1);
        drop(old);
        assert_eq!(high.run(), Poll::Ready(Ok("high")));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn who_overtakes_one_that_is_just_asking_is_woken_by_a_service_that_wakes_only_one() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::inner(), moody.clone());
        let mut n = ByHand::new(queue.clone().oneshot(normal("n")));
        let h = Arc::new(Mutex::new(ByHand::new(queue.clone().oneshot(urgent("h")))));
        let overtaking = Arc::clone(&h);
        moody.meanwhile(move || {
            let mut overtaking = overtaking.lock().unwrap();
            assert!(overtaking.poll().is_pending());
            assert!(overtaking.run().is_pending());
        });
        assert!(n.poll().is_pending());
        assert!(n.run().is_pending());
        assert!(h.lock().unwrap().run().is_pending());
        assert_eq!(handle.status().depth, 2);

        moody.says(Answer::Ready);
        assert!(n.run().is_pending());
        assert_eq!(h.lock().unwrap().run(), Poll::Ready(Ok("h")));
        assert!(n.run().is_pending());
        moody.says(Answer::Ready);
        assert_eq!(n.run(), Poll::Ready(Ok("n")));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn room_that_was_made_for_nobody_is_not_kept() {
        let ward = Ward::new();
        let asked = Moody::new([]);
        let both = Both(asked.clone(), ward.clone());
        let config = QueueConfig::inner().max_size(1).displace();
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
            Poll::Ready(Err(QueueError::Rejected(Rejected::Displaced)))
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
        assert_eq!(ward.running(), 2, "one would have waited for the other");
        ward.finish(2);
        join_all(all).await;
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_asks_while_another_has_the_turn_and_nobody_asks_twice_for_nothing() {
        let moody = Moody::new([]);
        let (queue, _) = queue(QueueConfig::inner(), moody.clone());
        let mut sent = ByHand::new(queue.clone().oneshot(normal("a")));
        assert!(sent.poll().is_pending());
        assert!(!sent.is_woken(), "who comes as the head knows it");
        let mut behind = ByHand::new(queue.clone().oneshot(normal("b")));
        assert!(behind.poll().is_pending());
        assert_eq!(moody.asked(), 1);
        moody.says(Answer::Ready);
        assert_eq!(sent.run(), Poll::Ready(Ok("a")));
        assert!(behind.is_woken());
        assert!(behind.run().is_pending());
        assert!(!behind.is_woken());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expiring_head_hands_the_turn_on() {
        let ward = Ward::new();
        let config = QueueConfig::inner().max_wait(secs(1.0));
        let (queue, handle) = queue(config, limited(&ward, 1));
        let first = send(&queue, normal("first")).await;
        let late = send(&queue, normal("late")).await;
        advance(secs(0.5)).await;
        let next = send(&queue, normal("next")).await;
        advance(secs(0.6)).await;
        assert_eq!(
            late.await.unwrap(),
            Err(QueueError::Rejected(Rejected::TimedOut))
        );
        ward.finish(2);
        assert!(is_done(&first).await && is_done(&next).await);
        assert_eq!(ward.came(), ["first", "next"]);
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_poll_ready_reaches_its_caller_and_the_next_one_goes_on() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::inner(), moody.clone());
        let unlucky = send(&queue, normal("unlucky")).await;
        let next = send(&queue, normal("next")).await;
        moody.says(Answer::Error("broken"));
        assert_eq!(unlucky.await.unwrap(), Err(QueueError::Inner("broken")));
        moody.says(Answer::Ready);
        assert_eq!(next.await.unwrap(), Ok("next"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_poll_ready_or_call_hands_the_turn_on() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::inner(), moody.clone());
        let unlucky = send(&queue, normal("unlucky")).await;
        let next = send(&queue, normal("next")).await;
        moody.says(Answer::Panic);
        assert!(unlucky.await.unwrap_err().is_panic());
        settle().await;
        moody.says(Answer::Ready);
        assert_eq!(next.await.unwrap(), Ok("next"));
        nothing_is_left(&handle);

        let (queue, handle) = super::queue(QueueConfig::inner(), explosive());
        let unlucky = send(&queue, normal("boom")).await;
        assert!(unlucky.await.unwrap_err().is_panic());
        assert_eq!(send(&queue, normal("b")).await.await.unwrap(), Ok("b"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_moves_on_with_its_request_is_still_woken() {
        let moody = Moody::new([]);
        let (queue, _) = queue(QueueConfig::inner(), moody.clone());
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
        moody.says(Answer::Ready);
        assert_eq!(moved.await.unwrap(), Ok("a"));
    }

    #[test]
    fn whatever_happens_in_whatever_order_room_and_waiters_find_each_other() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        let _clock = runtime.enter();
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let moody = Moody::new([]);
            let (queue, handle) = queue(QueueConfig::inner().max_size(4), moody.clone());
            let mut sent = Vec::new();
            let (mut served, mut room) = (0, 0);
            for _ in 0..random.usize(5..60) {
                match random.usize(0..6) {
                    0 | 1 => {
                        let patient = if random.bool() {
                            urgent("u")
                        } else {
                            normal("n")
                        };
                        let mut arriving = ByHand::new(queue.clone().oneshot(patient));
                        match arriving.poll() {
                            Poll::Pending => sent.push(arriving),
                            Poll::Ready(Ok(_)) => served += 1,
                            Poll::Ready(Err(QueueError::Rejected(why))) => {
                                assert_eq!(why, Rejected::Full, "seed {seed}");
                            }
                            Poll::Ready(Err(error)) => panic!("seed {seed}: {error}"),
                        }
                    }
                    2 if !sent.is_empty() => drop(sent.swap_remove(random.usize(..sent.len()))),
                    3 => {
                        room += 1;
                        moody.says(Answer::Ready);
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
            assert_eq!(served, moody.came().len(), "seed {seed}");
            assert!(served == room || sent.is_empty(), "seed {seed}");
            assert_eq!(handle.status().depth, sent.len(), "seed {seed}");
            assert_eq!(handle.status().running, 0, "seed {seed}");
        }
    }

    #[tokio::test]
    async fn a_crowd_with_hang_ups_leaves_nobody_behind() {
        let config = || QueueConfig::inner().max_size(10_000);
        let echo = service_fn(|patient: Patient| async move {
            tokio::task::yield_now().await;
            Ok::<_, &'static str>(patient.name)
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
        S: Service<Patient> + Clone + Send + 'static,
        S::Future: Send,
        S::Response: Send,
        S::Error: Send + std::fmt::Debug,
    {
        let pool = tokio::runtime::Handle::current();
        let sent: Vec<Sent<S>> = (0..2_000)
            .map(|i| {
                let patient = if i % 3 == 0 { urgent("u") } else { normal("n") };
                pool.spawn(queue.clone().oneshot(patient))
            })
            .collect();
        for (i, sent) in sent.into_iter().enumerate() {
            if i % 5 == 0 {
                sent.abort();
                let _ = sent.await;
            } else {
                let answered = tokio::time::timeout(secs(20.0), sent).await;
                assert!(answered.expect("nobody is forgotten").unwrap().is_ok());
            }
        }
        settle().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_crowd_on_many_threads_leaves_nobody_behind() {
        let config = || QueueConfig::inner().max_size(10_000);
        let echo = service_fn(|patient: Patient| async move {
            tokio::task::yield_now().await;
            Ok::<_, &'static str>(patient.name)
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
}

/// Ready when the first is, serves with the second.
#[derive(Clone)]
struct Both(Moody, Ward);

impl Service<Patient> for Both {
    type Response = &'static str;
    type Error = &'static str;
    type Future = <Ward as Service<Patient>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, patient: Patient) -> Self::Future {
        drop(self.0.call(patient));
        self.1.call(patient)
    }
}

/// Panics in `call` when it is asked to.
fn explosive()
-> impl Service<Patient, Response = &'static str, Error = &'static str, Future: Send> + Clone + Send
{
    service_fn(|patient: Patient| {
        assert!(patient.name != "boom", "the inner service panics");
        std::future::ready(Ok(patient.name))
    })
}

mod stacks {
    use super::*;

    /// On fresh clones that were readied, on ones that were not, and on one that is kept.
    async fn serve_many<S>(queue: Queue<S, Triage>, handle: QueueHandle)
    where
        S: Service<Patient> + Clone + Send + 'static,
        S::Future: Send,
        S::Response: Send,
        S::Error: Send + std::fmt::Debug,
    {
        serve_readied(queue.clone(), handle.clone()).await;
        let sent = (0..100).map(|_| tokio::spawn(queue.clone().call(normal("n"))));
        for answer in join_all(sent).await {
            answer.expect("no panic").expect("served");
        }
        let mut kept = queue;
        for _ in 0..10 {
            kept.call(normal("n")).await.unwrap();
            kept.ready().await.unwrap().call(normal("n")).await.unwrap();
        }
        settle().await;
        nothing_is_left(&handle);
    }

    async fn serve_readied<S>(queue: S, handle: QueueHandle)
    where
        S: Service<Patient> + Clone + Send + 'static,
        S::Future: Send,
        S::Response: Send,
        S::Error: Send + std::fmt::Debug,
    {
        let sent = (0..100).map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))));
        for answer in join_all(sent).await {
            answer.expect("no panic").expect("served");
        }
        settle().await;
        nothing_is_left(&handle);
    }

    fn echo() -> Ward {
        let ward = Ward::new();
        ward.finish(1_000);
        ward
    }

    fn configs() -> [QueueConfig; 3] {
        let large = |config: QueueConfig| config.max_size(1_000).wait_forever();
        [
            large(QueueConfig::new(2)),
            large(QueueConfig::new(64)),
            large(QueueConfig::inner()),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn a_concurrency_limit() {
        for config in configs() {
            let (queue, handle) = queue(config, limited(&echo(), 4));
            serve_many(queue, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_buffer() {
        for config in configs() {
            let (queue, handle) = queue(config, Buffer::new(limited(&echo(), 4), 4));
            serve_many(queue, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_shed_that_never_sheds() {
        let (queue, handle) = queue(
            QueueConfig::new(2).max_size(1_000),
            LoadShed::new(limited(&echo(), 2)),
        );
        serve_many(queue, handle).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_that_is_shared() {
        let queue = ServiceBuilder::new()
            .layer(
                layer(QueueConfig::inner().max_size(1_000).wait_forever())
                    .share_inner()
                    .unwrap(),
            )
            .rate_limit(7, secs(1.0))
            .service(echo());
        let handle = queue.handle();
        serve_many(queue, handle).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_that_is_shared() {
        use tower::balance::p2c::Balance;
        use tower::discover::ServiceList;
        use tower::load::{CompleteOnResponse, PendingRequests};

        let backends = (0..3)
            .map(|_| PendingRequests::new(limited(&echo(), 1), CompleteOnResponse::default()));
        let balance = Balance::new(ServiceList::new::<Patient>(backends));
        let queue = layer(QueueConfig::inner().max_size(1_000).wait_forever())
            .share_inner()
            .unwrap()
            .layer(balance);
        let handle = queue.handle();
        serve_many(queue, handle).await;
    }

    #[tokio::test(start_paused = true)]
    async fn below_a_buffer_and_a_timeout() {
        let layer = layer(QueueConfig::new(2).max_size(1_000));
        let handle = layer.handle();
        let stack = ServiceBuilder::new()
            .buffer(64)
            .timeout(secs(60.0))
            .layer(layer)
            .concurrency_limit(2)
            .service(echo());
        serve_readied(stack, handle).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_moody_at_times() {
        for config in configs() {
            let moody = Moody::new([]);
            let (queue, handle) = queue(config, moody.clone());
            let sent: Vec<_> = (0..50)
                .map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))))
                .collect();
            settle().await;
            for _ in 0..50 {
                moody.says(Answer::Ready);
                settle().await;
            }
            // With several slots, several ask at once, and only the last of them is woken; so are the others
            // then, as each call is followed by the next one's turn.
            let served = sent.iter().filter(|sent| sent.is_finished()).count();
            assert!(served >= 1);
            if handle.config().concurrency == tower_triage::Concurrency::Inner {
                assert_eq!(served, 50);
                nothing_is_left(&handle);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readied_and_idle_clones_hoard_nothing() {
        for config in [QueueConfig::new(1), QueueConfig::inner()] {
            let ward = echo();
            let (queue, handle) = queue(config, limited(&ward, 1));
            let mut idle: Vec<_> = (0..5).map(|_| queue.clone()).collect();
            for clone in &mut idle {
                clone.ready().await.unwrap();
            }
            nothing_is_left(&handle);
            assert_eq!(queue.clone().oneshot(normal("n")).await, Ok("n"));
            drop(idle);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_below_holds_nobody_up() {
        let ward = Ward::new();
        let (queue, handle) = queue(QueueConfig::new(8), limited(&ward, 1));
        let mut kept = queue.clone();
        let first = tokio::spawn(kept.call(normal("first")));
        settle().await;
        // Holds a slot of the queue and stands in line for the limit below.
        let gone = tokio::spawn(kept.call(normal("gone")));
        settle().await;
        gone.abort();
        let next = send(&queue, normal("next")).await;
        ward.finish(2);
        assert!(is_done(&first).await && is_done(&next).await);
        assert_eq!(ward.came(), ["first", "next"]);
        nothing_is_left(&handle);
        drop(kept);
    }

    #[test]
    fn only_an_inner_limit_can_be_shared() {
        assert!(layer(QueueConfig::new(1)).share_inner().is_err());
        assert!(layer(QueueConfig::inner()).share_inner().is_ok());
    }
}

mod plain {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rejections_are_errors_that_say_why() {
        let ward = Ward::new();
        let config = QueueConfig::new(1).max_size(1).max_wait(secs(1.0));
        let (queue, handle) = queue(config, ward.clone());
        let running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        assert_eq!(
            queue.clone().oneshot(normal("refused")).await,
            Err(QueueError::Rejected(Rejected::Full))
        );
        advance(secs(1.1)).await;
        let late: BoxError = waiting.await.unwrap().unwrap_err().into();
        assert_eq!(late.to_string(), <Rejected>::TimedOut.to_string());
        handle.close();
        assert_eq!(
            queue.clone().oneshot(normal("after")).await,
            Err(QueueError::Rejected(Rejected::ShuttingDown))
        );
        ward.finish(1);
        assert_eq!(running.await.unwrap(), Ok("running"));
        handle.closed().await;
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_inner_service_frees_the_slot() {
        let failing = service_fn(|_: Patient| async { Err::<(), _>("failed") });
        let (queue, handle) = queue(QueueConfig::new(1), failing);
        for _ in 0..3 {
            let failed = queue.clone().oneshot(normal("n")).await;
            assert_eq!(failed, Err(QueueError::Inner("failed")));
        }
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_poll_ready_reaches_its_caller_and_frees_the_slot() {
        let moody = Moody::new([Answer::Error("broken"), Answer::Ready]);
        let (queue, handle) = queue(QueueConfig::new(1), moody.clone());
        assert_eq!(
            queue.clone().oneshot(normal("unlucky")).await,
            Err(QueueError::Inner("broken"))
        );
        assert_eq!(queue.clone().oneshot(normal("next")).await, Ok("next"));

        let unlucky = send(&queue, normal("unlucky")).await;
        let next = send(&queue, normal("next")).await;
        moody.says(Answer::Error("broken again"));
        moody.says(Answer::Ready);
        assert_eq!(
            unlucky.await.unwrap(),
            Err(QueueError::Inner("broken again"))
        );
        assert_eq!(next.await.unwrap(), Ok("next"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lowered_limit_holds_as_soon_as_enough_came_back() {
        let ward = Ward::new();
        let config = |limit| QueueConfig::new(limit);
        let (queue, handle) = queue(config(20), ward.clone());
        let sent: Vec<_> = (0..64)
            .map(|_| tokio::spawn(queue.clone().oneshot(normal("n"))))
            .collect();
        settle().await;
        assert_eq!((ward.running(), handle.status().depth), (20, 44));
        handle.reconfigure(config(5)).unwrap();
        ward.finish(15);
        settle().await;
        assert_eq!((ward.running(), handle.status().depth), (5, 44));
        ward.finish(1);
        settle().await;
        assert_eq!((ward.running(), handle.status().depth), (5, 43));
        ward.finish(64);
        join_all(sent).await;
        assert_eq!(ward.peak(), 20);
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_that_is_dated_wrong_harms_only_itself() {
        let ward = Ward::new();
        let config = QueueConfig::new(1).max_wait(secs(10.0));
        let layer =
            QueueLayer::plain(config)
                .unwrap()
                .classify(|patient: &Patient, now: Instant| {
                    let arrival = match patient.name {
                        "of tomorrow" => now + secs(86_400.0),
                        "of yesterday" => now.checked_sub(secs(60.0)).unwrap_or(now),
                        _ => now,
                    };
                    Ticket::new(Priority::HIGHEST, arrival)
                });
        let queue = layer.layer(ward.clone());
        let running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        let tomorrow = send(&queue, normal("of tomorrow")).await;
        let yesterday = send(&queue, normal("of yesterday")).await;
        assert_eq!(
            yesterday.await.unwrap(),
            Err(QueueError::Rejected(Rejected::TimedOut))
        );
        ward.finish(3);
        for sent in [running, waiting, tomorrow] {
            assert!(sent.await.unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_reconfigured_changes_nothing() {
        let (_, handle) = queue(QueueConfig::new(3), Ward::new());
        assert!(handle.reconfigure(QueueConfig::inner()).is_err());
        assert!(handle.reconfigure(QueueConfig::new(0)).is_err());
        assert_eq!(handle.config(), QueueConfig::new(3));
        assert_eq!(handle.status().limit, 3);
    }

    #[tokio::test]
    async fn who_is_woken_by_a_new_configuration_may_look_at_it() {
        struct Looks(QueueHandle, Mutex<Option<usize>>);
        impl Wake for Looks {
            fn wake(self: Arc<Self>) {
                *self.1.lock().unwrap() = Some(self.0.config().max_size);
            }
        }
        let (queue, handle) = queue(QueueConfig::new(1).max_size(9), Ward::new());
        let _running = send(&queue, normal("running")).await;
        let looks = Arc::new(Looks(handle.clone(), Mutex::default()));
        let waker = Waker::from(Arc::clone(&looks));
        let mut waiting = Box::pin(queue.oneshot(normal("waiting")));
        let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        handle.reconfigure(QueueConfig::new(1).max_size(0)).unwrap();
        assert_eq!(*looks.1.lock().unwrap(), Some(0));
        assert_eq!(
            poll(),
            Poll::Ready(Err(QueueError::Rejected(Rejected::Disabled)))
        );
    }
}

mod inner_not_ready {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_still_applies_and_the_slot_comes_back() {
        let moody = Moody::new([]);
        let config = QueueConfig::new(1).max_wait(secs(1.0));
        let (queue, handle) = queue(config, moody.clone());
        let stuck = send(&queue, normal("stuck")).await;
        assert_eq!(handle.status().running, 1);
        advance(secs(0.5)).await;
        let behind = send(&queue, normal("behind")).await;
        assert_eq!(handle.status().depth, 1);
        advance(secs(0.6)).await;
        assert_eq!(
            stuck.await.unwrap(),
            Err(QueueError::Rejected(Rejected::TimedOut))
        );
        settle().await;
        moody.says(Answer::Ready);
        assert_eq!(behind.await.unwrap(), Ok("behind"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_slot_counts() {
        let both = (Moody::new([Answer::Ready]), Ward::new());
        let config = QueueConfig::new(1).max_wait(secs(1.0));
        let (queue, _) = queue(config, Both(both.0.clone(), both.1.clone()));
        let first = send(&queue, normal("first")).await;
        let second = send(&queue, normal("second")).await;
        advance(secs(0.7)).await;
        both.1.finish(1);
        assert!(is_done(&first).await);
        advance(secs(0.35)).await;
        assert_eq!(
            second.await.unwrap(),
            Err(QueueError::Rejected(Rejected::TimedOut))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn http_clients_get_503_and_the_time_that_they_waited() {
        let never = Never;
        let config = QueueConfig::new(1).max_wait(secs(0.3));
        let layer = QueueLayer::new(config);
        let started = tokio::time::Instant::now();
        let response = layer.layer(never).oneshot(request(&[])).await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(started.elapsed().as_millis(), 300);
        let waited = response.headers()["server-timing"].to_str().unwrap();
        assert!(waited.starts_with("queue;dur=30"), "{waited}");
        assert!(text(response).await.contains("queue_timeout"));
        nothing_is_left(&layer.handle());
    }

    #[test]
    fn outside_a_runtime_it_waits_for_as_long_as_it_takes() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::new(1), moody.clone());
        let mut sent = ByHand::new(queue.oneshot(normal("n")));
        assert!(sent.poll().is_pending());
        moody.says(Answer::Ready);
        assert_eq!(sent.run(), Poll::Ready(Ok("n")));
        nothing_is_left(&handle);
    }

    /// Never ready.
    #[derive(Clone)]
    struct Never;

    impl Service<Request<Full<Bytes>>> for Never {
        type Response = Response<Full<Bytes>>;
        type Error = std::convert::Infallible;
        type Future = std::future::Pending<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
            unreachable!("never ready")
        }
    }
}

fn request(headers: &[(&'static str, &'static str)]) -> Request<Full<Bytes>> {
    let mut request = Request::default();
    for (name, value) in headers {
        let value = http::HeaderValue::from_static(value);
        request.headers_mut().insert(*name, value);
    }
    request
}

async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    use http_body_util::BodyExt;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

mod backpressure {
    use super::*;

    fn full_room() -> (Queue<Ward, Triage>, QueueHandle, Ward) {
        let ward = Ward::new();
        let config = QueueConfig::new(1).max_size(1).backpressure();
        let (queue, handle) = queue(config, ward.clone());
        (queue, handle, ward)
    }

    async fn becomes_ready(queue: &mut Queue<Ward, Triage>) -> bool {
        tokio::time::timeout(secs(0.001), queue.ready())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn is_pending_while_the_room_is_full() {
        let (queue, handle, ward) = full_room();
        let running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        let third = send(&queue, normal("third")).await;
        assert_eq!(handle.status().depth, 1);
        assert!(!becomes_ready(&mut queue.clone()).await);
        ward.finish(3);
        for sent in [running, waiting, third] {
            assert!(sent.await.unwrap().is_ok());
        }
        assert_eq!(ward.came(), ["running", "waiting", "third"]);
        assert!(becomes_ready(&mut queue.clone()).await);
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn ready_reserves_a_chair_that_a_clone_does_not_get() {
        let (queue, handle, ward) = full_room();
        let running = send(&queue, normal("running")).await;
        let mut readied = queue.clone();
        assert!(becomes_ready(&mut readied).await);
        assert!(!becomes_ready(&mut readied.clone()).await);
        assert!(!becomes_ready(&mut queue.clone()).await);
        assert!(becomes_ready(&mut readied).await, "and it keeps it");
        let waiting = tokio::spawn(readied.call(normal("waiting")));
        settle().await;
        assert_eq!(handle.status().depth, 1);
        assert!(!becomes_ready(&mut readied).await, "used up by the call");
        ward.finish(2);
        assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_readied_clone_gives_its_chair_back() {
        let (queue, _, _ward) = full_room();
        let _running = send(&queue, normal("running")).await;
        let mut readied = queue.clone();
        assert!(becomes_ready(&mut readied).await);
        let mut other = ByHand::new(queue.clone().ready_oneshot());
        assert!(other.poll().is_pending());
        drop(readied);
        assert!(other.is_woken());
        assert!(matches!(other.run(), Poll::Ready(Ok(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reserved_chair_is_not_for_one_who_did_not_ask() {
        let (queue, handle, ward) = full_room();
        let _running = send(&queue, normal("running")).await;
        let mut readied = queue.clone();
        assert!(becomes_ready(&mut readied).await);
        let uninvited = queue.clone().call(urgent("uninvited")).await;
        assert_eq!(uninvited, Err(QueueError::Rejected(Rejected::Full)));
        let waiting = tokio::spawn(readied.call(normal("waiting")));
        settle().await;
        assert_eq!(handle.status().depth, 1);
        ward.finish(2);
        assert_eq!(waiting.await.unwrap(), Ok("waiting"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_ready_holds_nobody_up() {
        let (queue, _, _ward) = full_room();
        let _running = send(&queue, normal("running")).await;
        let waiting = send(&queue, normal("waiting")).await;
        let mut given_up = queue.clone();
        assert!(!becomes_ready(&mut given_up).await);
        let mut next = ByHand::new(queue.clone().ready_oneshot());
        assert!(next.poll().is_pending());
        waiting.abort();
        settle().await;
        assert!(matches!(next.run(), Poll::Ready(Ok(_))));
        drop(given_up);
    }

    #[tokio::test(start_paused = true)]
    async fn a_readied_and_idle_clone_holds_up_nobody_beyond_its_chair() {
        let ward = Ward::new();
        let config = QueueConfig::new(1).max_size(2).backpressure();
        let (queue, _) = queue(config, ward.clone());
        let mut idle = queue.clone();
        assert!(becomes_ready(&mut idle).await);
        let sent = [
            send(&queue, normal("a")).await,
            send(&queue, normal("b")).await,
            send(&queue, normal("c")).await,
        ];
        ward.finish(3);
        for sent in sent {
            assert!(sent.await.unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_chair_learns_that_the_queue_is_closed() {
        let (queue, handle, _ward) = full_room();
        let _running = send(&queue, normal("running")).await;
        let _waiting = send(&queue, normal("waiting")).await;
        let standing = send(&queue, normal("standing")).await;
        handle.close();
        assert_eq!(
            standing.await.unwrap(),
            Err(QueueError::Rejected(Rejected::ShuttingDown))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_chair_learns_of_a_new_configuration() {
        let base = || QueueConfig::new(1).max_size(1);
        let news = [
            (base(), Rejected::Full),
            (base().backpressure().max_size(0), Rejected::Disabled),
        ];
        for (config, why) in news {
            let (queue, handle, _ward) = full_room();
            let _running = send(&queue, normal("running")).await;
            let _waiting = send(&queue, normal("waiting")).await;
            let standing = send(&queue, normal("standing")).await;
            handle.reconfigure(config).unwrap();
            let answer = tokio::time::timeout(secs(1.0), standing).await;
            let answer = answer.expect("it need not stand any longer").unwrap();
            assert_eq!(answer, Err(QueueError::Rejected(why)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn works_where_the_inner_service_is_the_limit() {
        let ward = Ward::new();
        let config = QueueConfig::inner().max_size(1).backpressure();
        let (queue, handle) = queue(config, limited(&ward, 1));
        let mut sent = Vec::new();
        for patient in [normal("a"), normal("b"), normal("c"), urgent("d")] {
            sent.push(send(&queue, patient).await);
        }
        assert_eq!((ward.running(), handle.status().depth), (1, 1));
        ward.finish(4);
        for sent in sent {
            assert!(sent.await.unwrap().is_ok());
        }
        nothing_is_left(&handle);
    }
}

mod panics {
    use super::*;

    /// Sends "boom" and then somebody who has to be served.
    async fn the_next_is_served<S>(queue: S, handle: QueueHandle)
    where
        S: Service<Patient, Response = &'static str, Error = QueueError<&'static str>>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        for _ in 0..3 {
            let unlucky = tokio::spawn(queue.clone().oneshot(normal("boom")));
            assert!(unlucky.await.unwrap_err().is_panic());
            nothing_is_left(&handle);
        }
        assert_eq!(queue.oneshot(normal("next")).await, Ok("next"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn in_call() {
        for config in [QueueConfig::new(1), QueueConfig::inner()] {
            let (queue, handle) = queue(config, explosive());
            the_next_is_served(queue, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_the_response_future() {
        let explosive = service_fn(|patient: Patient| async move {
            tokio::task::yield_now().await;
            assert!(patient.name != "boom", "the inner service panics");
            Ok::<_, &'static str>(patient.name)
        });
        for config in [QueueConfig::new(1), QueueConfig::inner()] {
            let (queue, handle) = queue(config, explosive);
            the_next_is_served(queue, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_poll_ready() {
        for config in [QueueConfig::new(1), QueueConfig::inner()] {
            let script = [Answer::Panic, Answer::Panic, Answer::Panic, Answer::Ready];
            let (queue, handle) = queue(config, Moody::new(script));
            the_next_is_served(queue, handle).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_poll_ready_while_the_slot_is_held() {
        let moody = Moody::new([]);
        let (queue, handle) = queue(QueueConfig::new(1), moody.clone());
        let unlucky = send(&queue, normal("unlucky")).await;
        let next = send(&queue, normal("next")).await;
        moody.says(Answer::Panic);
        assert!(unlucky.await.unwrap_err().is_panic());
        settle().await;
        moody.says(Answer::Ready);
        assert_eq!(next.await.unwrap(), Ok("next"));
        nothing_is_left(&handle);
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_classifier() {
        let careless = |patient: &Patient, arrival| {
            assert!(patient.name != "boom", "the classifier panics");
            Ticket::new(Priority::HIGHEST, arrival)
        };
        let ward = Ward::new();
        for config in [QueueConfig::new(1), QueueConfig::new(1).backpressure()] {
            let layer = QueueLayer::plain(config).unwrap().classify(careless);
            let (queue, handle) = (layer.layer(ward.clone()), layer.handle());
            let running = send(&queue, normal("running")).await;
            let unlucky = send(&queue, normal("boom")).await;
            assert!(unlucky.await.unwrap_err().is_panic());
            let waiting = send(&queue, normal("waiting")).await;
            assert_eq!(handle.status().depth, 1);
            ward.finish(2);
            assert!(running.await.unwrap().is_ok() && waiting.await.unwrap().is_ok());
            nothing_is_left(&handle);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_classifier_while_the_inner_service_is_not_ready() {
        let layer = QueueLayer::plain(QueueConfig::new(1))
            .unwrap()
            .classify(|_: &Patient, _| -> Ticket { panic!("the classifier panics") });
        let mut queue = layer.layer(Moody::new([]));
        let called = catch_unwind(AssertUnwindSafe(|| queue.call(normal("n"))));
        assert!(called.is_err());
        nothing_is_left(&layer.handle());
    }

    #[tokio::test(start_paused = true)]
    async fn in_on_reject() {
        let echo = service_fn(|_: Request<Full<Bytes>>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let config = QueueConfig::new(1).max_size(1).max_wait(secs(1.0));
        let layer = QueueLayer::new(config)
            .on_reject(|_: &Rejection, _: &_| panic!("the rendering panics"));
        let (queue, handle) = (layer.layer(echo), layer.handle());
        let holding = queue.clone().oneshot(request(&[])).await.unwrap();
        assert_eq!(handle.status().running, 0, "an empty body holds nothing");
        drop(holding);

        let ward = service_fn(|_: Request<Full<Bytes>>| {
            std::future::pending::<Result<Response<Full<Bytes>>, std::convert::Infallible>>()
        });
        let queue = layer.layer(ward);
        let running = tokio::spawn(queue.clone().oneshot(request(&[])));
        settle().await;
        let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
        settle().await;
        let refused = tokio::spawn(queue.clone().oneshot(request(&[])));
        assert!(refused.await.unwrap_err().is_panic());
        assert_eq!(handle.status().depth, 1);
        advance(secs(1.1)).await;
        assert!(waiting.await.unwrap_err().is_panic());
        running.abort();
        settle().await;
        nothing_is_left(&handle);
    }
}

mod streams {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn are_rejected_only_while_the_inner_service_is_busy() {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let finish = Arc::clone(&gate);
        let slow = service_fn(move |_: Request<Full<Bytes>>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        for config in [QueueConfig::new(1), QueueConfig::inner()] {
            let layer = QueueLayer::new(config.reject_streams());
            let queue = layer.layer(ConcurrencyLimit::new(slow.clone(), 1));
            let stream = || request(&[("accept", "text/event-stream")]);
            let first = tokio::spawn(queue.clone().oneshot(stream()));
            settle().await;
            let refused = queue.clone().oneshot(stream()).await.unwrap();
            assert_eq!(refused.status(), 503);
            assert!(text(refused).await.contains("streaming_not_queued"));
            assert_eq!(layer.handle().status().counts.rejected(), 1);
            let waiting = tokio::spawn(queue.clone().oneshot(request(&[])));
            settle().await;
            finish.add_permits(2);
            assert_eq!(first.await.unwrap().unwrap().status(), 200);
            assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
            nothing_is_left(&layer.handle());
        }
    }
}

//! The store on Redis while nothing fails.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_triage::{QueueConfig, QueueLayer};
use tower_triage_durable::{
    BacklogChange, Enqueued, Idempotency, Listing, Pause, PauseScope, RequestStatus, Stop,
    StoreError, Worker, encode_request,
};
use tower_triage_durable::{Drain, KeyValues, Operate, Streams, Webhooks};

use super::*;

#[tokio::test]
async fn a_request_passes_from_front_to_worker_and_back() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    let id = store_one(&front, "hello").await;
    assert_eq!(front.position(id).await.unwrap(), Some(1));
    let fetched = take(&worker).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    assert_eq!(fetched.request, "hello");
    assert_eq!(fetched.info.status, RequestStatus::Starting);
    worker.called(&fetched.lease).await.unwrap();
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Processing);
    assert!(info.started.is_some());

    let ended = front.ended(id);
    let lease = fetched.lease.clone();
    assert!(
        worker
            .finish(lease.clone(), responded(200, "done"))
            .await
            .unwrap()
    );
    soon(ended).await.unwrap();
    // Its reply was lost: it has the same effect again.
    assert!(worker.finish(lease, responded(200, "done")).await.unwrap());
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Succeeded);
    assert_eq!(info.response_status, Some(200));
    assert_eq!(front.response(id).await.unwrap().unwrap(), "done");
    assert_eq!(front.request(id).await.unwrap().unwrap(), "hello");
    assert!(front.depths().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_request_whose_webhook_is_never_settled_is_forgotten_after_25_hours() {
    let server = Server::start();
    let hour = Duration::from_secs(60 * 60);
    for (retention, kept) in [(hour, hour * 25), (hour * 48, hour * 48)] {
        let store = open(&server, short().retention(retention)).await;
        let mut new = request("");
        new.webhook = Some("https://example.com/hook".to_owned());
        let id = new.id;
        store.enqueue(new).await.unwrap();
        store.cancel(id).await.unwrap();
        let left = || {
            let reply = server.ask(&format!("PTTL triage:{{default}}:j:{id}"));
            let reply = reply.unwrap();
            let left = reply.trim().strip_prefix(':').unwrap();
            Duration::from_millis(left.parse().expect("a time"))
        };
        let before = left();
        assert!(before <= kept && before > kept - SOON, "{before:?}");
        store.settle_webhook(id, 0, None).await.unwrap();
        assert!(left() <= retention);
    }
}

#[tokio::test]
async fn a_waiting_front_is_told_of_an_end_elsewhere() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    let id = store_one(&front, "").await;
    let (_, ()) = tokio::join!(async { soon(front.ended(id)).await.unwrap() }, async {
        let fetched = take(&worker).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        worker
            .finish(fetched.lease, responded(500, "no"))
            .await
            .unwrap();
    });
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Failed);
    soon(front.ended(RequestId::random().unwrap()))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_end_is_told_with_its_response_unless_that_is_large() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    for (length, is_told) in [(4_096, true), (4_097, false)] {
        let new = request("");
        let id = new.id;
        let wait = front.ended(id);
        front.enqueue(new).await.unwrap();
        let body: &'static str = "x".repeat(length).leak();
        let fetched = take(&worker).await;
        let outcome = responded(200, body);
        worker.finish(fetched.lease, outcome).await.unwrap();
        let found = soon(wait).await.unwrap().unwrap();
        assert_eq!(found.info, front.get(id).await.unwrap().unwrap());
        assert_eq!(found.response.is_some(), is_told);
    }
}

#[tokio::test]
async fn the_last_request_of_a_queue_is_known() {
    let server = Server::start();
    let store = open(&server, short()).await;
    for _ in 0..3 {
        store_one(&store, "").await;
    }
    let is_last = |fetched: Vec<Fetched>| fetched.last().map(|fetched| fetched.is_last);
    let fetched = store.fetch("", 2).await.unwrap();
    assert_eq!(is_last(fetched), Some(false));
    let fetched = store.fetch("", 2).await.unwrap();
    assert_eq!(is_last(fetched), Some(true));
}

#[tokio::test]
async fn the_first_request_of_a_queue_is_told_as_the_backlog_shows_it() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    // Its connection is there.
    let _ = soon(worker.changed(0)).await.unwrap();
    let mut new = request("");
    new.queue = "model".to_owned();
    (new.level, new.tenant, new.cost) = (2, b"tenant \xff".to_vec(), 7);
    new.is_listed = false;
    for cancel_after in [None, Some(Duration::from_secs(60))] {
        new.id = RequestId::random().unwrap();
        new.cancel_after = cancel_after;
        let version = worker.backlog().await.unwrap().version;
        front.enqueue(new.clone()).await.unwrap();
        let change = soon(worker.changed(version)).await.unwrap();
        let backlog = worker.backlog().await.unwrap();
        let head = Box::new(backlog.queues[0].clone());
        let version = backlog.version;
        assert_eq!(change, BacklogChange::NewHead { version, head });
        // A more urgent one in the same queue: which of the two is the head has to be read.
        let mut urgent = new.clone();
        (urgent.id, urgent.level) = (RequestId::random().unwrap(), 0);
        front.enqueue(urgent).await.unwrap();
        let change = soon(worker.changed(version)).await.unwrap();
        assert_eq!(change, BacklogChange::Any);
        assert_eq!(worker.fetch("model", 2).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_worker_misses_no_request_that_comes_while_it_takes_others() {
    let server = Server::start();
    let store = Arc::new(open(&server, short()).await);
    let echo = service_fn(async |request: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let queue = QueueLayer::new(QueueConfig::new(2));
    let gate = queue.handle().gate().unwrap().clone();
    let worker = Worker::new(store.clone(), queue.layer(echo)).slots(gate);
    let worker = tokio::spawn(worker.run());
    // So few callers that most requests are the last of their queue.
    let callers = (0..3).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..200 {
                let stored = encode_request(&Request::new(Bytes::new()));
                let new = NewRequest::new(RequestId::random().unwrap(), stored);
                let ended = store.ended(new.id);
                store.enqueue(new).await.unwrap();
                soon(ended).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    worker.abort();
}

#[tokio::test]
async fn urgent_requests_go_first_and_equals_by_arrival() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let mut expected = Vec::new();
    for i in 0..20 {
        let mut request = request("");
        request.tenant = format!("tenant-{}", i % 7).into_bytes();
        request.level = u8::from(i % 3 != 0);
        expected.push((request.level, i, request.id));
        store.enqueue(request).await.unwrap();
    }
    expected.sort();
    assert_eq!(store.position(expected[12].2).await.unwrap(), Some(13));
    let backlog = store.backlog().await.unwrap();
    assert_eq!(backlog.queues[0].info.id, expected[0].2);
    assert_eq!(backlog.queues[0].runnable, 20);
    let fetched = store.fetch("", 30).await.unwrap();
    let order: Vec<_> = fetched.iter().map(|fetched| fetched.lease.id()).collect();
    assert_eq!(
        order,
        expected.iter().map(|(_, _, id)| *id).collect::<Vec<_>>()
    );
    assert!(store.backlog().await.unwrap().queues.is_empty());
}

#[tokio::test]
async fn requests_that_come_together_share_calls_and_keep_their_order() {
    let server = Server::start();
    let store = open(&server, short()).await;
    store_one(&store, "").await;
    store.fetch("", 1).await.unwrap();
    server.ask("CONFIG RESETSTAT").unwrap();
    let requests: Vec<_> = (0..100).map(|_| request("")).collect();
    let ids: Vec<_> = requests.iter().map(|request| request.id).collect();
    let stored = requests.into_iter().map(|request| store.enqueue(request));
    for stored in futures_util::future::join_all(stored).await {
        assert!(matches!(stored, Ok(Enqueued::New(_))), "{stored:?}");
    }
    let fetched = store.fetch("", 100).await.unwrap();
    let order: Vec<_> = fetched.iter().map(|fetched| fetched.lease.id()).collect();
    assert_eq!(order, ids);
    let outcomes = fetched
        .into_iter()
        .map(|fetched| store.finish(fetched.lease, responded(200, "")));
    for recorded in futures_util::future::join_all(outcomes).await {
        assert!(recorded.unwrap());
    }
    let stats = server.ask("INFO commandstats").unwrap();
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).unwrap();
    let calls: u32 = calls.split(',').next().unwrap().parse().unwrap();
    // Others are the store's own.
    assert!(calls < 50, "{calls} calls for 100 requests");
}

#[tokio::test]
async fn a_level_has_its_weight_of_the_starts() {
    let server = Server::start();
    let mut config = short();
    config.order.level_weights.insert("high".into(), 3);
    let store = open(&server, config).await;
    for i in 0..16 {
        let mut request = request("");
        request.level = i % 2;
        store.enqueue(request).await.unwrap();
    }
    let mut high = 0;
    for _ in 0..8 {
        high += usize::from(take(&store).await.info.level == 0);
    }
    assert_eq!(high, 6);
}

#[tokio::test]
async fn an_idempotency_key_has_one_request() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let with_key = |fingerprint| {
        let mut request = request("");
        request.tenant = b"t".to_vec();
        request.idempotency = Some(Idempotency {
            key: "k".into(),
            fingerprint: [fingerprint; 32],
        });
        request
    };
    let first = with_key(1);
    let id = first.id;
    assert!(matches!(
        store.enqueue(first.clone()).await.unwrap(),
        Enqueued::New(_)
    ));
    for again in [first, with_key(1)] {
        let Enqueued::Known(info) = store.enqueue(again).await.unwrap() else {
            panic!("stored twice");
        };
        assert_eq!(info.id, id);
    }
    let error = store.enqueue(with_key(2)).await.unwrap_err();
    assert_eq!(error, StoreError::IdempotencyKeyReused);
    let mut other = with_key(2);
    other.tenant = b"u".to_vec();
    assert!(matches!(
        store.enqueue(other).await.unwrap(),
        Enqueued::New(_)
    ));
}

#[tokio::test]
async fn bounds_hold_until_requests_have_ended() {
    let server = Server::start();
    let store = open(&server, short().max_size(3).max_size_per_tenant(2)).await;
    let of = |tenant: &str| {
        let mut request = request("");
        request.tenant = tenant.into();
        request
    };
    let id = store.enqueue(of("a")).await.unwrap().info().id;
    store.enqueue(of("a")).await.unwrap();
    let error = store.enqueue(of("a")).await.unwrap_err();
    assert_eq!(error, StoreError::TenantQueueFull { max_size: 2 });
    store.enqueue(of("b")).await.unwrap();
    let error = store.enqueue(of("c")).await.unwrap_err();
    assert_eq!(error, StoreError::QueueFull { max_size: 3 });
    let canceled = store.cancel(id).await.unwrap().unwrap();
    assert_eq!(canceled.status, RequestStatus::Canceled);
    assert_eq!(store.cancel(id).await.unwrap().unwrap(), canceled);
    store.enqueue(of("a")).await.unwrap();
}

#[tokio::test]
async fn cancellation_stops_a_running_attempt_elsewhere() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    let id = store_one(&front, "").await;
    let fetched = take(&worker).await;
    front.cancel(id).await.unwrap().unwrap();
    let stop = soon(worker.stopped(&fetched.lease)).await.unwrap();
    assert_eq!(stop, Stop::Canceled);
    assert!(
        !worker
            .finish(fetched.lease, responded(200, ""))
            .await
            .unwrap()
    );
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Canceled);
}

#[tokio::test]
async fn a_deadline_ends_waiting_and_running_requests() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let mut ids = Vec::new();
    let mut cancel_after = Duration::from_millis(300);
    let fetched = loop {
        ids.clear();
        for _ in 0..2 {
            let mut request = request("");
            request.cancel_after = Some(cancel_after);
            ids.push(request.id);
            store.enqueue(request).await.unwrap();
        }
        let fetched = store.fetch("", 1).await.unwrap().pop();
        match fetched.filter(|fetched| fetched.lease.id() == ids[0]) {
            Some(fetched) => break fetched,
            // The deadline passed before, on a busy machine.
            None => cancel_after *= 2,
        }
        for id in &ids {
            soon(store.ended(*id)).await.unwrap();
        }
    };
    for id in &ids {
        soon(store.ended(*id)).await.unwrap();
    }
    let status = async |id| {
        let info = store.get(id).await.unwrap().unwrap();
        assert_eq!(info.reason.as_deref(), Some("deadline_exceeded"));
        info.status
    };
    assert_eq!(status(ids[0]).await, RequestStatus::Canceled);
    assert_eq!(status(ids[1]).await, RequestStatus::Aborted);
    assert_eq!(
        soon(store.stopped(&fetched.lease)).await.unwrap(),
        Stop::Canceled
    );
}

#[tokio::test]
async fn a_delayed_request_begins_at_its_time() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let mut late = request("late");
    late.delay = Some(Duration::from_secs(60 * 60));
    let stored = store.enqueue(late).await.unwrap();
    let not_before = stored.info().not_before.unwrap();
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    assert_eq!(store.backlog().await.unwrap().next, Some(not_before));
    let depth = store.depths().await.unwrap().pop().unwrap();
    assert_eq!((depth.queued, depth.running), (1, 0));
    let mut soon = request("soon");
    soon.delay = Some(Duration::from_millis(200));
    let stored = store.enqueue(soon).await.unwrap();
    let not_before = stored.info().not_before.unwrap();
    let fetched = take(&store).await;
    assert_eq!(fetched.request, "soon");
    assert!(fetched.info.started.unwrap() >= not_before);
}

#[tokio::test]
async fn a_retry_waits_and_keeps_its_place() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let id = store_one(&store, "first").await;
    store_one(&store, "second").await;
    let fetched = take(&store).await;
    let again = |after, counts| Outcome::Retry { after, counts };
    let lease = fetched.lease;
    assert!(
        store
            .finish(lease, again(Duration::ZERO, false))
            .await
            .unwrap()
    );
    let fetched = take(&store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    let outcome = again(Duration::from_secs(60 * 60), true);
    assert!(store.finish(fetched.lease, outcome).await.unwrap());
    let second = take(&store).await;
    assert_eq!(second.request, "second");
    let (id, outcome) = (second.lease.id(), again(Duration::from_millis(100), true));
    assert!(store.finish(second.lease, outcome).await.unwrap());
    let fetched = take(&store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 2));
}

#[tokio::test]
async fn a_failed_request_can_be_put_back() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let id = store_one(&store, "").await;
    let fetched = take(&store).await;
    let outcome = Outcome::Failed {
        reason: "attempt_timeout".into(),
    };
    store.finish(fetched.lease, outcome).await.unwrap();
    let listing = || {
        let mut listing = Listing::default();
        listing.status = Some(RequestStatus::Failed);
        listing.limit = 10;
        listing
    };
    let page = store.list(listing()).await.unwrap();
    assert_eq!(page.requests[0].reason.as_deref(), Some("attempt_timeout"));
    let info = store.retry(id).await.unwrap().unwrap();
    assert_eq!(
        (info.status, info.attempts, info.reason),
        (RequestStatus::Queued, 0, None)
    );
    assert!(store.list(listing()).await.unwrap().requests.is_empty());
    let fetched = take(&store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
}

#[tokio::test]
async fn lists_are_newest_first_and_by_tenant() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let mut ids = Vec::new();
    for i in 0..5 {
        let mut request = request("");
        request.tenant = if i % 2 == 0 {
            b"a".to_vec()
        } else {
            b"b".to_vec()
        };
        request.is_listed = i != 4;
        ids.push(request.id);
        store.enqueue(request).await.unwrap();
    }
    let list = async |tenant: Option<&str>, after: Option<RequestId>, limit| {
        let mut listing = Listing::default();
        listing.tenant = tenant.map(Into::into);
        listing.after = after;
        listing.limit = limit;
        let page = store.list(listing).await.unwrap();
        let ids: Vec<_> = page.requests.iter().map(|info| info.id).collect();
        (ids, page.has_more)
    };
    assert_eq!(
        list(None, None, 3).await,
        (vec![ids[3], ids[2], ids[1]], true)
    );
    assert_eq!(list(None, Some(ids[1]), 3).await, (vec![ids[0]], false));
    assert_eq!(
        list(Some("a"), None, 2).await,
        (vec![ids[2], ids[0]], false)
    );
}

#[tokio::test]
async fn ended_requests_are_forgotten_after_their_retention() {
    let server = Server::start();
    let store = open(&server, short().retention(Duration::from_millis(300))).await;
    let mut with_key = request("");
    with_key.idempotency = Some(Idempotency {
        key: "k".into(),
        fingerprint: [0; 32],
    });
    let id = with_key.id;
    store.enqueue(with_key.clone()).await.unwrap();
    store.cancel(id).await.unwrap();
    soon(async {
        while server.ask("EXISTS triage:{default}:list").unwrap() != ":0\r\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(store.get(id).await.unwrap(), None);
    with_key.id = RequestId::random().unwrap();
    assert!(matches!(
        store.enqueue(with_key).await.unwrap(),
        Enqueued::New(_)
    ));
}

#[tokio::test]
async fn a_pause_keeps_its_requests_from_being_taken() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let of = |tenant: &str| {
        let mut request = request(tenant);
        request.tenant = tenant.into();
        request
    };
    for tenant in ["a", "b", "a", "b"] {
        store.enqueue(of(tenant)).await.unwrap();
    }
    let scope = PauseScope::Tenant(b"a".to_vec());
    let pause = Pause {
        scope: scope.clone(),
        reason: "a leak".into(),
        until: None,
    };
    store.pause(pause.clone()).await.unwrap();
    assert_eq!(store.pauses().await.unwrap(), [pause]);
    let taken = store.fetch("", 1).await.unwrap();
    assert_eq!(taken[0].info.tenant, b"b");
    assert_eq!(store.depths().await.unwrap()[0].queued, 3);
    assert!(store.resume(scope.clone()).await.unwrap());
    assert!(!store.resume(scope).await.unwrap());
    assert_eq!(store.backlog().await.unwrap().queues[0].runnable, 3);
    let taken = store.fetch("", 9).await.unwrap();
    let tenants: Vec<_> = taken
        .iter()
        .map(|fetched| &fetched.info.tenant[..])
        .collect();
    assert_eq!(tenants, [b"a", b"a", b"b"]);

    let pause_for = |time| {
        store.pause(Pause {
            scope: PauseScope::Queue(String::new()),
            reason: String::new(),
            until: Some(std::time::SystemTime::now() + time),
        })
    };
    pause_for(Duration::from_secs(60 * 60)).await.unwrap();
    store_one(&store, "").await;
    assert!(store.backlog().await.unwrap().queues.is_empty());
    pause_for(Duration::from_millis(200)).await.unwrap();
    take(&store).await;
    assert!(store.pauses().await.unwrap().is_empty());
}

#[tokio::test]
async fn webhooks_are_due_until_they_are_settled() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let mut request = request("");
    request.webhook = Some("https://example.com/".into());
    let id = request.id;
    store.enqueue(request).await.unwrap();
    assert!(store.due_webhooks(9).await.unwrap().is_empty());
    store.cancel(id).await.unwrap();
    let due = store.due_webhooks(9).await.unwrap();
    assert_eq!((due[0].info.id, due[0].tries), (id, 0));
    assert_eq!(due[0].url, "https://example.com/");
    assert!(store.due_webhooks(9).await.unwrap().is_empty());
    store
        .settle_webhook(id, 0, Some(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(store.due_webhooks(9).await.unwrap()[0].tries, 1);
    store.settle_webhook(id, 0, None).await.unwrap();
    store
        .settle_webhook(id, 0, Some(Duration::ZERO))
        .await
        .unwrap();
    assert!(store.due_webhooks(9).await.unwrap().is_empty());
}

#[tokio::test]
async fn values_are_kept_and_listed_by_prefix() {
    let server = Server::start();
    let store = open(&server, short()).await;
    for key in ["file/b", "file/a", "file/c", "batch/a", "filet"] {
        store.put(key, Bytes::from(key)).await.unwrap();
    }
    store
        .put("file/a", Bytes::from_static(b"new"))
        .await
        .unwrap();
    assert_eq!(store.value("file/a").await.unwrap().unwrap(), "new");
    let keys = async |prefix, after, max| {
        let values = store.values(prefix, after, max).await.unwrap();
        values.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(keys("file/", None, 2).await, ["file/a", "file/b"]);
    assert_eq!(keys("file/", Some("file/a"), 9).await, ["file/b", "file/c"]);
    assert_eq!(keys("", None, 9).await.len(), 5);
    assert!(store.remove("file/b").await.unwrap());
    assert!(!store.remove("file/b").await.unwrap());
    assert_eq!(store.value("file/b").await.unwrap(), None);
}

#[tokio::test]
async fn pieces_are_read_elsewhere_while_they_are_made() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    let id = store_one(&front, "").await;
    assert_eq!(
        front.chunks(RequestId::random().unwrap(), 0).await.unwrap(),
        None
    );
    let fetched = take(&worker).await;
    let (read, ()) = tokio::join!(soon(front.chunks(id, 0)), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        worker
            .append(&fetched.lease, Bytes::from_static(b"one"))
            .await
            .unwrap();
    });
    let read = read.unwrap().unwrap();
    assert_eq!(
        (read.chunks[0].number, &read.chunks[0].data[..]),
        (1, &b"one"[..])
    );
    assert!(!read.is_end && !read.has_gap);
    for _ in 0..1_024 {
        worker
            .append(&fetched.lease, Bytes::from_static(b"more"))
            .await
            .unwrap();
    }
    worker
        .finish(fetched.lease, responded(200, ""))
        .await
        .unwrap();
    let (mut after, mut count) = (0, 0);
    loop {
        let read = front.chunks(id, after).await.unwrap().unwrap();
        assert_eq!(read.has_gap, after == 0);
        count += read.chunks.len();
        match read.chunks.last() {
            Some(last) if !read.is_end => after = last.number,
            _ => break,
        }
    }
    assert_eq!(count, 1_024);
    let read = front.chunks(id, 1_025).await.unwrap().unwrap();
    assert_eq!(
        (read.chunks.len(), read.has_gap, read.is_end),
        (0, false, true)
    );
}

#[tokio::test]
async fn bytes_of_a_tenant_follow_its_requests() {
    let server = Server::start();
    let (front, worker) = (open(&server, short()).await, open(&server, short()).await);
    let bytes = async || front.stored_bytes(b"").await.unwrap();
    let body = "x".repeat(1_000);
    let id = store_one(&front, &body).await;
    let fetched = take(&worker).await;
    let outcome = responded(500, "failed");
    assert!(worker.finish(fetched.lease, outcome).await.unwrap());
    assert_eq!(bytes().await, 1_006);
    worker.retry(id).await.unwrap();
    assert_eq!(bytes().await, 1_000);
    // Pieces are kept beside the response.
    let fetched = take(&worker).await;
    for _ in 0..10 {
        let piece = Bytes::from(body.clone());
        worker.append(&fetched.lease, piece).await.unwrap();
    }
    let outcome = responded(500, "failed");
    assert!(worker.finish(fetched.lease, outcome).await.unwrap());
    let with_pieces = bytes().await;
    assert!((11_006..30_000).contains(&with_pieces), "{with_pieces}");
    worker.retry(id).await.unwrap();
    assert_eq!(bytes().await, 1_000);
}

#[tokio::test]
async fn bytes_of_a_request_that_an_earlier_version_ended_are_taken_back() {
    let server = Server::start();
    let front = open(&server, short().retention(Duration::from_millis(300))).await;
    let mut new = request("body");
    new.tenant = b"t".to_vec();
    let id = new.id;
    front.enqueue(new).await.unwrap();
    // An earlier version counts nothing when a request ends.
    let sizes = "triage:{default}:sizes";
    let counted = server.ask(&format!("HGET {sizes} {id}")).unwrap();
    front.cancel(id).await.unwrap();
    match counted.lines().nth(1) {
        Some(size) => server.ask(&format!("HSET {sizes} {id} {size}")),
        None => server.ask(&format!("HDEL {sizes} {id}")),
    };
    soon(async {
        while front.stored_bytes(b"t").await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(server.ask(&format!("EXISTS {sizes}")).unwrap(), ":0\r\n");
}

#[tokio::test]
async fn bytes_are_free_where_redis_has_a_limit() {
    let server = Server::with(&["--maxmemory", "100mb"]);
    let store = open(&server, short()).await;
    let free = store.free_bytes().await.unwrap().unwrap();
    assert!((50_000_000..104_857_600).contains(&free), "{free}");
    let server = Server::start();
    assert_eq!(
        open(&server, short()).await.free_bytes().await.unwrap(),
        None
    );
}

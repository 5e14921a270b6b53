//! Webhooks over real sockets, from a store in memory.

#[path = "../durable_layer/faulty.rs"]
mod faulty;
#[path = "../../../../tests/support/log.rs"]
mod log;
mod receiver;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faulty::Faulty;
use log::Log;
use receiver::Receiver;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower_triage_durable::webhooks::{WebhookAddresses, WebhookSecret, WebhookSender};
use tower_triage_durable::{NewRequest, Outcome, RequestId, Store, StoreConfig};
use tower_triage_embedded::EmbeddedStore;
use tracing_subscriber::filter::LevelFilter;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn store() -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::in_memory(StoreConfig::default()).unwrap())
}

fn send(store: &Arc<dyn Store>, addresses: WebhookAddresses) -> JoinHandle<()> {
    let secret = WebhookSecret::parse(SECRET).unwrap();
    tokio::spawn(WebhookSender::new(Arc::clone(store), secret, addresses).run())
}

/// Stores a request with a webhook, and ends it.
async fn end(store: &Arc<dyn Store>, url: &str) -> RequestId {
    end_of(store, "", url).await
}

/// Stores a request of a tenant with a webhook, and ends it.
async fn end_of(store: &Arc<dyn Store>, tenant: &str, url: &str) -> RequestId {
    let id = RequestId::random().unwrap();
    let mut request = NewRequest::new(id, Bytes::new());
    request.webhook = Some(url.to_owned());
    request.tenant = tenant.into();
    store.enqueue(request).await.unwrap();
    store.cancel(id).await.unwrap();
    id
}

#[tokio::test]
async fn a_webhook_is_signed_and_has_the_requests_object() {
    let store = store();
    let mut receiver = Receiver::start(|_| 204).await;
    let sender = send(&store, WebhookAddresses::all());
    let id = end(&store, &receiver.url("/hook?a=b")).await.to_string();
    let told = receiver.next().await;
    assert_eq!(told.path, "/hook?a=b");
    assert_eq!(told.headers["webhook-id"], id);
    assert_eq!(told.headers["content-type"], "application/json");
    let timestamp: u64 = told.headers["webhook-timestamp"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let secret = WebhookSecret::parse(SECRET).unwrap();
    assert_eq!(
        told.headers["webhook-signature"],
        secret.sign(&id, timestamp, &told.body)
    );
    let object: Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!(
        (object["id"].as_str(), object["status"].as_str()),
        (Some(&*id), Some("canceled"))
    );
    // Once is enough.
    sleep(Duration::from_millis(1_500)).await;
    assert!(receiver.try_next().is_none());
    sender.abort();
}

#[tokio::test]
async fn a_failed_webhook_is_sent_again_with_its_id_over_restarts() {
    let log = Log::default();
    let _guards = log.install(LevelFilter::DEBUG);
    let store = store();
    let mut receiver = Receiver::start(|tries| if tries < 3 { 500 } else { 200 }).await;
    let sender = send(&store, WebhookAddresses::all());
    let id = end(&store, &receiver.url("/")).await;
    let first = receiver.next().await;
    // The try is settled before the sender dies.
    has_failed(&log, id).await;
    sleep(Duration::from_millis(300)).await;
    sender.abort();
    let id = id.to_string();
    let sender = send(&store, WebhookAddresses::all());
    let (second, third) = (receiver.next().await, receiver.next().await);
    for told in [&first, &second, &third] {
        assert_eq!(told.headers["webhook-id"], id);
    }
    // From 1 s, doubling.
    assert!(second.at - first.at >= Duration::from_millis(900));
    assert!(third.at - second.at >= Duration::from_millis(1_900));
    sender.abort();
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let store = store();
    let mut receiver = Receiver::start(|_| 307).await;
    let sender = send(&store, WebhookAddresses::all());
    end(&store, &receiver.url("/")).await;
    assert_eq!(receiver.next().await.path, "/");
    assert_eq!(receiver.next().await.path, "/"); // again, and nowhere else
    sender.abort();
}

#[tokio::test]
async fn private_addresses_are_refused_at_connect() {
    let log = Log::default();
    let _guards = log.install(LevelFilter::DEBUG);
    let store = store();
    let mut receiver = Receiver::start(|_| 200).await;
    let sender = send(&store, WebhookAddresses::public());
    let port = receiver.port();
    // As if they had been stored when they were allowed. The first is resolved, the others are numbers.
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "2130706433"] {
        let id = end(&store, &format!("http://{host}:{port}/")).await;
        has_failed(&log, id).await;
    }
    assert!(receiver.try_next().is_none());
    sender.abort();
}

/// Waits until a try to send the webhook of a request has failed.
async fn has_failed(log: &Log, id: RequestId) {
    let (id, mut lines) = (id.to_string(), String::new());
    while !lines
        .lines()
        .any(|line| line.contains(&id) && line.contains("is sent again in"))
    {
        sleep(Duration::from_millis(5)).await;
        lines += &log.take();
    }
}

#[tokio::test]
async fn a_receiver_that_never_responds_holds_up_no_other() {
    let store = store();
    let silent = Receiver::start_silent().await;
    let mut receiver = Receiver::start(|_| 200).await;
    let sender = send(&store, WebhookAddresses::all());
    for _ in 0..8 {
        end(&store, &silent.url("/")).await;
    }
    let id = end(&store, &receiver.url("/")).await.to_string();
    assert_eq!(receiver.next().await.headers["webhook-id"], id);
    sender.abort();
}

/// Its webhooks are more than there are places for all.
#[tokio::test]
async fn a_receiver_that_never_responds_has_few_places() {
    let store = store();
    let silent = Receiver::start_silent().await;
    let mut receiver = Receiver::start(|_| 200).await;
    for _ in 0..300 {
        end_of(&store, "a", &silent.url("/")).await;
    }
    let own = end_of(&store, "a", &receiver.url("/")).await;
    let other = end_of(&store, "b", &receiver.url("/")).await;
    let sender = send(&store, WebhookAddresses::all());
    let mut told = Vec::new();
    for _ in 0..2 {
        let id = receiver.next().await.headers["webhook-id"].clone();
        told.push(id.to_str().unwrap().to_owned());
    }
    told.sort();
    let mut expected = [own.to_string(), other.to_string()];
    expected.sort();
    assert_eq!(told, expected);
    assert!(silent.connections() <= 16, "{}", silent.connections());
    sender.abort();
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_no_further_try() {
    let store = store();
    let mut receiver = Receiver::start(|_| 410).await;
    let sender = send(&store, WebhookAddresses::all());
    end(&store, &receiver.url("/")).await;
    receiver.next().await;
    sleep(Duration::from_millis(2_500)).await; // the next try would be after 1 s
    assert!(receiver.try_next().is_none());
    sender.abort();
}

#[tokio::test]
async fn a_receiver_sets_the_time_of_the_next_try() {
    let store = store();
    let status = |tries| if tries < 2 { 503 } else { 200 };
    let mut receiver = Receiver::start_with(status, "3").await;
    let sender = send(&store, WebhookAddresses::all());
    end(&store, &receiver.url("/")).await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    assert!(second.at - first.at >= Duration::from_millis(2_900));
    sender.abort();
}

/// The clock is set while the receiver has the webhook.
#[tokio::test]
async fn a_webhook_is_sent_again_though_the_clock_is_set_meanwhile() {
    let faulty = Faulty::new(store());
    let store: Arc<dyn Store> = faulty.clone();
    let mut receiver = Receiver::start(move |tries| {
        faulty.set_clock(48);
        if tries < 2 { 503 } else { 200 }
    })
    .await;
    let sender = send(&store, WebhookAddresses::all());
    let id = end(&store, &receiver.url("/")).await.to_string();
    assert_eq!(receiver.next().await.headers["webhook-id"], id);
    let again = timeout(Duration::from_secs(30), receiver.next()).await;
    assert_eq!(again.expect("it is sent again").headers["webhook-id"], id);
    sender.abort();
}

/// Its address is refused, so that no try needs a socket.
#[tokio::test(start_paused = true)]
async fn a_webhook_is_tried_for_a_day_whatever_the_clock_is_set_to() {
    const MINUTE: Duration = Duration::from_secs(60);
    for hours_ahead in [0, 48, -48] {
        let log = Log::default();
        let _guards = log.install(LevelFilter::WARN);
        let faulty = Faulty::new(store());
        let store: Arc<dyn Store> = faulty.clone();
        end(&store, "http://127.0.0.1/").await;
        faulty.set_clock(hours_ahead);
        for (hours, is_given_up) in [(23, false), (1, true)] {
            sleep(MINUTE * 60 * hours).await;
            let sender = send(&store, WebhookAddresses::public());
            sleep(MINUTE * 5).await;
            sender.abort();
            let given_up = log.take().contains("is given up");
            assert_eq!(given_up, is_given_up, "{hours_ahead} h");
        }
    }
}

#[tokio::test]
async fn each_end_of_a_retried_request_is_a_message_of_its_own() {
    let store = store();
    let mut receiver = Receiver::start(|_| 200).await;
    let sender = send(&store, WebhookAddresses::all());
    let id = RequestId::random().unwrap();
    let mut request = NewRequest::new(id, Bytes::new());
    request.webhook = Some(receiver.url("/"));
    store.enqueue(request).await.unwrap();
    for expected in [id.to_string(), format!("{id}-1"), format!("{id}-2")] {
        let fetched = store.fetch("", 1).await.unwrap().remove(0);
        let reason = "broken".to_owned();
        let failed = Outcome::Failed { reason };
        assert!(store.finish(fetched.lease, failed).await.unwrap());
        assert_eq!(receiver.next().await.headers["webhook-id"], expected);
        store.retry(id).await.unwrap();
    }
    sender.abort();
}

#[tokio::test]
async fn an_old_secret_and_a_new_one_both_sign() {
    let store = store();
    let mut receiver = Receiver::start(|_| 200).await;
    let other = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let secrets = [SECRET, other].map(|text| WebhookSecret::parse(text).unwrap());
    let sender = WebhookSender::new(
        Arc::clone(&store),
        secrets[0].clone(),
        WebhookAddresses::all(),
    );
    let sender = tokio::spawn(sender.also_signing(secrets[1].clone()).run());
    let id = end(&store, &receiver.url("/")).await.to_string();
    let told = receiver.next().await;
    let timestamp = told.headers["webhook-timestamp"].to_str().unwrap();
    let timestamp = timestamp.parse().unwrap();
    let signatures = secrets.map(|secret| secret.sign(&id, timestamp, &told.body));
    assert_eq!(told.headers["webhook-signature"], signatures.join(" "));
    sender.abort();
}

//! Webhooks over real sockets, from a store in memory.

mod receiver;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use receiver::Receiver;
use serde_json::Value;
use tokio::task::JoinHandle;
use tower_triage::durable::webhooks::{WebhookAddresses, WebhookSecret, WebhookSender};
use tower_triage::durable::{EmbeddedStore, NewRequest, RequestId, Store, StoreConfig};

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
    let id = RequestId::random().unwrap();
    let mut request = NewRequest::new(id, Bytes::new());
    request.webhook = Some(url.to_owned());
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
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(receiver.try_next().is_none());
    sender.abort();
}

#[tokio::test]
async fn a_failed_webhook_is_sent_again_with_its_id_over_restarts() {
    let store = store();
    let mut receiver = Receiver::start(|tries| if tries < 3 { 500 } else { 200 }).await;
    let sender = send(&store, WebhookAddresses::all());
    let id = end(&store, &receiver.url("/")).await.to_string();
    let first = receiver.next().await;
    // The try is settled before the sender dies.
    tokio::time::sleep(Duration::from_millis(300)).await;
    sender.abort();
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
    let store = store();
    let mut receiver = Receiver::start(|_| 200).await;
    let sender = send(&store, WebhookAddresses::public());
    let port = receiver.port();
    // As if they had been stored when they were allowed. The first is resolved, the others are numbers.
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "2130706433"] {
        end(&store, &format!("http://{host}:{port}/")).await;
    }
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    assert!(receiver.try_next().is_none());
    sender.abort();
    let tries: Vec<_> = due_later(&store).await;
    assert_eq!(tries.len(), 4);
    assert!(tries.iter().all(|tries| *tries > 0), "{tries:?}");
}

/// Waits until all webhooks are due again, and returns the number of tries of each.
async fn due_later(store: &Arc<dyn Store>) -> Vec<u32> {
    let mut tries = Vec::new();
    for _ in 0..200 {
        tries.extend(
            store
                .due_webhooks(10)
                .await
                .unwrap()
                .iter()
                .map(|due| due.tries),
        );
        if tries.len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tries
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

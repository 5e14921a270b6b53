//! Messages to webhooks that tell of something other than the end of a request, such as that of a batch. They are values of a
//! store until they are settled.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OutboxRow {
    pub(super) tenant: String,
    pub(super) url: String,
    /// The body of the message, in JSON.
    pub(super) body: String,
    /// The time of what the message tells of, in milliseconds since 1970, by the store's clock.
    pub(super) at: u64,
    /// The time from which on the message is to be sent, in milliseconds since 1970.
    due: u64,
    /// The number of earlier tries to send the message.
    pub(super) tries: u32,
}

/// The prefix of the keys, which the id of the message follows.
const OUTBOX: &str = "outbox/";
/// The time after which a message that was taken is due again, in case its sender was lost.
#[cfg(feature = "client")]
const AGAIN: Duration = Duration::from_secs(60);
/// The time after which a message is removed. Senders give up an hour earlier.
#[cfg(feature = "client")]
const LONGEST: Duration = Duration::from_secs(25 * 60 * 60);
/// The number of messages that one look reads.
#[cfg(feature = "client")]
const AT_ONCE: usize = 100;

/// Stores a message, unless there is one with this id.
pub(super) async fn post(
    store: &Arc<dyn Store>,
    id: &str,
    tenant: &str,
    url: &str,
    body: String,
) -> Result<(), StoreError> {
    let key = key(id);
    if store.value(&key).await?.is_some() {
        return Ok(());
    }
    let now = millis(store.now());
    let row = OutboxRow {
        tenant: tenant.to_owned(),
        url: url.to_owned(),
        body,
        at: now,
        due: now,
        tries: 0,
    };
    store.put(&key, encode(&row)).await
}

/// A reader of the messages that are due. Each look goes on behind the one before, so that many that are not due yet hold up
/// no other one.
#[cfg(feature = "client")]
#[derive(Debug, Default)]
pub(super) struct Outbox {
    after: Option<String>,
}

#[cfg(feature = "client")]
impl Outbox {
    /// Takes messages that are due, with their ids. Each of them becomes due again after a minute, unless it is settled.
    pub(super) async fn take_due(
        &mut self,
        store: &Arc<dyn Store>,
    ) -> Result<Vec<(String, OutboxRow)>, StoreError> {
        let found = store.values(OUTBOX, self.after.as_deref(), AT_ONCE).await?;
        // A store may return fewer than there are, so only an empty answer is the end.
        self.after = found.last().map(|(key, _)| key.clone());
        let now = millis(store.now());
        let mut due = Vec::new();
        for (key, value) in found {
            let row = serde_json::from_slice::<OutboxRow>(&value).ok();
            // One that can't be read, or that no sender has sent for a day, would be here for ever.
            let Some(row) = row.filter(|row| now.saturating_sub(row.at) < ms(LONGEST)) else {
                store.remove(&key).await?;
                continue;
            };
            if row.due > now {
                continue;
            }
            let taken = OutboxRow {
                due: now.saturating_add(ms(AGAIN)),
                tries: row.tries.saturating_add(1),
                ..row.clone()
            };
            store.put(&key, encode(&taken)).await?;
            let id = key.strip_prefix(OUTBOX).unwrap_or(&key);
            due.push((id.to_owned(), row));
        }
        Ok(due)
    }
}

/// Settles a message that was taken: for good, or until `again` has passed.
#[cfg(feature = "client")]
pub(super) async fn settle(
    store: &Arc<dyn Store>,
    id: &str,
    row: &OutboxRow,
    again: Option<Duration>,
) -> Result<(), StoreError> {
    let Some(again) = again else {
        store.remove(&key(id)).await?;
        return Ok(());
    };
    let row = OutboxRow {
        due: millis(store.now()).saturating_add(ms(again)),
        tries: row.tries.saturating_add(1),
        ..row.clone()
    };
    store.put(&key(id), encode(&row)).await
}

fn key(id: &str) -> String {
    format!("{OUTBOX}{id}")
}

fn encode(row: &OutboxRow) -> Bytes {
    serde_json::to_vec(row)
        .expect("its fields are strings and numbers")
        .into()
}

fn millis(time: SystemTime) -> u64 {
    ms(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(all(test, feature = "embedded", feature = "client", not(loom)))]
mod tests {
    use super::*;
    use crate::durable::{EmbeddedStore, StoreConfig};

    fn store() -> Arc<dyn Store> {
        Arc::new(EmbeddedStore::in_memory(StoreConfig::default()).unwrap())
    }

    async fn post_to(store: &Arc<dyn Store>, id: &str) {
        let body = "{}".to_owned();
        post(store, id, "t", "http://a/", body).await.unwrap();
    }

    #[tokio::test]
    async fn a_message_is_due_once_until_it_is_settled() {
        let store = store();
        for _ in 0..2 {
            post_to(&store, "batch_1").await;
        }
        let mut outbox = Outbox::default();
        let due = outbox.take_due(&store).await.unwrap();
        let (id, row) = &due[0];
        assert_eq!((due.len(), &**id, row.tries), (1, "batch_1", 0));
        assert!(outbox.take_due(&store).await.unwrap().is_empty());
        settle(&store, id, row, Some(Duration::ZERO)).await.unwrap();
        let due = outbox.take_due(&store).await.unwrap();
        assert_eq!((due.len(), due[0].1.tries), (1, 1));
        settle(&store, id, row, None).await.unwrap();
        assert!(store.value(&key(id)).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn many_that_are_not_due_hold_up_no_other() {
        // Of long messages, a look gets fewer than it asks for.
        for (messages, length) in [(2 * AT_ONCE, 2), (9, 30_000)] {
            let store = store();
            for nth in 0..messages {
                let (id, body) = (format!("{nth:04}"), "x".repeat(length));
                post(&store, &id, "t", "http://a/", body).await.unwrap();
            }
            let mut outbox = Outbox::default();
            let mut taken = 0;
            for _ in 0..4 {
                taken += outbox.take_due(&store).await.unwrap().len();
            }
            assert_eq!(taken, messages, "of {length} bytes");
        }
    }

    #[tokio::test]
    async fn what_can_not_be_sent_is_removed() {
        let store = store();
        let old = OutboxRow {
            tenant: String::new(),
            url: "http://a/".to_owned(),
            body: String::new(),
            at: 1,
            due: 1,
            tries: 0,
        };
        store.put(&key("old"), encode(&old)).await.unwrap();
        store.put(&key("odd"), Bytes::from("?")).await.unwrap();
        assert!(Outbox::default().take_due(&store).await.unwrap().is_empty());
        assert!(store.values(OUTBOX, None, 9).await.unwrap().is_empty());
    }
}

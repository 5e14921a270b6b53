//! The messages of the outbox that are due.

use std::sync::Arc;
use std::time::Duration;

use crate::webhooks::outbox::{OUTBOX, OutboxRow, encode, key, millis, ms};
use crate::{Store, StoreError};

/// The time after which a message that was taken is due again, in case its sender was lost.
const AGAIN: Duration = Duration::from_secs(60);
/// The time after which a message is removed. Senders give up an hour earlier.
const LONGEST: Duration = Duration::from_secs(25 * 60 * 60);
/// The number of messages that one look reads.
const AT_ONCE: usize = 100;

/// A reader of the messages that are due. Each look goes on behind the one before, so that many that are not due yet hold up
/// no other one.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    after: Option<String>,
}

impl Outbox {
    /// Takes messages that are due, with their ids. Each of them becomes due again after a minute, unless it is settled.
    pub(super) async fn take_due(
        &mut self,
        store: &Arc<dyn Store>,
    ) -> Result<Vec<(String, OutboxRow)>, StoreError> {
        let Some(values) = store.key_values() else {
            return Ok(Vec::new());
        };
        let found = values
            .values(OUTBOX, self.after.as_deref(), AT_ONCE)
            .await?;
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::stub::Stub;
    use crate::webhooks::post;

    fn store() -> Arc<dyn Store> {
        Arc::new(Stub::default())
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

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

//! Messages to webhooks that tell of something other than the end of a request. They are values of a store until they are
//! settled.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Store, StoreError};

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
    pub(super) due: u64,
    /// The number of earlier tries to send the message.
    pub(super) tries: u32,
}

/// The prefix of the keys, which the id of the message follows.
pub(super) const OUTBOX: &str = "outbox/";

/// Stores a message, unless there is one with this id.
pub async fn post(
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

pub(super) fn key(id: &str) -> String {
    format!("{OUTBOX}{id}")
}

pub(super) fn encode(row: &OutboxRow) -> Bytes {
    serde_json::to_vec(row)
        .expect("its fields are strings and numbers")
        .into()
}

pub(super) fn millis(time: SystemTime) -> u64 {
    ms(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

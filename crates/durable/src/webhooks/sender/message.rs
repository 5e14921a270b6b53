//! A message to the receiver of a webhook.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::webhooks::outbox::OutboxRow;
use crate::{DueWebhook, RequestId, front};

/// A message that is due.
#[derive(Debug)]
pub(super) struct Message {
    /// The id by which receivers know the message if it is sent again.
    pub(super) id: String,
    pub(super) tenant: Vec<u8>,
    pub(super) url: String,
    pub(super) body: Bytes,
    /// The time since the end that the message tells of, as of when the message was taken from the store. The clock of the
    /// system may be set later.
    pub(super) age: Duration,
    /// The number of earlier tries to send the message.
    pub(super) tries: u32,
    pub(super) source: Source,
}

/// The place where a message is settled.
#[derive(Debug)]
pub(super) enum Source {
    /// A request, and the number of its retries before the end.
    Request(RequestId, u32),
    Outbox(OutboxRow),
}

impl Message {
    /// Creates the message of a request, where `now` is by the system's clock.
    pub(super) fn of_request(webhook: DueWebhook, now: SystemTime) -> Self {
        let info = &webhook.info;
        Self {
            // A request that was retried after its end ends again, and that is another message.
            id: match webhook.retries {
                0 => info.id.to_string(),
                retries => format!("{}-{retries}", info.id),
            },
            body: front::to_json(info),
            age: since(info.ended.unwrap_or(info.created), now),
            tries: webhook.tries,
            source: Source::Request(info.id, webhook.retries),
            tenant: webhook.info.tenant,
            url: webhook.url,
        }
    }

    /// Creates a message from the outbox, where `now` is by the store's clock.
    pub(super) fn of_outbox((id, row): (String, OutboxRow), now: SystemTime) -> Self {
        Self {
            id,
            tenant: row.tenant.clone().into_bytes(),
            url: row.url.clone(),
            body: row.body.clone().into(),
            age: since(UNIX_EPOCH + Duration::from_millis(row.at), now),
            tries: row.tries,
            source: Source::Outbox(row),
        }
    }
}

fn since(ended: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(ended).unwrap_or_default()
}

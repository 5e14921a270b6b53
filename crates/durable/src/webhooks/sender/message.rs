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
    /// The time of the end that the message tells of.
    pub(super) ended: SystemTime,
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

impl From<DueWebhook> for Message {
    fn from(webhook: DueWebhook) -> Self {
        let info = &webhook.info;
        Self {
            // A request that was retried after its end ends again, and that is another message.
            id: match webhook.retries {
                0 => info.id.to_string(),
                retries => format!("{}-{retries}", info.id),
            },
            body: front::to_json(info),
            ended: info.ended.unwrap_or(info.created),
            tries: webhook.tries,
            source: Source::Request(info.id, webhook.retries),
            tenant: webhook.info.tenant,
            url: webhook.url,
        }
    }
}

impl From<(String, OutboxRow)> for Message {
    fn from((id, row): (String, OutboxRow)) -> Self {
        Self {
            id,
            tenant: row.tenant.clone().into_bytes(),
            url: row.url.clone(),
            body: row.body.clone().into(),
            ended: UNIX_EPOCH + Duration::from_millis(row.at),
            tries: row.tries,
            source: Source::Outbox(row),
        }
    }
}

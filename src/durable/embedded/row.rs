//! The rows in which a request is written down. What a reader does not know is left out, what is missing has its default, so
//! that a newer version reads what an older one wrote.

use serde::{Deserialize, Serialize};

use super::time::Time;
use crate::durable::{Pause, PauseScope, RequestStatus};

/// The fields of a request that never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestRow {
    /// Its number: the time at which it was stored in nanoseconds, made unique.
    pub(crate) seq: u64,
    pub(crate) created: Time,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) queue: String,
    #[serde(default)]
    pub(crate) level: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenant: Vec<u8>,
    #[serde(default)]
    pub(crate) cost: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    #[serde(default)]
    pub(crate) is_unlisted: bool,
}

/// An idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    pub(crate) key: String,
    pub(crate) fingerprint: [u8; 32],
}

/// The fields of a request that change. A request without this row waits as it was stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StateRow {
    /// The status by its name.
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_status: Option<u16>,
    #[serde(default)]
    pub(crate) tries: u32,
    /// The time at which its webhook is told; `None` if there is nothing to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook_due: Option<Time>,
    /// The number of its response's last piece.
    #[serde(default)]
    pub(crate) chunks: u64,
    /// The number of the last piece of attempts before the latest one.
    #[serde(default)]
    pub(crate) dropped: u64,
}

impl StateRow {
    pub(crate) fn status(&self) -> Option<RequestStatus> {
        RequestStatus::from_name(&self.status)
    }
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PauseRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<Vec<u8>>,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
}

impl From<&Pause> for PauseRow {
    fn from(pause: &Pause) -> Self {
        let (queue, tenant) = match &pause.scope {
            PauseScope::All => (None, None),
            PauseScope::Queue(queue) => (Some(queue.clone()), None),
            PauseScope::Tenant(tenant) => (None, Some(tenant.clone())),
        };
        Self {
            queue,
            tenant,
            reason: pause.reason.clone(),
            until: pause.until.map(Time::from_system),
        }
    }
}

impl From<PauseRow> for Pause {
    fn from(row: PauseRow) -> Self {
        let scope = match (row.queue, row.tenant) {
            (Some(queue), _) => PauseScope::Queue(queue),
            (None, Some(tenant)) => PauseScope::Tenant(tenant),
            (None, None) => PauseScope::All,
        };
        Self {
            scope,
            reason: row.reason,
            until: row.until.map(Time::to_system),
        }
    }
}

//! The rows that describe a request on the disk. A reader ignores unknown fields and uses defaults for missing ones, so
//! a newer version of the crate can read the rows of an older one.

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::keys::Name;
use super::time::Time;
use tower_triage::{Priority, PriorityLevels};
use tower_triage_durable::{Pause, PauseScope, RequestId, RequestInfo, RequestStatus, StoreError};

/// The fields of a request that never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestRow {
    /// The id of the request, as a number.
    pub(crate) id: u128,
    /// The number of the request: the time at which it was stored, in nanoseconds since 1970, made unique.
    pub(crate) seq: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) queue: String,
    /// The number of the level, in the list of levels that the store had when it stored the request.
    #[serde(default)]
    pub(crate) level: u8,
    /// The name of the level. It decides on the level, because the list may change while the request waits. Earlier
    /// versions of the crate did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenant: Vec<u8>,
    #[serde(default = "default_cost")]
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
    /// The size of the body. 0 in the rows of earlier versions of the crate.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) body_bytes: u64,
}

/// An idempotency key, with the fingerprint of the request that came with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    /// The hashed name of the key together with its tenant.
    pub(crate) name: Name,
    pub(crate) fingerprint: [u8; 32],
}

impl RequestRow {
    /// Returns a row that has only an id and a number, and defaults in all other fields.
    pub(crate) fn new(id: RequestId, seq: u64) -> Self {
        Self {
            id: id.bits(),
            seq,
            queue: String::new(),
            level: 0,
            level_name: None,
            tenant: Vec::new(),
            cost: default_cost(),
            deadline: None,
            not_before: None,
            key: None,
            webhook: None,
            is_unlisted: false,
            body_bytes: 0,
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        RequestId::from_bits(self.id)
    }

    /// Reads a row, with the level that has this name now. A level that is not in the list any more is the lowest one.
    pub(crate) fn read(row: &[u8], levels: &PriorityLevels) -> Result<Self, StoreError> {
        let mut row: Self = decode(row, "a request")?;
        if let Some(stored) = &row.level_name {
            let is_it = |name: &str| name.eq_ignore_ascii_case(stored);
            let number = levels.names().position(is_it);
            row.level = number
                .and_then(|number| u8::try_from(number).ok())
                .unwrap_or(u8::MAX);
        }
        row.level = levels.clamp(Priority(row.level)).0;
        Ok(row)
    }
}

/// Returns the cost of a request that names none.
fn default_cost() -> u32 {
    1
}

/// The fields of a request that change. A request without this row still waits as it was stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StateRow {
    /// The name of the status.
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
    /// The number of times that an operator has retried the request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) retries: u32,
    /// The time at which the webhook is called next. `None` if there is nothing to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhook_due: Option<Time>,
    /// The number of the response's last piece.
    #[serde(default)]
    pub(crate) chunks: u64,
    /// The number of the last piece of all attempts before the latest one.
    #[serde(default)]
    pub(crate) dropped: u64,
    /// The size in bytes of the responses and their pieces.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) response_bytes: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl StateRow {
    pub(crate) fn status(&self) -> Option<RequestStatus> {
        RequestStatus::from_name(&self.status)
    }
}

/// A request as it is on the disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) segment: u32,
    pub(crate) row: RequestRow,
    /// The fields that change. `None` while the request waits as it was stored.
    pub(crate) state: Option<StateRow>,
}

/// The time for which ended requests are kept, and the current time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    pub(crate) time: Duration,
    pub(crate) now: Time,
}

/// The time after which an ended request is forgotten even if its webhook is due. Senders give up an hour earlier.
const LONGEST_WEBHOOK: Duration = Duration::from_secs(25 * 60 * 60);

/// Returns the time at which a request is forgotten. This is after its retention, and usually after its webhook is
/// settled.
pub(crate) fn forgotten_at(ended: Time, webhook_due: Option<Time>, retention: Duration) -> Time {
    match webhook_due {
        Some(_) => ended.after(retention.max(LONGEST_WEBHOOK)),
        None => ended.after(retention),
    }
}

impl Stored {
    /// Returns `true` if the request has ended but is not yet forgotten.
    pub(crate) fn is_kept(&self, retention: Retention) -> bool {
        let state = self.state.as_ref();
        let ended = state.and_then(|state| Some((state.ended?, state.webhook_due)));
        ended.is_some_and(|(ended, webhook_due)| {
            forgotten_at(ended, webhook_due, retention.time) > retention.now
        })
    }

    /// Returns the time at which the request ended, if it has ended.
    pub(crate) fn ended(&self) -> Option<Time> {
        self.state.as_ref()?.ended
    }

    /// Returns the bytes of the request and its responses.
    pub(crate) fn bytes(&self) -> u64 {
        let response = self.state.as_ref().map_or(0, |state| state.response_bytes);
        self.row.body_bytes + response
    }

    pub(crate) fn has_response(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.response_status.is_some())
    }

    /// Returns the segment and the number of the request, under which its body and response are stored.
    pub(crate) fn place(&self) -> (u32, u64) {
        (self.segment, self.row.seq)
    }

    pub(crate) fn status(&self) -> RequestStatus {
        let status = self.state.as_ref().and_then(StateRow::status);
        status.unwrap_or(RequestStatus::Queued)
    }

    pub(crate) fn info(&self) -> RequestInfo {
        let row = &self.row;
        let created = Time::of_seq(row.seq).to_system();
        let mut info = RequestInfo::queued(row.id(), created);
        info.queue.clone_from(&row.queue);
        info.level = row.level;
        info.tenant.clone_from(&row.tenant);
        info.deadline = row.deadline.map(Time::to_system);
        info.not_before = row.not_before.map(Time::to_system);
        info.is_listed = !row.is_unlisted;
        if let Some(state) = &self.state {
            info.status = self.status();
            info.attempts = state.attempts;
            info.started = state.started.map(Time::to_system);
            info.ended = state.ended.map(Time::to_system);
            info.deadline = state.deadline.map(Time::to_system);
            info.not_before = state.not_before.map(Time::to_system);
            info.reason.clone_from(&state.reason);
            info.response_status = state.response_status;
        }
        info
    }
}

/// A sealed segment, in which all requests have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SealedRow {
    /// The time at which the last request of the segment is forgotten.
    pub(crate) until: Time,
    /// The number of the store's latest request at the time of writing.
    pub(crate) latest: u64,
    /// The bytes in the segment, by tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bytes: Vec<(Vec<u8>, u64)>,
}

/// A pause of a queue, of a tenant, or of everything if both are `None`.
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

pub(crate) fn encode(row: &impl Serialize) -> Result<Bytes, StoreError> {
    let row = serde_json::to_vec(row);
    row.map(Bytes::from)
        .map_err(|why| StoreError::Unavailable(why.to_string()))
}

/// Reads a row. `what` is the name of the row for the error message.
pub(crate) fn decode<T: DeserializeOwned>(row: &[u8], what: &str) -> Result<T, StoreError> {
    serde_json::from_slice(row).map_err(|why| {
        let found = String::from_utf8_lossy(row);
        StoreError::Unavailable(format!("can't read {what}: {why} in {found:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_level_keeps_its_name_in_another_list() {
        let levels = PriorityLevels::new(["urgent", "High", "normal"], "normal").unwrap();
        for (row, level) in [
            (&br#"{"id":7,"seq":9,"level":0,"level_name":"high"}"#[..], 1),
            (br#"{"id":7,"seq":9,"level":0,"level_name":"gone"}"#, 2),
            (br#"{"id":7,"seq":9,"level":0}"#, 0),
            (br#"{"id":7,"seq":9,"level":9}"#, 2),
        ] {
            assert_eq!(RequestRow::read(row, &levels).unwrap().level, level);
        }
    }

    #[test]
    fn missing_fields_have_the_defaults_of_a_new_row() {
        let row: RequestRow = decode(br#"{"id":7,"seq":9}"#, "a request").unwrap();
        assert_eq!(row, RequestRow::new(RequestId::from_bits(7), 9));
    }
}

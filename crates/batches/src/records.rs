//! Files and batches as records in a store, and as objects of OpenAI's API.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::id::seconds;
use super::line::LineError;
use tower_triage_durable::{Store, StoreError};

/// A file without its content. Times are in seconds since 1970, by the store's clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub(super) bytes: u64,
    pub(super) created_at: u64,
    pub(super) filename: String,
    pub(super) purpose: String,
    /// The time at which the file expires. `None` for a file that is kept until it is deleted.
    pub(super) expires_at: Option<u64>,
}

/// A mark for pieces that may belong to no file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Unreferenced {
    pub(super) tenant: String,
    /// The time since which the pieces may be without a file, in seconds since 1970.
    pub(super) since: u64,
}

impl Unreferenced {
    pub(super) fn new(tenant: &str, since: SystemTime) -> Self {
        Self {
            tenant: tenant.to_owned(),
            since: seconds(since),
        }
    }
}

/// A batch as it was created.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BatchRecord {
    pub(super) input_file_id: String,
    pub(super) endpoint: String,
    /// The window as the client wrote it.
    pub(super) completion_window: String,
    pub(super) created_at: u64,
    /// The end of the window, in milliseconds since 1970.
    pub(super) deadline: u64,
    pub(super) metadata: Option<Map<String, Value>>,
    /// The time for which the output file and the error file are kept, in seconds. `None` stands for the retention.
    #[serde(default)]
    pub(super) output_lifetime: Option<u64>,
    /// The headers that each request of the batch gets.
    pub(super) headers: Vec<(String, String)>,
    /// The address that learns of the end of the batch.
    #[serde(default)]
    pub(super) webhook: Option<String>,
    /// The id for the output file of the batch.
    pub(super) output_file_id: String,
    /// The id for the error file of the batch.
    pub(super) error_file_id: String,
}

/// An unfinished batch, and the coordinator that drives it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Active {
    pub(super) tenant: String,
    /// The random name of the coordinator, or empty if the batch was not taken yet.
    pub(super) owner: String,
    /// A number that grows with each heartbeat of the coordinator.
    pub(super) beat: u64,
    /// The time of the latest heartbeat, in milliseconds since 1970.
    pub(super) at: u64,
}

/// The progress of a batch that has passed validation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) counts: Counts,
    pub(super) in_progress_at: u64,
    pub(super) finalizing_at: Option<u64>,
    /// The highest number of a line that may already be stored as a request.
    pub(super) reached: u64,
}

/// The numbers of requests of a batch, by their ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) total: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
}

/// The end of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) status: EndStatus,
    /// The time of the end, in seconds since 1970.
    pub(super) at: u64,
    pub(super) errors: Vec<LineError>,
    pub(super) counts: Counts,
    pub(super) has_output: bool,
    pub(super) has_errors: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EndStatus {
    Completed,
    Failed,
    Expired,
    Cancelled,
}

impl EndStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Converts a record to bytes for a store.
pub(super) fn write(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record)
        .expect("records have string keys and no failing fields")
        .into()
}

/// Reads a record from the bytes in a store.
///
/// # Errors
///
/// Returns an error if the bytes do not have the format of [`write`].
pub(super) fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| {
        StoreError::Unavailable(format!("the value of {key} can't be read: {error}"))
    })
}

/// Returns the file as an object of OpenAI's API.
pub(super) fn file_object(store: &dyn Store, id: &str, file: &FileRecord) -> Value {
    let mut object = json!({
        "id": id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": null,
    });
    object["expires_at"] = file.expires_at.into();
    shown(store, object)
}

/// The fields of files and batches that are times in seconds.
const TIMES: [&str; 9] = [
    "created_at",
    "in_progress_at",
    "expires_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
];

/// Converts the times of an object from those of the store's clock into those of the system's.
pub(super) fn shown(store: &dyn Store, mut object: Value) -> Value {
    for name in TIMES {
        if let Some(time) = object.get_mut(name)
            && let Some(at) = time.as_u64()
            && let Some(at) = UNIX_EPOCH.checked_add(Duration::from_secs(at))
        {
            *time = seconds(store.system_time(at)).into();
        }
    }
    object
}

/// Returns the batch as an object of OpenAI's API, with times of the store's clock. `cancelled` is the time at which the client cancelled the batch.
pub(super) fn batch_object(
    id: &str,
    batch: &BatchRecord,
    progress: Option<&Progress>,
    cancelled: Option<u64>,
    end: Option<&End>,
) -> Value {
    let status = match (end, cancelled, progress) {
        (Some(end), ..) => end.status.as_str(),
        (None, Some(_), _) => "cancelling",
        (None, None, None) => "validating",
        (None, None, Some(progress)) if progress.finalizing_at.is_some() => "finalizing",
        (None, None, Some(_)) => "in_progress",
    };
    let ended = |status| end.filter(|end| end.status == status).map(|end| end.at);
    let file = |id: &String, is_there: fn(&End) -> bool| {
        end.filter(|end| is_there(end)).map(|_| id.clone())
    };
    let counts = end
        .map(|end| end.counts)
        .or(progress.map(|progress| progress.counts));
    let errors = end
        .filter(|end| !end.errors.is_empty())
        .map(|end| json!({ "object": "list", "data": end.errors }));
    let was_cancelled = end.is_none_or(|end| end.status == EndStatus::Cancelled);
    json!({
        "id": id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": status,
        "output_file_id": file(&batch.output_file_id, |end| end.has_output),
        "error_file_id": file(&batch.error_file_id, |end| end.has_errors),
        "created_at": batch.created_at,
        "in_progress_at": progress.map(|progress| progress.in_progress_at),
        "expires_at": batch.deadline / 1_000,
        "finalizing_at": progress.and_then(|progress| progress.finalizing_at),
        "completed_at": ended(EndStatus::Completed),
        "failed_at": ended(EndStatus::Failed),
        "expired_at": ended(EndStatus::Expired),
        "cancelling_at": cancelled.filter(|_| was_cancelled),
        "cancelled_at": ended(EndStatus::Cancelled),
        "request_counts": counts.unwrap_or_default(),
        "metadata": batch.metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> BatchRecord {
        BatchRecord {
            input_file_id: "file-1".to_owned(),
            endpoint: "/v1/embeddings".to_owned(),
            completion_window: "24h".to_owned(),
            created_at: 100,
            deadline: 86_500_000,
            metadata: None,
            output_lifetime: None,
            headers: Vec::new(),
            webhook: None,
            output_file_id: "file-2".to_owned(),
            error_file_id: "file-3".to_owned(),
        }
    }

    #[test]
    fn the_status_follows_from_what_was_recorded() {
        let status = |progress: Option<&Progress>, cancelled, end: Option<&End>| {
            batch_object("batch_1", &batch(), progress, cancelled, end)["status"].clone()
        };
        let mut progress = Progress::default();
        let end = End {
            status: EndStatus::Completed,
            at: 200,
            errors: Vec::new(),
            counts: Counts::default(),
            has_output: true,
            has_errors: false,
        };
        assert_eq!(status(None, None, None), "validating");
        assert_eq!(status(Some(&progress), None, None), "in_progress");
        assert_eq!(status(Some(&progress), Some(150), None), "cancelling");
        progress.finalizing_at = Some(199);
        assert_eq!(status(Some(&progress), None, None), "finalizing");
        assert_eq!(status(Some(&progress), Some(150), Some(&end)), "completed");
        let object = batch_object("batch_1", &batch(), Some(&progress), Some(150), Some(&end));
        assert_eq!(object["output_file_id"], "file-2");
        assert_eq!(object["error_file_id"], Value::Null);
        assert_eq!(object["completed_at"], 200);
        assert_eq!(object["cancelling_at"], Value::Null);
        assert_eq!(object["expires_at"], 86_500);
    }
}

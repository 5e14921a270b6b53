//! Changes of the state on their way to the disk.

use bytes::Bytes;

use super::row::{PauseRow, RequestRow, StateRow};
use crate::durable::RequestId;

/// A change of what is on the disk. A request and all that belongs to it are in the segment of the time at which it was
/// stored, which is dropped as a whole when all its requests were forgotten.
#[derive(Debug)]
pub(crate) enum Write {
    Request {
        segment: u32,
        id: RequestId,
        row: Box<RequestRow>,
        body: Bytes,
    },
    /// A request could not be written down, and is not there.
    NoRequest {
        segment: u32,
        id: RequestId,
    },
    State {
        segment: u32,
        id: RequestId,
        row: Box<StateRow>,
    },
    Response {
        segment: u32,
        id: RequestId,
        response: Bytes,
    },
    Chunk {
        segment: u32,
        id: RequestId,
        number: u64,
        data: Bytes,
    },
    /// The request was forgotten. On a disk its segment still has it.
    Forget {
        id: RequestId,
    },
    DropSegment(u32),
    Pauses(Vec<PauseRow>),
    Put {
        key: String,
        value: Bytes,
    },
    Remove {
        key: String,
    },
}

impl Write {
    /// Returns what is to be written down instead, when all that needs space was undone.
    pub(crate) fn without_growth(self) -> Option<Self> {
        match self {
            Self::Request { segment, id, .. } => Some(Self::NoRequest { segment, id }),
            Self::Chunk { .. } | Self::Put { .. } => None,
            other => Some(other),
        }
    }
}

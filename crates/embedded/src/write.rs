//! Changes of the state on their way to the disk.

use std::collections::HashSet;

use bytes::Bytes;

use super::archive::Archive;
use super::clock::ClockRow;
use super::keys::{self, Kind};
use super::rows::{PauseRow, RequestRow, SealedRow, StateRow, encode};
use super::storage::{Op, Table};
use super::time::Time;
use tower_triage_durable::{RequestStatus, StoreError};

/// A change of the data on the disk. All data of a request is in the segment of the time at which it was stored. The
/// segment is dropped as a whole when all its requests are forgotten.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Request {
        segment: u32,
        row: Box<RequestRow>,
        body: Bytes,
    },
    /// The removal of everything that another write puts, because that write may have been made in part.
    Undo(Box<Write>),
    State {
        segment: u32,
        seq: u64,
        row: Box<StateRow>,
        /// The tenant of a listed request that has ended. The request joins the lists of this tenant.
        listed: Option<Vec<u8>>,
    },
    /// The removal of a request from the lists of ended requests, in which it had this status.
    Unlisted {
        segment: u32,
        seq: u64,
        tenant: Vec<u8>,
        status: RequestStatus,
    },
    Response {
        segment: u32,
        seq: u64,
        response: Bytes,
    },
    Chunk {
        segment: u32,
        seq: u64,
        number: u64,
        data: Bytes,
    },
    /// The end of all requests of a segment. The last of them is forgotten at the time `until`.
    Sealed {
        segment: u32,
        until: Time,
        /// The number of the store's latest request.
        latest: u64,
        /// The bytes in the segment, by tenant.
        bytes: Vec<(Vec<u8>, u64)>,
    },
    /// The end of a segment's seal, because one of its requests waits again.
    Unsealed {
        segment: u32,
    },
    DropSegment(u32),
    /// The removal of the bodies and responses of a segment, but for the bodies of these requests.
    DropBytes {
        segment: u32,
        kept: Vec<u64>,
    },
    Pauses(Vec<PauseRow>),
    Clock(ClockRow),
    Put {
        key: String,
        value: Bytes,
    },
    Remove {
        key: String,
    },
}

/// The number of bytes of a response in one row. A longer response has several rows, so that a reader needs memory for
/// one of them only.
pub(crate) const RESPONSE_PART: usize = 128 << 10;

/// The largest size in bytes of the bodies that move when the other bytes of a segment are dropped.
pub(crate) const MOST_MOVED: u64 = 16 << 20;

/// The key of the row that lists the pauses in force.
pub(crate) const PAUSES: &[u8] = b"pauses";

/// The key of the row of the store's clock.
pub(crate) const CLOCK: &[u8] = b"clock";

impl Write {
    /// Returns the writes to make instead, once all changes that need new space were undone.
    pub(crate) fn without_growth(writes: Vec<Self>) -> Vec<Self> {
        let undone = writes.iter().filter_map(|write| match write {
            Self::Request { segment, row, .. } => Some((*segment, row.seq)),
            _ => None,
        });
        let undone: HashSet<_> = undone.collect();
        let instead = writes.into_iter().filter_map(|write| match write {
            Self::Chunk { .. } | Self::Put { .. } => None,
            // The deadline of a request may pass in the batch that stores the request.
            Self::Request { .. } => Some(Self::Undo(Box::new(write))),
            Self::State { segment, seq, .. } if undone.contains(&(segment, seq)) => {
                Some(Self::Undo(Box::new(write)))
            }
            other => Some(other),
        });
        instead.collect()
    }

    fn add(&self, ops: &mut Vec<Op>, archive: Archive<'_>) -> Result<(), StoreError> {
        match self {
            Self::Request { segment, row, body } => {
                let (table, encoded) = (Table::Rows(*segment), encode(row)?);
                ops.push(Op::Put(table, keys::row(kind(row), row.seq), encoded));
                let seq = Bytes::copy_from_slice(&row.seq.to_be_bytes());
                for key in names(row) {
                    ops.push(Op::Put(table, key, seq.clone()));
                }
                let table = Table::Bytes(*segment);
                ops.push(Op::Put(table, keys::body(row.seq), body.clone()));
            }
            Self::Undo(write) => {
                let mut made = Vec::new();
                write.add(&mut made, archive)?;
                ops.extend(made.into_iter().map(|op| match op {
                    Op::Put(table, key, _) => Op::Remove(table, key),
                    other => other,
                }));
            }
            Self::State {
                segment,
                seq,
                row,
                listed,
            } => {
                let table = Table::Rows(*segment);
                let key = keys::row(Kind::State, *seq);
                ops.push(Op::Put(table, key, encode(row)?));
                if let (Some(tenant), Some(status)) = (listed, row.status()) {
                    let entries = ended_entries(tenant, status, *seq).into_iter();
                    ops.extend(entries.map(|key| Op::Put(table, key, Bytes::new())));
                }
            }
            Self::Unlisted {
                segment,
                seq,
                tenant,
                status,
            } => {
                let table = Table::Rows(*segment);
                let entries = ended_entries(tenant, *status, *seq).into_iter();
                ops.extend(entries.map(|key| Op::Remove(table, key)));
            }
            Self::Response {
                segment,
                seq,
                response,
            } => {
                let table = Table::Bytes(*segment);
                if response.len() <= RESPONSE_PART {
                    ops.push(Op::Put(table, keys::response(*seq), response.clone()));
                    return Ok(());
                }
                let length = (response.len() as u64).to_be_bytes();
                let length = Bytes::copy_from_slice(&length);
                ops.push(Op::Put(table, keys::response_length(*seq), length));
                let mut rest = response.clone();
                for index in 0.. {
                    let part = rest.split_to(rest.len().min(RESPONSE_PART));
                    if part.is_empty() {
                        break;
                    }
                    ops.push(Op::Put(table, keys::response_part(*seq, index), part));
                }
            }
            Self::Chunk {
                segment,
                seq,
                number,
                data,
            } => {
                let table = Table::Bytes(*segment);
                ops.push(Op::Put(table, keys::chunk(*seq, *number), data.clone()));
            }
            Self::Sealed {
                segment,
                until,
                latest,
                bytes,
            } => {
                let row = encode(&SealedRow {
                    until: *until,
                    latest: *latest,
                    bytes: bytes.clone(),
                });
                ops.push(Op::Put(Table::Meta, sealed(*segment), row?));
            }
            Self::Unsealed { segment } => ops.push(Op::Remove(Table::Meta, sealed(*segment))),
            Self::DropSegment(segment) => {
                ops.push(Op::Remove(Table::Meta, sealed(*segment)));
                ops.push(Op::DropSegment(*segment));
            }
            Self::DropBytes { segment, kept } => {
                let (table, mut moved) = (Table::Rows(*segment), Vec::new());
                let mut bytes = 0;
                for seq in kept {
                    // A body that can't be read must stop no write of others. The segment stays for its request.
                    let Ok(body) = archive.body(*segment, *seq) else {
                        return Ok(());
                    };
                    let body = body.unwrap_or_default();
                    bytes += body.len() as u64;
                    // The state does not know the sizes of requests that an earlier version of the crate has stored.
                    if bytes > MOST_MOVED {
                        return Ok(());
                    }
                    moved.push(Op::Put(table, keys::kept_body(*seq), body));
                }
                ops.append(&mut moved);
                ops.push(Op::DropBytes(*segment));
            }
            Self::Pauses(rows) => {
                ops.push(Op::Put(Table::Meta, PAUSES.to_vec(), encode(rows)?));
            }
            Self::Clock(row) => ops.push(Op::Put(Table::Meta, CLOCK.to_vec(), encode(row)?)),
            Self::Put { key, value } => {
                let key = key.clone().into_bytes();
                ops.push(Op::Put(Table::Values, key, value.clone()));
            }
            Self::Remove { key } => {
                ops.push(Op::Remove(Table::Values, key.clone().into_bytes()));
            }
        }
        Ok(())
    }
}

/// Converts writes into operations of the database, from which the archive reads.
pub(crate) fn ops(writes: &[Write], archive: Archive<'_>) -> Result<Vec<Op>, StoreError> {
    let mut ops = Vec::with_capacity(4 * writes.len());
    for write in writes {
        write.add(&mut ops, archive)?;
    }
    Ok(ops)
}

fn kind(row: &RequestRow) -> Kind {
    match row.is_unlisted {
        true => Kind::Unlisted,
        false => Kind::Listed,
    }
}

/// Returns the keys under which the number of a request is found.
fn names(row: &RequestRow) -> Vec<Vec<u8>> {
    let mut names = vec![keys::id(row.id())];
    if !row.is_unlisted {
        let list = keys::list(Some(&keys::tenant(&row.tenant)), None);
        names.push(keys::entry(&list, row.seq));
    }
    let key = row.key.as_ref();
    names.extend(key.map(|key| keys::idempotency(&key.name)));
    names
}

/// Returns the keys of an ended request's entries in lists.
fn ended_entries(tenant: &[u8], status: RequestStatus, seq: u64) -> [Vec<u8>; 2] {
    let tenant = keys::tenant(tenant);
    [None, Some(&tenant)].map(|tenant| keys::entry(&keys::list(tenant, Some(status)), seq))
}

/// Returns the key of the row that marks a segment as sealed.
pub(crate) fn sealed(segment: u32) -> Vec<u8> {
    [b"sealed-", &segment.to_be_bytes()[..]].concat()
}

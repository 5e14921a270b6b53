//! The keys under which a store keeps files and batches.
//!
//! Each key has a single writer, so that writes can't undo each other. The process that gets a call writes the batch or
//! its cancellation, and the coordinator that drives the batch writes its progress and its end. The keys of objects
//! that clients name include the tenant, so that a lookup never finds the file or batch of another tenant.

/// Returns the key of a file. The value is a [`FileRecord`](super::records::FileRecord).
pub(super) fn file(tenant: &str, id: &str) -> String {
    format!("{FILES}{tenant}/{id}")
}

pub(super) const FILES: &str = "files/";

/// Returns the key of a piece of a file. Pieces sort by their index.
pub(super) fn piece(file: &str, index: u64) -> String {
    format!("pieces/{file}/{index:012}")
}

/// Returns the key of a further part of a piece that is long. It sorts behind its piece and before the next one.
pub(super) fn piece_part(file: &str, index: u64, part: usize) -> String {
    format!("pieces/{file}/{index:012}.{part:06}")
}

/// Returns the index of the piece that the end of a key belongs to, and `true` if it is a further part of the piece.
pub(super) fn piece_index(key: &str) -> Option<(u64, bool)> {
    let (index, is_part) = match key.split_once('.') {
        Some((index, _)) => (index, true),
        None => (key, false),
    };
    Some((index.parse().ok()?, is_part))
}

/// Returns the prefix of the keys of a file's pieces.
pub(super) fn pieces(file: &str) -> String {
    format!("pieces/{file}/")
}

/// Returns the key of the mark of a file that is being uploaded or deleted. Its pieces may be without a file. The value
/// is [`Unreferenced`](super::records::Unreferenced).
pub(super) fn upload(file: &str) -> String {
    format!("{UPLOADS}{file}")
}

pub(super) const UPLOADS: &str = "uploads/";

/// Returns the key that records the use of a file by a batch. The value is [`UNREAD`] or [`READ`].
pub(super) fn file_use(file: &str, batch: &str) -> String {
    format!("{}{batch}", file_uses(file))
}

/// Returns the prefix of the keys that record the uses of a file by batches.
pub(super) fn file_uses(file: &str) -> String {
    format!("uses/{file}/")
}

/// The value of a file use while some lines of the file are not stored as requests yet.
pub(super) const UNREAD: &[u8] = b"unread";
/// The value of a file use once all lines are stored as requests. A restarted coordinator still reads the file.
pub(super) const READ: &[u8] = b"read";

/// Returns the key of a batch as it was created. The value is a [`BatchRecord`](super::records::BatchRecord).
pub(super) fn batch(tenant: &str, id: &str) -> String {
    format!("{}{id}", batches(tenant))
}

/// Returns the prefix of the keys of a tenant's batches.
pub(super) fn batches(tenant: &str) -> String {
    format!("{BATCHES}{tenant}/")
}

pub(super) const BATCHES: &str = "batches/";

/// Returns the key of an unfinished batch. The value is [`Active`](super::records::Active).
pub(super) fn active(batch: &str) -> String {
    format!("{ACTIVE}{batch}")
}

pub(super) const ACTIVE: &str = "active-batches/";

/// Returns the key of a batch's cancellation. The value is the time of the cancellation, in seconds since 1970.
pub(super) fn cancel(batch: &str) -> String {
    format!("batch-cancels/{batch}")
}

/// Returns the key of a batch's progress. The value is [`Progress`](super::records::Progress).
pub(super) fn progress(batch: &str) -> String {
    format!("batch-progress/{batch}")
}

/// Returns the key of a batch's end. The value is [`End`](super::records::End).
pub(super) fn end(batch: &str) -> String {
    format!("{ENDS}{batch}")
}

pub(super) const ENDS: &str = "batch-ends/";

//! The keys under which a store keeps files and batches.
//!
//! Each key has one writer, so that no write undoes another: the front that was asked writes a batch and its cancellation,
//! the coordinator that drives it writes its progress and its end. The tenant is a part of the keys of what clients name, so
//! that the look-up of another tenant's file or batch finds nothing.

/// A file, as [`FileRecord`](super::records::FileRecord).
pub(super) fn file(tenant: &str, id: &str) -> String {
    format!("{FILES}{tenant}/{id}")
}

pub(super) const FILES: &str = "files/";

/// A piece of a file. Pieces sort by their index.
pub(super) fn piece(file: &str, index: u64) -> String {
    format!("pieces/{file}/{index:012}")
}

/// The prefix of the keys of a file's pieces.
pub(super) fn pieces(file: &str) -> String {
    format!("pieces/{file}/")
}

/// A file that is being uploaded or deleted, so that its pieces may be without a file, as
/// [`Unreferenced`](super::records::Unreferenced).
pub(super) fn upload(file: &str) -> String {
    format!("{UPLOADS}{file}")
}

pub(super) const UPLOADS: &str = "uploads/";

/// A batch that needs a file: [`UNREAD`] or [`READ`].
pub(super) fn file_use(file: &str, batch: &str) -> String {
    format!("{}{batch}", file_uses(file))
}

/// The prefix of the keys of the batches that need a file.
pub(super) fn file_uses(file: &str) -> String {
    format!("uses/{file}/")
}

/// The batch has not stored all requests of the file yet.
pub(super) const UNREAD: &[u8] = b"unread";
/// The batch has stored them. It still reads the file if its coordinator is restarted.
pub(super) const READ: &[u8] = b"read";

/// A batch as it was created, as [`BatchRecord`](super::records::BatchRecord).
pub(super) fn batch(tenant: &str, id: &str) -> String {
    format!("{}{id}", batches(tenant))
}

/// The prefix of the keys of a tenant's batches.
pub(super) fn batches(tenant: &str) -> String {
    format!("{BATCHES}{tenant}/")
}

pub(super) const BATCHES: &str = "batches/";

/// A batch that has not ended, as [`Active`](super::records::Active).
pub(super) fn active(batch: &str) -> String {
    format!("{ACTIVE}{batch}")
}

pub(super) const ACTIVE: &str = "active-batches/";

/// The time at which a batch was cancelled, in seconds.
pub(super) fn cancel(batch: &str) -> String {
    format!("batch-cancels/{batch}")
}

/// The progress of a batch, as [`Progress`](super::records::Progress).
pub(super) fn progress(batch: &str) -> String {
    format!("batch-progress/{batch}")
}

/// The end of a batch, as [`End`](super::records::End).
pub(super) fn end(batch: &str) -> String {
    format!("{ENDS}{batch}")
}

pub(super) const ENDS: &str = "batch-ends/";

//! The files of a store, with their content in pieces.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};

use super::id::seconds;
use super::keys;
use super::line_splitter::{LineSplitter, TooLong};
use super::records::{self, FileRecord, Unreferenced};
use super::scan::Scan;
use tower_triage_durable::{FileUsage, Store, StoreError};

/// Returns a file of this tenant, or `None` if the file does not exist or has expired.
pub(super) async fn find(
    store: &dyn Store,
    tenant: &str,
    id: &str,
) -> Result<Option<FileRecord>, StoreError> {
    let key = keys::file(tenant, id);
    let Some(value) = store.value(&key).await? else {
        return Ok(None);
    };
    let file: FileRecord = records::read(&key, &value)?;
    Ok(Some(file).filter(|file| !has_expired(store, file)))
}

/// Returns the number and the size of a tenant's files that have not expired.
pub(super) async fn file_usage(
    store: &Arc<dyn Store>,
    tenant: &[u8],
) -> Result<FileUsage, StoreError> {
    let mut usage = FileUsage::default();
    let mut scan = Scan::new(store, keys::file(&hex(tenant), ""), RECORDS_AT_ONCE);
    while let Some((id, value)) = scan.next().await? {
        let file: FileRecord = records::read(&id, &value)?;
        if !has_expired(&**store, &file) {
            usage.bytes += file.bytes;
            usage.files += 1;
        }
    }
    Ok(usage)
}

/// The number of records of files that are read at a time.
const RECORDS_AT_ONCE: usize = 1_000;

/// Returns the tenant in hexadecimal, as a part of keys.
pub(super) fn hex(tenant: &[u8]) -> String {
    use std::fmt::Write;
    let mut hex = String::with_capacity(2 * tenant.len());
    for byte in tenant {
        write!(hex, "{byte:02x}").expect("a String takes all");
    }
    hex
}

/// Returns `true` if the file has expired.
pub(super) fn has_expired(store: &dyn Store, file: &FileRecord) -> bool {
    file.expires_at
        .is_some_and(|end| end <= seconds(store.now()))
}

/// Removes a file and its content. A mark tells the sweep to finish the removal if this process dies in the middle.
pub(super) async fn remove(
    store: &Arc<dyn Store>,
    tenant: &str,
    id: &str,
) -> Result<(), StoreError> {
    let mark = Unreferenced::new(tenant, store.now());
    store.put(&keys::upload(id), records::write(&mark)).await?;
    store.remove(&keys::file(tenant, id)).await?;
    remove_pieces(store, id).await?;
    store.remove(&keys::upload(id)).await?;
    Ok(())
}

/// Removes the pieces of a file.
pub(super) async fn remove_pieces(store: &Arc<dyn Store>, id: &str) -> Result<(), StoreError> {
    let mut pieces = pieces(store, id);
    let mut removed = JoinSet::new();
    let failed =
        |error: JoinError| StoreError::Unavailable(format!("a removal has failed: {error}"));
    while let Some((index, _)) = pieces.next().await? {
        let (store, key) = (Arc::clone(store), format!("{}{index}", keys::pieces(id)));
        removed.spawn(async move { store.remove(&key).await });
        if removed.len() >= REMOVED_AT_ONCE
            && let Some(removed) = removed.join_next().await
        {
            removed.map_err(failed)??;
        }
    }
    while let Some(removed) = removed.join_next().await {
        removed.map_err(failed)??;
    }
    Ok(())
}

/// The number of pieces that are removed at a time. It is this large so that one commit of the store can take many of
/// them.
const REMOVED_AT_ONCE: usize = 256;

/// Returns a scan of the pieces of a file.
pub(super) fn pieces(store: &Arc<dyn Store>, id: &str) -> Scan {
    Scan::new(store, keys::pieces(id), PIECES_AT_ONCE)
}

/// The largest number of pieces that are read at a time.
const PIECES_AT_ONCE: usize = 256;

/// The size of a stored piece, in bytes. A client that reads a file slowly holds one of them in memory.
pub(super) const PIECE: usize = 128 << 10;

/// A reader of the lines of a file, one after the other.
pub(super) struct Lines {
    pieces: Scan,
    splitter: LineSplitter,
    has_ended: bool,
}

impl Lines {
    /// Returns a reader for the lines of `file`, which may have at most `limit` bytes each.
    pub(super) fn new(store: &Arc<dyn Store>, file: &str, limit: usize) -> Self {
        Self {
            pieces: pieces(store, file),
            splitter: LineSplitter::new(limit),
            has_ended: false,
        }
    }

    /// Returns the next line and its number, or `None` at the end of the file.
    pub(super) async fn next(
        &mut self,
    ) -> Result<Option<(u64, Result<Bytes, TooLong>)>, StoreError> {
        loop {
            if let Some(line) = self.splitter.next() {
                return Ok(Some(line));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.pieces.next().await? {
                Some((_, piece)) => self.splitter.push(&piece),
                None => {
                    self.has_ended = true;
                    return Ok(self.splitter.last());
                }
            }
            // A store in memory answers without waiting, so this lets other tasks run between two pieces.
            tokio::task::yield_now().await;
        }
    }
}

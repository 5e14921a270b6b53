//! The repair of damaged files, which keeps what is whole in them.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::audit;
use super::journal::{self, Batch};

/// Keeps a copy of a database beside it, and leaves out of the database what is not whole.
pub(super) fn salvage(folder: &Path) -> io::Result<()> {
    if !folder.try_exists()? {
        return Ok(());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let kept = format!("log.damaged-{}", now.unwrap_or_default().as_millis());
    let kept = folder.with_file_name(kept);
    copy(folder, &kept)?;
    tracing::warn!("the files as they were are in {}", kept.display());
    for (_, path) in journal::logs(folder)? {
        salvage_log(&path)?;
    }
    let keyspaces = folder.join("keyspaces");
    for entry in keyspaces.read_dir().into_iter().flatten() {
        let path = entry?.path();
        // The first keyspace has the names of all others, so nothing can do without it.
        if let Err(why) = audit::check_keyspace(&path)
            && !path.ends_with("0")
        {
            tracing::warn!("left {} out of the store: {why}", path.display());
            std::fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Calls `open` until it succeeds, each time without another keyspace. The last call is with all of them.
pub(super) fn open_without_one<T, E>(
    folder: &Path,
    open: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    let keyspaces = folder.join("keyspaces");
    for entry in keyspaces.read_dir().into_iter().flatten().flatten() {
        let (path, aside) = (entry.path(), folder.join("left-out"));
        if path.ends_with("0") || std::fs::rename(&path, &aside).is_err() {
            continue;
        }
        let opened = open();
        let cleaned = match opened.is_ok() {
            true => std::fs::remove_dir_all(&aside),
            false => std::fs::rename(&aside, &path),
        };
        if let Err(why) = cleaned {
            tracing::warn!("can't put {} in its place: {why}", aside.display());
        }
        if opened.is_ok() {
            tracing::warn!("left {} out of the store", path.display());
            return opened;
        }
    }
    open()
}

/// Leaves what is not whole out of a log.
fn salvage_log(path: &Path) -> io::Result<()> {
    let log = journal::read(path)?;
    let mut whole = Vec::with_capacity(log.len());
    let (mut at, mut seqno, mut kept) = (0, 0, 0);
    while let Some(batch) = journal::search(&log, at) {
        at = batch.bytes.end;
        // The database takes the order of a batch from bytes that no checksum covers.
        let order = order(&batch).max(seqno + 1);
        seqno = order;
        whole.extend_from_slice(&log[batch.bytes.start..batch.bytes.end]);
        journal::set_seqno(&mut whole, batch.bytes.len(), order);
        kept += 1;
    }
    if whole == log {
        return Ok(());
    }
    let lost = log.len() - whole.len();
    let name = path.display();
    tracing::warn!("kept {kept} commits of {name}, and left out {lost} bytes that are not whole");
    write(path, &whole)
}

/// Returns the number that orders a batch.
fn order(batch: &Batch) -> u64 {
    let is_right = |least: &u64| (*least..*least + audit::AHEAD).contains(&batch.seqno);
    match batch.least_seqno {
        Some(least) if !is_right(&least) => least,
        _ => batch.seqno,
    }
}

/// Replaces a file in one step.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::File::open(&new)?.sync_all()?;
    std::fs::rename(&new, path)
}

/// Copies a folder. The database never changes a file in a keyspace, so these are linked if the system can do so.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &to)?;
        } else if is_log(&path) {
            std::fs::write(to, journal::read(&path)?)?;
        } else if std::fs::hard_link(&path, &to).is_err() {
            std::fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

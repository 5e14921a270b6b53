//! The repair of a log that lost a part of its last batch in a power loss.
//!
//! The database drops a batch that has no end mark. But the system writes pages in any order, so the end mark may be on
//! the disk while an earlier page is missing, and then the database does not open. Only the last batch can be torn like
//! this, because the previous one was synced before it began.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Opens a database after cutting off the end of its last batch. If that does not help, restores the log and returns
/// `None`.
pub(super) fn open_without_last_batch<D>(
    folder: &Path,
    open: impl Fn() -> fjall::Result<D>,
) -> Option<D> {
    let cut = Cut::last_batch(folder);
    let cut = cut.inspect_err(|why| tracing::warn!("can't mend the log: {why}"));
    let cut = cut.ok()??;
    match open() {
        Ok(database) => {
            let path = cut.path.display();
            tracing::warn!(
                "dropped the last batch of {path}: it was torn before it was answered for"
            );
            Some(database)
        }
        Err(_) => {
            if let Err(why) = cut.undo() {
                tracing::error!("can't put the end of {} back: {why}", cut.path.display());
            }
            None
        }
    }
}

/// The end of a log that was cut off, so that it can be put back.
struct Cut {
    path: PathBuf,
    /// The remaining length of the log in bytes.
    length: u64,
    end: u8,
}

impl Cut {
    /// The size in bytes of the parts in which a log is searched from its end.
    const PART: u64 = 1024 * 1024;

    /// Cuts off the last byte that is not 0. This byte belongs to the end mark of a batch, so the database then drops
    /// the batch.
    fn last_batch(folder: &Path) -> io::Result<Option<Self>> {
        let Some(path) = last_log(folder)? else {
            return Ok(None);
        };
        let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut until = file.metadata()?.len();
        while until > 0 {
            let from = until.saturating_sub(Self::PART);
            let mut part = vec![0; (until - from) as usize];
            file.seek(SeekFrom::Start(from))?;
            file.read_exact(&mut part)?;
            if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
                let (length, end) = (from + last as u64, part[last]);
                file.set_len(length)?;
                file.sync_all()?;
                return Ok(Some(Self { path, length, end }));
            }
            until = from;
        }
        Ok(None)
    }

    /// Puts the byte back that was cut off. The file stays shorter by the zeros that followed the byte.
    fn undo(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        file.seek(SeekFrom::Start(self.length))?;
        file.write_all(&[self.end])?;
        file.sync_all()
    }
}

/// Returns the log that the database writes to, which is the one with the largest number.
fn last_log(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut last = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "jnl");
        let number = path
            .file_stem()
            .and_then(|name| name.to_str()?.parse().ok());
        if let (true, Some(number)) = (is_log, number) {
            last = last.max(Some((number, path)));
        }
    }
    Ok(last.map(|(_, path): (u64, _)| path))
}

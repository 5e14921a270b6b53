//! Reserved space on the disk, so that outcomes can be written while the disk is full.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that only takes up space.
pub(crate) struct Reserve {
    folder: PathBuf,
    file: PathBuf,
    /// Returns the free space on the disk of a folder, in bytes.
    pub(super) available: fn(&Path) -> io::Result<u64>,
}

impl Reserve {
    /// The size of the reserve in bytes. It is more than the database needs to write one of its memtables to the disk.
    const BYTES: u64 = 16 * 1024 * 1024;
    /// The free space in bytes that new requests require beside the reserve. New requests are thus refused before the
    /// database fails to write, and accepted again only when it can go on for a while. It may write two memtables at
    /// the same time.
    const BESIDE: u64 = 48 * 1024 * 1024;
    /// The block of bytes that fills the file. It is not zero, because a file system may skip blocks of zeros.
    const BLOCK: [u8; 64 * 1024] = [0xa5; 64 * 1024];

    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            file: folder.join("reserve"),
            available,
        }
    }

    /// Checks that there is enough free space for new requests.
    pub(crate) fn check(&self) -> io::Result<()> {
        let kept = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let wanted = Self::BESIDE + Self::BYTES.saturating_sub(kept);
        match (self.available)(&self.folder)? < wanted {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Returns the space that new requests may use, or `None` if it is unknown.
    pub(crate) fn free_bytes(&self) -> io::Result<Option<u64>> {
        let free = (self.available)(&self.folder)?;
        Ok((free < u64::MAX).then(|| free.saturating_sub(Self::BESIDE)))
    }

    /// Fills the reserve, unless it is full already.
    pub(crate) fn fill(&self) -> io::Result<()> {
        if std::fs::metadata(&self.file).is_ok_and(|file| file.len() == Self::BYTES) {
            return Ok(());
        }
        let filled = self.write();
        if filled.is_err() {
            self.free();
        }
        filled
    }

    fn write(&self) -> io::Result<()> {
        let mut file = File::create(&self.file)?;
        for _ in 0..Self::BYTES / Self::BLOCK.len() as u64 {
            file.write_all(&Self::BLOCK)?;
        }
        file.sync_all()
    }

    /// Returns the reserved space to the disk.
    pub(crate) fn free(&self) {
        if let Err(why) = std::fs::remove_file(&self.file)
            && why.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("can't remove {}: {why}", self.file.display());
        }
    }
}

/// Returns the free space on the disk of a folder, in bytes.
#[cfg(unix)]
fn available(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns `u64::MAX`, because other systems report a full disk only by a failed write.
#[cfg(not(unix))]
fn available(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

//! Files beside the configuration, which are read again while the gateway runs.
//!
//! A disk may hang, such as one in a network, and no read of it can be given up. So each file is read in a thread of its own,
//! which the reader leaves behind after a time limit. While such a thread hangs, its file gets no other one.

use std::collections::HashMap;
use std::fs::{File, metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The time for which a reader waits for a file.
const LIMIT: Duration = Duration::from_secs(5);

/// The files that are being read, each with the beginning of its read.
static READS: LazyLock<Mutex<HashMap<PathBuf, Instant>>> = LazyLock::new(Mutex::default);

/// Wakes the readers that wait for the end of a read.
static READ_ENDED: Condvar = Condvar::new();

/// Reads a regular file, or fails with [`ErrorKind::TimedOut`] after 5 s. Blocks the thread meanwhile. Other files are refused,
/// because a pipe would block until it is written to.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_with(path, LIMIT, content)
}

/// Reads a file as UTF-8, like [`read`].
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(&*read(path)?)
}

/// Reads a file as UTF-8 before the gateway serves. A pipe is read, too, such as that of a shell's `<(…)`, unless it has no
/// writer: then this fails with [`ErrorKind::TimedOut`] after 5 s.
pub(crate) fn read_once(path: &Path) -> io::Result<String> {
    if metadata(path)?.is_file() {
        return std::fs::read_to_string(path);
    }
    let content = read_with(path, LIMIT, |path| std::fs::read(path));
    let content = content.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => {
            let message =
                "it is no regular file, and no program has written it to its end within 5 s";
            io::Error::new(ErrorKind::TimedOut, message)
        }
        _ => error,
    })?;
    io::read_to_string(&*content)
}

fn read_with(
    path: &Path,
    limit: Duration,
    content: fn(&Path) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let late = || {
        let message = format!("its disk has not responded within {} s", limit.as_secs());
        io::Error::new(ErrorKind::TimedOut, message)
    };
    let reading = Reading::begin(path, limit).ok_or_else(late)?;
    let (done, result) = mpsc::sync_channel(1);
    thread::Builder::new().spawn(move || {
        let content = content(&reading.0);
        drop(reading);
        _ = done.send(content); // fails if the reader is gone
    })?;
    result.recv_timeout(limit).unwrap_or_else(|_| Err(late()))
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if !metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// The only read of a file, until it is dropped.
struct Reading(PathBuf);

impl Reading {
    /// Begins to read a file, after a read that is in progress. Returns `None` if that one is older than `limit` by then.
    fn begin(path: &Path, limit: Duration) -> Option<Self> {
        let mut reads = reads();
        while let Some(begin) = reads.get(path) {
            let left = limit.checked_sub(begin.elapsed())?;
            let waited = READ_ENDED.wait_timeout(reads, left);
            reads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        reads.insert(path.to_owned(), Instant::now());
        Some(Self(path.to_owned()))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        reads().remove(&self.0);
        READ_ENDED.notify_all();
    }
}

fn reads() -> MutexGuard<'static, HashMap<PathBuf, Instant>> {
    READS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    /// Stands for a disk that hangs until the test unlocks it.
    static DISK: Mutex<()> = Mutex::new(());

    static BEGUN: AtomicU32 = AtomicU32::new(0);

    fn hanging(_: &Path) -> io::Result<Vec<u8>> {
        BEGUN.fetch_add(1, Relaxed);
        drop(DISK.lock());
        Ok(b"late".to_vec())
    }

    #[test]
    fn a_file_that_hangs_is_read_once_at_a_time() {
        let path = Path::new("/hangs");
        let short = Duration::from_millis(50);
        let hangs = DISK.lock();
        for _ in 0..3 {
            let error = read_with(path, short, hanging).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        assert_eq!(BEGUN.load(Relaxed), 1);
        // Other files are read meanwhile.
        let other = read_with(Path::new("/other"), LIMIT, |_| Ok(Vec::new()));
        assert_eq!(other.unwrap(), b"");
        drop(hangs);
        let content = read_with(path, Duration::from_secs(60), hanging);
        assert_eq!(content.unwrap(), b"late");
    }
}

//! The log of the database as it is in a file: batches of rows, one after the other.
//!
//! The database itself takes any damage for the end of its log, and cuts off what follows. So a log is read here before
//! the database reads it, with the same format and stricter rules.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::numbered;

/// A whole batch in a log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    /// The bytes of the batch in the log.
    pub(super) bytes: Range<usize>,
    /// The number that orders the batch among all versions of its rows. The checksum does not cover it.
    pub(super) seqno: u64,
    /// The number of the commit. `None` if a version of the crate has written it that did not count.
    pub(super) commit: Option<u64>,
    /// The number that `seqno` must reach, as the batch itself has it.
    pub(super) least_seqno: Option<u64>,
    /// The number of the keyspace in which the batch puts the number of the commit.
    pub(super) keyspace: u64,
}

/// The key of the row in which a batch repeats its `seqno`, or a number that is a little smaller.
pub(super) const SEQNO: &[u8] = b"\xffseqno";

/// The marks at the beginning of each part of a batch.
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// The last bytes of a batch.
const MAGIC: &[u8] = b"FJL\x03";

/// Returns the batch at this place, if there is a whole one.
pub(super) fn batch(log: &[u8], at: usize) -> Option<Batch> {
    let mut reader = Reader(log.get(at..)?);
    let mut hash = Xxh3::new();
    let (mut numbers, mut commit_keyspace) = ((None, None), 0);
    if reader.byte()? != START {
        return None;
    }
    let items = reader.number::<4>()?;
    let seqno = reader.number::<8>()?;
    for _ in 0..items {
        let before = reader.0;
        match reader.byte()? {
            ITEM => {
                // The kind of the value and its compression.
                reader.take(2)?;
                let keyspace = reader.number::<8>()?;
                let key = reader.number::<2>()? as usize;
                reader.number::<4>()?;
                let value = reader.number::<4>()? as usize;
                let (key, value) = (reader.take(key)?, reader.take(value)?);
                match key {
                    numbered::COMMIT => (numbers.0, commit_keyspace) = (number(value), keyspace),
                    SEQNO => numbers.1 = number(value),
                    _ => {}
                }
            }
            CLEAR => drop(reader.take(8)?),
            _ => return None,
        }
        hash.update(&before[..before.len() - reader.0.len()]);
    }
    let is_whole = reader.byte()? == END
        && reader.number::<8>()? == hash.digest()
        && reader.take(MAGIC.len())? == MAGIC;
    is_whole.then(|| Batch {
        bytes: at..log.len() - reader.0.len(),
        seqno,
        commit: numbers.0,
        least_seqno: numbers.1,
        keyspace: commit_keyspace,
    })
}

/// Sets the `seqno` of the batch at the end of a log, which has this length.
pub(super) fn set_seqno(log: &mut [u8], length: usize, seqno: u64) {
    let from = log.len() - length + 1 + 4;
    log[from..from + 8].copy_from_slice(&seqno.to_le_bytes());
}

/// Returns the number in the value of a row.
fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

/// Returns the batches from this place on, up to the first that is not whole.
pub(super) fn batches(log: &[u8], mut at: usize) -> impl Iterator<Item = Batch> {
    std::iter::from_fn(move || {
        let batch = batch(log, at)?;
        at = batch.bytes.end;
        Some(batch)
    })
}

/// Returns the first whole batch with items at this place or behind it.
pub(super) fn search(log: &[u8], from: usize) -> Option<Batch> {
    let starts = (from..log.len()).filter(|&at| log[at] == START);
    let mut found = starts.filter_map(|at| batch(log, at));
    found.find(|batch| batch.bytes.len() > EMPTY)
}

/// The length of a batch without items.
const EMPTY: usize = 1 + 4 + 8 + 1 + 8 + MAGIC.len();

/// A reader of the parts of a batch.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// Reads a number of `N` bytes, at most 8.
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut number = [0; 8];
        number[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(number))
    }
}

/// Returns the logs in a folder with their numbers, the oldest first. The database writes to the last one.
pub(super) fn logs(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(".jnl")?.parse().ok());
        logs.extend(number.map(|number| (number, path)));
    }
    logs.sort_unstable();
    Ok(logs)
}

/// The size in bytes of the parts in which a log is searched from its end.
const PART: u64 = 1024 * 1024;

/// Reads what is written in a log. The database extends a new log by 64 MiB of zeros, which are left out.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut until = file.metadata()?.len();
    let mut part = Vec::new();
    while until > 0 {
        let from = until.saturating_sub(PART);
        part.resize((until - from) as usize, 0);
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut part)?;
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            let mut log = vec![0; from as usize + last + 1];
            file.rewind()?;
            file.read_exact(&mut log)?;
            return Ok(log);
        }
        until = from;
    }
    Ok(Vec::new())
}

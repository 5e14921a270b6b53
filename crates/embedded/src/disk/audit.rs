//! The check of the database's files before it opens them. It changes nothing, except that it cuts off a batch that was
//! torn while it was written, and completes a folder that lost its smallest file. It also removes files that no list of the
//! tables names, because it opens the tables to read the number of the last commit.
//!
//! The database drops a batch that has no end mark, and everything behind it. But the system writes pages in any order,
//! so a crash may leave any part of the last batch on the disk. Only a batch that nobody has acknowledged can be torn
//! like this, because each one is synced before it is acknowledged, and before the next one begins.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree, SeqNo, SequenceNumberCounter};
use xxhash_rust::xxh3::xxh3_128;

use super::journal::{self, Batch};
use crate::ledger::{self, Acknowledged};
use crate::numbered::COMMIT;

/// The most by which the order of a batch may be ahead of the previous one. Between two batches, the database counts
/// only its own changes of keyspaces.
pub(super) const AHEAD: u64 = 1 << 20;

/// The result of a check that found nothing wrong.
pub(super) struct Checked {
    /// `true` if an earlier version of the crate has written last. It keeps neither the number of the commit nor the list of
    /// the tables.
    pub(super) is_older: bool,
}

/// Checks the files of a database. Returns what is wrong with them, for the message of an error.
pub(super) fn check(folder: &Path, acknowledged: Acknowledged) -> Result<Checked, String> {
    let failed = |why: io::Error| why.to_string();
    if !folder.try_exists().map_err(failed)? {
        let is_older = false;
        return match acknowledged.number {
            0 => Ok(Checked { is_older }),
            number => Err(format!("its {number} commits are gone")),
        };
    }
    if acknowledged.number > 0 && !folder.join("version").try_exists().map_err(failed)? {
        return Err("the file `version` is gone".to_owned());
    }
    let Logs { torn, first, last } = check_logs(folder, acknowledged)?;
    let keyspaces = folder.join("keyspaces");
    check_keyspaces(&keyspaces, acknowledged)?;
    if let Some(first) = first {
        follows_tables(&keyspaces, &first, acknowledged)?;
    }
    if let Some(Torn { path, whole, rest }) = torn {
        tracing::warn!(
            "the last write to {} was torn before it was acknowledged, and is dropped",
            path.display()
        );
        std::fs::write(path.with_extension("torn"), rest).map_err(failed)?;
        cut(&path, whole).map_err(failed)?;
    }
    let is_older = last.is_some_and(|batch| batch.commit.is_none());
    Ok(Checked { is_older })
}

/// The contents of the logs.
struct Logs {
    torn: Option<Torn>,
    first: Option<Batch>,
    last: Option<Batch>,
}

/// A log with a torn end.
struct Torn {
    path: PathBuf,
    /// The length of the whole batches.
    whole: usize,
    /// The bytes behind them, of which a copy is kept.
    rest: Vec<u8>,
}

fn check_logs(folder: &Path, acknowledged: Acknowledged) -> Result<Logs, String> {
    let logs = journal::logs(folder).map_err(|why| why.to_string())?;
    if logs.is_empty() && acknowledged.number > 0 {
        return Err("the log is gone".to_owned());
    }
    let mut torn = None;
    let (mut first, mut last): (Option<Batch>, Option<Batch>) = (None, None);
    let mut expected = None;
    for (nth, (number, path)) in logs.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().display();
        if expected.is_some_and(|expected| expected != *number) {
            return Err(format!("a log before {name} is gone"));
        }
        expected = Some(number + 1);
        let log = journal::read(path).map_err(|why| format!("can't read {name}: {why}"))?;
        let mut whole = 0;
        for batch in journal::batches(&log, 0) {
            follows(last.as_ref(), &batch, acknowledged)
                .map_err(|why| format!("{name} has {why} at byte {}", batch.bytes.start))?;
            whole = batch.bytes.end;
            first.get_or_insert_with(|| batch.clone());
            last = Some(batch);
        }
        let behind = journal::search(&log, whole);
        let is_last = nth + 1 == logs.len();
        if behind.is_some() || (!is_last && whole < log.len()) {
            let behind = behind
                .iter()
                .flat_map(|batch| journal::batches(&log, batch.bytes.start));
            let lost = behind.count();
            return Err(format!(
                "{name} is damaged at byte {whole}, and {lost} whole commits follow"
            ));
        }
        if whole < log.len() {
            let path = path.clone();
            let rest = log[whole..].to_vec();
            torn = Some(Torn { path, whole, rest });
        }
    }
    // Without a commit in the logs, all are in the tables, where the number is checked once the database is open.
    match last.as_ref().and_then(|batch| batch.commit) {
        Some(commit) if commit < acknowledged.number => Err(format!(
            "its log ends with commit {commit} of {} that were acknowledged",
            acknowledged.number
        )),
        Some(_) if acknowledged.is_unknown => Err(ledger::GONE.to_owned()),
        _ => Ok(Logs { torn, first, last }),
    }
}

/// Checks that the tables have the number of the commit before the first one in the logs. The database removes a log once the
/// tables have all that is in it. The table of this number may be ahead of others, and then the loss of a log goes unnoticed.
fn follows_tables(
    keyspaces: &Path,
    first: &Batch,
    acknowledged: Acknowledged,
) -> Result<(), String> {
    let Some(commit) = first.commit else {
        return Ok(()); // an earlier version of the crate has written it
    };
    let before = commit.saturating_sub(1);
    if before <= acknowledged.salvaged {
        return Ok(());
    }
    let folder = keyspaces.join(first.keyspace.to_string());
    let number = match folder.try_exists() {
        Ok(true) => number_in_tables(folder),
        Ok(false) => Ok(None),
        Err(why) => Err(why.into()),
    };
    let number = number.map_err(|why| format!("can't read keyspaces/{}: {why}", first.keyspace))?;
    match number.unwrap_or(0) {
        number if number < before => Err(format!(
            "its tables end with commit {number}, and its logs begin with commit {commit}"
        )),
        _ => Ok(()),
    }
}

/// Returns the number of the last commit that is in the tables of a keyspace, without its logs.
fn number_in_tables(keyspace: PathBuf) -> lsm_tree::Result<Option<u64>> {
    let counter = SequenceNumberCounter::default;
    let tree = lsm_tree::Config::new(keyspace, counter(), counter()).open()?;
    let row = tree.get(COMMIT, SeqNo::MAX)?;
    Ok(row.and_then(|row| Some(u64::from_be_bytes((*row).try_into().ok()?))))
}

/// Checks that a batch is the next one after another. Returns what is wrong with it.
fn follows(last: Option<&Batch>, batch: &Batch, acknowledged: Acknowledged) -> Result<(), String> {
    let (Some(commit), Some(least)) = (batch.commit, batch.least_seqno) else {
        return Ok(());
    };
    if !(least..least + AHEAD).contains(&batch.seqno) {
        return Err(format!("commit {commit} out of order"));
    }
    let Some((before, seqno)) = last.and_then(|last| Some((last.commit?, last.seqno))) else {
        return Ok(());
    };
    // A commit that failed may be in the log all the same, and its repetition has the same number.
    let is_next = (before..=before + 1).contains(&commit) || commit <= acknowledged.salvaged;
    match is_next && seqno < batch.seqno {
        true => Ok(()),
        false => Err(format!("commit {commit} after commit {before}")),
    }
}

/// Cuts off the torn end of a log.
fn cut(path: &Path, length: usize) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length as u64)?;
    file.sync_all()
}

/// Checks the folders of the keyspaces, of which each has a list of its files, and a file that names this list.
fn check_keyspaces(folder: &Path, acknowledged: Acknowledged) -> Result<(), String> {
    let failed = |why: io::Error| why.to_string();
    if acknowledged.number > 0 && !folder.join("0").try_exists().map_err(failed)? {
        return Err("the folder `keyspaces/0` is gone".to_owned());
    }
    if !folder.try_exists().map_err(failed)? {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().display();
        check_keyspace(&path).map_err(|why| format!("in keyspaces/{name}, {why}"))?;
    }
    Ok(())
}

/// Checks the folder of a keyspace. Returns what is wrong with it.
pub(super) fn check_keyspace(folder: &Path) -> Result<(), String> {
    let current = folder.join("current");
    let named = match std::fs::read(&current) {
        Ok(named) => named,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return complete(folder, &current),
        Err(why) => return Err(format!("can't read `current`: {why}")),
    };
    let version = named
        .first_chunk()
        .map(|number| u64::from_le_bytes(*number));
    let Some(version) = version else {
        return Err("`current` is cut".to_owned());
    };
    match std::fs::read(folder.join(format!("v{version}"))) {
        Ok(list) if named == names(version, &list) => Ok(()),
        Ok(_) => Err(format!("`v{version}` or `current` is damaged")),
        Err(why) => Err(format!("can't read `v{version}`: {why}")),
    }
}

/// Returns the contents of the file that names this list.
fn names(version: u64, list: &[u8]) -> Vec<u8> {
    let hash = xxh3_128(list).to_le_bytes();
    [&version.to_le_bytes()[..], &hash[..], &[0]].concat()
}

/// Writes the missing file that names the list of a folder, because the database would remove the folder. The file is
/// also missing if a crash came while the folder was made.
fn complete(folder: &Path, current: &Path) -> Result<(), String> {
    let failed = |why: io::Error| why.to_string();
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let version = name
            .to_str()
            .and_then(|name| name.strip_prefix("v")?.parse::<u64>().ok());
        versions.extend(version);
    }
    // The newest one of several. A crash while the folder was removed leaves them, too, and the database goes on to remove it.
    let Some(version) = versions.into_iter().max() else {
        return Ok(());
    };
    let list = std::fs::read(folder.join(format!("v{version}"))).map_err(failed)?;
    std::fs::write(current, names(version, &list)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::tables::Tables;
    use super::*;
    use crate::storage::{Op, Table};

    /// Returns a folder with nothing but a log of this many commits, and the log.
    fn logged(name: &str, commits: u64) -> (PathBuf, Vec<u8>) {
        let name = format!("tower-triage-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let tables = Tables::open(&folder.join("database")).unwrap();
        for number in 1..=commits {
            let row = |table, key: &[u8]| {
                Op::Put(
                    table,
                    key.to_vec(),
                    Bytes::copy_from_slice(&number.to_be_bytes()),
                )
            };
            let ops = [row(Table::Meta, COMMIT), row(Table::Values, b"a value")];
            tables.commit(&ops).unwrap();
        }
        let log = journal::read(&folder.join("database/0.jnl")).unwrap();
        (folder, log)
    }

    fn acknowledged(number: u64) -> Acknowledged {
        Acknowledged {
            number,
            ..Acknowledged::default()
        }
    }

    fn check(folder: &Path, log: &[u8], number: u64) -> Result<Option<usize>, String> {
        std::fs::write(folder.join("0.jnl"), log).unwrap();
        let logs = check_logs(folder, acknowledged(number));
        logs.map(|logs| logs.torn.map(|torn| torn.whole))
    }

    #[test]
    fn every_damage_of_an_acknowledged_log_is_found() {
        let (folder, log) = logged("damage", 4);
        assert_eq!(check(&folder, &log, 4), Ok(None));
        let first = journal::batch(&log, 0).unwrap().bytes.end;
        let last = journal::batches(&log, 0).last().unwrap().bytes.start;
        for at in 0..log.len() {
            let mut flipped = log.clone();
            flipped[at] ^= 1 << (at % 8);
            // The order of the last batch may be a little ahead, because nothing follows it.
            let is_ahead = (last + 5..last + 8).contains(&at) && flipped[at] > log[at];
            let found = check(&folder, &flipped, 4);
            assert!(found.is_err() || is_ahead, "byte {at}: {found:?}");
            let mut zeros = log.clone();
            zeros[at..log.len().min(at + 64)].fill(0);
            let found = check(&folder, &zeros, 4);
            assert!(found.is_err(), "zeros at {at}: {found:?}");
            // Without a whole commit in the log, the number in the tables decides.
            let found = check(&folder, &log[..at], 4);
            assert!(found.is_err() || at < first, "cut at {at}: {found:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_segment_that_was_half_removed_is_removed() {
        let (folder, _) = logged("half-removed", 1);
        let database = folder.join("database");
        let keyspaces = || {
            let entries = std::fs::read_dir(database.join("keyspaces")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let before = keyspaces();
        let tables = Tables::open(&database).unwrap();
        let row = Op::Put(Table::Rows(1), b"key".to_vec(), Bytes::new());
        tables.commit(&[row]).unwrap();
        let new = keyspaces();
        let segment = new.difference(&before).next().unwrap();
        let segment = database.join("keyspaces").join(segment);
        let list = std::fs::read(segment.join("v0")).unwrap();
        tables.commit(&[Op::DropSegment(1)]).unwrap();
        drop(tables);

        // The crash came when its smallest file was gone, and two of its lists were left.
        std::fs::create_dir_all(&segment).unwrap();
        for name in ["v0", "v1"] {
            std::fs::write(segment.join(name), &list).unwrap();
        }
        super::check(&database, Acknowledged::default()).unwrap();
        drop(Tables::open(&database).unwrap());
        assert_eq!(keyspaces(), before);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_loss_of_the_oldest_log_is_found() {
        let (folder, log) = logged("oldest", 4);
        let database = folder.join("database");
        let end = journal::batches(&log, 0).nth(1).unwrap().bytes.end;
        std::fs::write(database.join("0.jnl"), &log[..end]).unwrap();
        std::fs::write(database.join("1.jnl"), &log[end..]).unwrap();
        let check = || super::check(&database, acknowledged(4)).map(|_| ());
        check().unwrap();
        std::fs::rename(database.join("0.jnl"), folder.join("0.jnl")).unwrap();
        let found = check().unwrap_err();
        assert!(found.contains("its logs begin with commit 3"), "{found}");

        // Opened with all its logs, the database moves the rows of the oldest one to its tables, and removes it.
        std::fs::rename(folder.join("0.jnl"), database.join("0.jnl")).unwrap();
        let tables = Tables::open(&database).unwrap();
        let is_gone = || !database.join("0.jnl").exists();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !is_gone() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(is_gone(), "the oldest log stays");
        drop(tables);
        check().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn any_part_of_a_batch_that_nobody_acknowledged_is_cut_off() {
        let (folder, log) = logged("torn", 3);
        let last = journal::batches(&log, 0).last().unwrap().bytes.start;
        for at in last + 1..log.len() {
            assert_eq!(check(&folder, &log[..at], 2), Ok(Some(last)), "cut at {at}");
            let mut missing = log.clone();
            missing[last..at].fill(0);
            assert_eq!(check(&folder, &missing, 2), Ok(Some(last)), "zeros to {at}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

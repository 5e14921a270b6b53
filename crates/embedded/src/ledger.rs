//! The number of commits that were acknowledged, in a file beside the database.
//!
//! The file is written after each commit, and synced now and then. It may thus be behind after a power loss, and is
//! never ahead: a database with fewer commits than the file says has lost some. It is synced before the first commit, so
//! a database with numbered commits has it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The contents of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// The number of the last commit that was acknowledged. 0 if nothing is known.
    pub(crate) number: u64,
    /// The number up to which commits may be missing, because the store was salvaged.
    pub(crate) salvaged: u64,
    /// `true` if the file is new, or can't be read.
    pub(crate) is_unknown: bool,
}

/// The fault of a database whose commits are numbered, if nothing says how many were acknowledged.
pub(crate) const GONE: &str =
    "the file `acknowledged` is gone or damaged, so lost commits would go unnoticed";

/// The open file.
pub(crate) struct Ledger {
    file: File,
    acknowledged: Acknowledged,
    synced: Instant,
}

/// The time between two syncs of the file, while there are commits.
const SYNC: Duration = Duration::from_secs(1);

impl Acknowledged {
    fn encode(self) -> String {
        let line = format!("{:020} {:020}", self.number, self.salvaged);
        // The line is there twice, so that damage shows.
        format!("{line}\n{line}\n")
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let (line, _) = std::str::from_utf8(text).ok()?.split_once('\n')?;
        let (number, salvaged) = line.split_once(' ')?;
        let decoded = Self {
            number: number.parse().ok()?,
            salvaged: salvaged.parse().ok()?,
            is_unknown: false,
        };
        (decoded.encode().as_bytes() == text).then_some(decoded)
    }
}

impl Ledger {
    /// Opens the file in the folder of a store. Creates the file if it is missing.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("acknowledged");
        let mut options = File::options();
        let file = options.create(true).truncate(false).read(true).write(true);
        let mut file = file.open(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let unknown = Acknowledged {
            is_unknown: true,
            ..Acknowledged::default()
        };
        Ok(Self {
            file,
            acknowledged: Acknowledged::decode(&text).unwrap_or(unknown),
            synced: Instant::now(),
        })
    }

    pub(crate) fn acknowledged(&self) -> Acknowledged {
        self.acknowledged
    }

    /// Writes down the number of a commit before it is acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u64) -> io::Result<()> {
        self.acknowledged.number = number;
        self.write()?;
        match self.synced.elapsed() < SYNC {
            true => Ok(()),
            false => self.sync(),
        }
    }

    /// Writes down that commits up to this number may be missing.
    pub(crate) fn salvage(&mut self, number: u64) -> io::Result<()> {
        self.acknowledged.salvaged = number;
        self.write()?;
        self.sync()
    }

    /// Writes a new file, or a damaged one anew, and makes sure that it is there after a power loss.
    pub(crate) fn create(&mut self, folder: &Path) -> io::Result<()> {
        // A damaged file may be longer.
        let length = self.acknowledged.encode().len();
        self.file.set_len(length as u64)?;
        self.write()?;
        self.sync()?;
        // Other systems can't open a folder.
        #[cfg(unix)]
        File::open(folder)?.sync_all()?;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(self.acknowledged.encode().as_bytes())
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.synced = Instant::now();
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_ledger_is_never_read_as_another_number() {
        let written = Acknowledged {
            number: 42,
            salvaged: 7,
            is_unknown: false,
        };
        let text = written.encode().into_bytes();
        assert_eq!(Acknowledged::decode(&text), Some(written));
        for at in 0..text.len() {
            assert_eq!(Acknowledged::decode(&text[..at]), None);
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(Acknowledged::decode(&flipped), None);
            }
        }
    }
}

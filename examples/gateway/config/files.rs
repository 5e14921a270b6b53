//! Files beside the configuration, which are read again while the gateway runs.

use std::fs::{File, metadata};
use std::io;
use std::path::Path;

/// Opens a regular file. A pipe would block until it is written to.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    match metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

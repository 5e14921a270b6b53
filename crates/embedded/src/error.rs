//! The error of a store that can't be opened.

use std::io;
use std::path::PathBuf;

use tower_triage_durable::InvalidStoreConfig;

/// An error from opening an [`EmbeddedStore`](super::EmbeddedStore).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] InvalidStoreConfig),
    /// Another process has opened the folder.
    #[error(
        "{} is in use by another process: stop that one, or give this one a folder of its own",
        path.display()
    )]
    Locked {
        /// The folder of the store.
        path: PathBuf,
    },
    /// The folder, or a file in it, can't be used.
    #[error("can't use {}: {source}", path.display())]
    Folder {
        /// The folder or the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The store has lost requests that it had acknowledged. Nothing was changed.
    #[error(
        "the store in {} is damaged: {why}. Restore a copy of the folder, or salvage what is whole",
        path.display()
    )]
    Damaged {
        /// The folder of the store.
        path: PathBuf,
        /// The damage that was found.
        why: String,
    },
    /// The log in the folder can't be opened or read.
    #[error(
        "can't open the log in {}: {why}. If its files are damaged, restore a copy of the folder, or salvage what is whole",
        path.display()
    )]
    Log {
        /// The folder of the log, or of the store.
        path: PathBuf,
        /// The error of the database.
        why: String,
    },
    /// The system can't provide random numbers.
    #[error("the system has no random numbers: {0}")]
    NoRandomness(io::Error),
}

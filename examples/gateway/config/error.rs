//! What is wrong with a configuration, in one line for a terminal and a log alike.
//!
//! The lines of the file are not shown with it: one of them may hold a key.

use std::io;
use std::path::{Path, PathBuf};

use tower_triage::endpoints::InvalidRegistry;
use tower_triage::route::InvalidRouting;

use super::environment::VariableError;
use super::headers::HeaderError;
use super::upstream::UpstreamError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidQueueConfig {
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: Problem },
    #[error(transparent)]
    Variable(#[from] VariableError),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("{0}")]
    Syntax(String),
    #[error("[queue]: {0}")]
    Queue(tower_triage::queue::InvalidQueueConfig),
    #[error("[routing]: {0}")]
    Routing(InvalidRouting),
    #[error("[upstream]: {0}")]
    Upstream(UpstreamError),
    #[error("[[backends]]: {0}")]
    Header(HeaderError),
    #[error("[[backends]]: {0}")]
    Backends(InvalidRegistry),
}

impl InvalidQueueConfig {
    pub(super) fn in_file(path: &Path, problem: Problem) -> Self {
        let path = path.to_owned();
        Self::File { path, problem }
    }
}

impl Problem {
    /// Where in `text` it stands, and what it is.
    pub(super) fn syntax(text: &str, mut error: toml::de::Error) -> Self {
        let start = error.span().and_then(|span| text.get(..span.start));
        let place = start.map_or_else(String::new, |before| {
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            format!("line {line}, column {column}, ")
        });
        error.set_input(None);
        let said = error.to_string(); // with the key, on a line of its own
        let key = said.strip_prefix(error.message()).unwrap_or_default();
        let key = key.trim();
        let place = format!("{place}{key}");
        let place = place.trim_end_matches(", ");
        Self::Syntax(format!("{place}: {}", error.message()))
    }
}

//! Errors of a configuration, each in one line for terminal and log.
//!
//! They do not quote the file, because a line of it may contain an API key.

use std::io;
use std::path::{Path, PathBuf};

use tower_triage::endpoints::InvalidRegistry;
use tower_triage::route::InvalidRouting;

use super::admin::InvalidAdmin;
use super::certificate::InvalidTls;
use super::durable::InvalidDurable;
use super::environment::InvalidVariable;
use super::headers::InvalidHeader;
use super::server::SmallBodyMemory;
use super::swap::InvalidSwapSection;
use super::tenants::InvalidTenant;
use super::upstream::InvalidUpstream;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidConfig {
    #[error("{}: {}{}", path.display(), at_line(*line), shortened(&problem.to_string()))]
    File {
        path: PathBuf,
        /// The line at which the section begins, unless the problem says where it is.
        line: Option<usize>,
        problem: Box<Problem>,
    },
    #[error(transparent)]
    Variable(#[from] InvalidVariable),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("{0}")]
    Syntax(String),
    #[error("[server]: {0}")]
    Server(SmallBodyMemory),
    #[error("{0}: {1}")]
    Tls(&'static str, InvalidTls),
    #[error("[admin]: {0}")]
    Admin(InvalidAdmin),
    #[error("[queue]: {0}")]
    Queue(tower_triage::queue::InvalidQueueConfig),
    #[error("[[tenants]]: {0}")]
    Tenants(InvalidTenant),
    #[error("[routing]: {0}")]
    Routing(InvalidRouting),
    #[error("[routing]: `default_backend` is {0:?}: it must be the `name` of one of [[backends]]")]
    DefaultBackend(String),
    #[error("[upstream]: {0}")]
    Upstream(InvalidUpstream),
    #[error("[[backends]]: {0}")]
    Header(InvalidHeader),
    #[error("[[backends]]: endpoint {0:?}: {1}")]
    Limit(String, &'static str),
    #[error("[[backends]]: {0}")]
    Backends(InvalidRegistry),
    #[error("[durable]: {0}")]
    Durable(InvalidDurable),
    #[error("[swap]: {0}")]
    Swap(InvalidSwapSection),
}

impl InvalidConfig {
    pub(super) fn in_file(path: &Path, line: Option<usize>, problem: Problem) -> Self {
        let path = path.to_owned();
        Self::File {
            path,
            line,
            problem: Box::new(problem),
        }
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}, "))
}

/// The most digits of a number that are shown.
const LONGEST_NUMBER: usize = 20;

/// Returns `message` with numbers like `1e300` in place of very many digits.
fn shortened(message: &str) -> String {
    let mut short = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = number.find(|c| !is_of_number(c)).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        short.push_str(before);
        match number.parse::<f64>() {
            Ok(value) if number.len() > LONGEST_NUMBER => short.push_str(&format!("{value:e}")),
            _ => short.push_str(number),
        }
        rest = after;
    }
    short + rest
}

impl Problem {
    /// A TOML error with its line, column and key, but without the source excerpt that `toml` prints.
    pub(super) fn syntax(text: &str, mut error: toml::de::Error) -> Self {
        let span = error.span();
        let start = span.as_ref().and_then(|span| text.get(..span.start));
        let place = start.map_or_else(String::new, |before| {
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            format!("line {line}, column {column}, ")
        });
        error.set_input(None);
        // Without input, an error prints its message and then, on the next line, "in `the.key`".
        let printed = error.to_string();
        let key = printed.strip_prefix(error.message()).unwrap_or_default();
        let place = format!("{place}{}", key.trim());
        let place = place.trim_end_matches(", ");
        let problem = match error.message() {
            // The span is that of the key.
            "duplicate key" => {
                let key = span.and_then(|span| text.get(span)).unwrap_or_default();
                format!("duplicate key `{key}`")
            }
            message => in_toml_terms(message),
        };
        Self::Syntax(format!("{place}: {problem}"))
    }
}

/// Replaces the Rust type that serde expected by words for TOML, such as "expected a whole number".
fn in_toml_terms(message: &str) -> String {
    if message == "wanted string or table" {
        return "invalid type, expected a string".to_owned(); // where an enum was expected
    }
    // Only the text after the last ", expected " is serde's; the text before it may quote the file.
    let Some((problem, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "a sequence" if problem == "invalid type: map" => {
            return "invalid type: table, expected an array (an array of tables is written [[name]])"
                .to_owned();
        }
        "u32" => "a whole number, at least 0 and at most 4294967295",
        "u64" | "usize" => "a whole number, at least 0",
        "a nonzero u32" => "a whole number above 0, at most 4294967295",
        "i64" => "a whole number",
        "f64" => "a number",
        "path string" => "a string",
        "a sequence" => "an array",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    // Of a number that is too large.
    let problem = problem.strip_suffix(" as i128").unwrap_or(problem);
    format!("{problem}, expected {expected}")
}

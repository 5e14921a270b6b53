//! The keys of a tenant: those in the configuration, and those in a file of their own.
//!
//! Only their hashes are kept, so no log and no page can show a key.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error};
use sha2::{Digest, Sha256};

use super::Environment;
use super::expand::{InvalidReference, expand};
use super::files;

/// The SHA-256 of a key. A look-up by it takes a time that tells nothing about the keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash([u8; 32]);

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

/// The keys of a tenant.
#[derive(Clone, PartialEq)]
pub(crate) struct Keys {
    listed: BTreeSet<KeyHash>,
    file: Option<KeyFile>,
}

/// A file with a key on each line, and its keys when it was last read.
#[derive(Clone, PartialEq)]
struct KeyFile {
    path: PathBuf,
    keys: BTreeSet<KeyHash>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidKeys {
    #[error("has no key: set `keys`, such as [\"${{TEAM_A_KEY}}\"], or `keys_file`")]
    Missing,
    #[error("a key of `keys` {0}")]
    Reference(InvalidReference),
    #[error("a key of `keys` is empty, or has a space or a character that is not ASCII")]
    Characters,
    #[error("`keys_file` {} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("`keys_file` {}, line {line}: a key has no spaces, and only ASCII characters", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("`keys_file` {} has no key: write one on each line", path.display())]
    Empty { path: PathBuf },
}

impl Keys {
    /// Reads the keys of a tenant. A relative `file` is below `base`. If its disk hangs, its keys are those of `running`.
    pub(super) fn read(
        listed: &Listed,
        file: Option<&Path>,
        base: &Path,
        environment: Environment,
        running: Option<&Self>,
    ) -> Result<Self, InvalidKeys> {
        let listed = listed.0.iter().map(|text| {
            let key = expand(text, environment).map_err(InvalidKeys::Reference)?;
            match is_key(&key) {
                true => Ok(KeyHash::of(key.as_bytes())),
                false => Err(InvalidKeys::Characters),
            }
        });
        let listed = listed.collect::<Result<BTreeSet<_>, _>>()?;
        let running = running.and_then(|keys| keys.file.as_ref());
        let file = file.map(|file| KeyFile::read_or(base.join(file), running));
        let file = file.transpose()?;
        if listed.is_empty() && file.is_none() {
            return Err(InvalidKeys::Missing);
        }
        Ok(Self { listed, file })
    }

    /// Returns the keys with those that the file has now, which may be none. `None` without a file.
    pub(crate) fn reread(&self) -> Option<Result<Self, InvalidKeys>> {
        let file = match KeyFile::read(self.file.as_ref()?.path.clone()) {
            // An operator has taken all of them away.
            Err(InvalidKeys::Empty { path }) => Ok(KeyFile {
                path,
                keys: BTreeSet::new(),
            }),
            file => file,
        };
        Some(file.map(|file| Self {
            listed: self.listed.clone(),
            file: Some(file),
        }))
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        let in_file = self.file.iter().flat_map(|file| &file.keys);
        self.listed.iter().chain(in_file).copied()
    }
}

impl KeyFile {
    /// Reads a file. If its disk hangs, it is as in `running`.
    fn read_or(path: PathBuf, running: Option<&Self>) -> Result<Self, InvalidKeys> {
        match Self::read(path) {
            Err(InvalidKeys::Unreadable { path, error })
                if error.kind() == io::ErrorKind::TimedOut
                    && let Some(running) = running.filter(|it| it.path == path) =>
            {
                Ok(running.clone())
            }
            read => read,
        }
    }

    fn read(path: PathBuf) -> Result<Self, InvalidKeys> {
        let text = match files::read_text(&path) {
            Ok(text) => text,
            Err(error) => return Err(InvalidKeys::Unreadable { path, error }),
        };
        let mut keys = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let (key, rest) = line
                .trim()
                .split_once(char::is_whitespace)
                .unwrap_or((line.trim(), ""));
            if key.is_empty() || key.starts_with('#') {
                continue;
            }
            let rest = rest.trim_start();
            if !is_key(key) || !rest.is_empty() && !rest.starts_with('#') {
                let line = index + 1;
                return Err(InvalidKeys::Line { path, line });
            }
            keys.insert(KeyHash::of(key.as_bytes()));
        }
        match keys.is_empty() {
            true => Err(InvalidKeys::Empty { path }),
            false => Ok(Self { path, keys }),
        }
    }
}

/// Other characters could not be sent, or would be trimmed on the way.
fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The key `keys` as it is written, before variables are expanded.
#[derive(Default)]
pub(super) struct Listed(Vec<String>);

/// Written by hand, because errors of a derived impl show the invalid value.
impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let toml::Value::Array(keys) = toml::Value::deserialize(deserializer)? else {
            return Err(D::Error::custom("`keys` must be an array of strings"));
        };
        let keys = keys.into_iter().map(|key| match key {
            toml::Value::String(key) => Ok(key),
            _ => Err(D::Error::custom("`keys` must be an array of strings")),
        });
        keys.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.hashes().count())
    }
}

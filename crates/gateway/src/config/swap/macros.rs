//! `[swap.macros]`: texts that commands use by name.
//!
//! A macro is put into a command line before that is split into words, so it may stand for several words. Macros may use
//! macros. All other references are left for the command, so a macro may use `${PORT}` or a variable of the environment.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error};

/// The macros, each with its text after the macros in it were put in.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Macros(BTreeMap<String, String>);

/// The longest text of a macro with those that it uses, in bytes.
const LONGEST: usize = 64 << 10;

/// The names that stand for something else in commands.
const RESERVED: [&str; 4] = ["PORT", "PID", "GATEWAY", "MODEL_ID"];

#[derive(Debug, PartialEq, thiserror::Error)]
enum InvalidMacros {
    #[error(
        "{0:?} is not a name of a macro: it must have letters, digits, `_` and `-` of ASCII, and no other characters"
    )]
    Name(String),
    #[error("{0:?} has a meaning of its own in commands: give the macro another name")]
    Reserved(String),
    #[error("the macro {0:?} has more than {LONGEST} bytes with those that it uses")]
    TooLong(String),
    #[error("the macros lead in a circle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
}

impl Macros {
    /// Returns a text with the macros that it uses put in.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        for part in parts(text) {
            match part {
                Part::Text(text) => expanded.push_str(text),
                Part::Reference(name, written) => {
                    expanded.push_str(self.0.get(name).map_or(written, String::as_str));
                }
            }
        }
        expanded
    }

    fn new(written: &BTreeMap<String, String>) -> Result<Self, InvalidMacros> {
        for name in written.keys() {
            if RESERVED.contains(&&**name) {
                return Err(InvalidMacros::Reserved(name.clone()));
            }
            if !is_name(name) {
                return Err(InvalidMacros::Name(name.clone()));
            }
        }
        let mut expanded = Self::default();
        for name in written.keys() {
            expanded.add(name, written, &mut Vec::new())?;
        }
        Ok(expanded)
    }

    /// Adds a macro, after those that it uses. `users` are the macros that lead to it.
    fn add<'a>(
        &mut self,
        name: &'a str,
        written: &'a BTreeMap<String, String>,
        users: &mut Vec<&'a str>,
    ) -> Result<(), InvalidMacros> {
        let Some(text) = written.get(name).filter(|_| !self.0.contains_key(name)) else {
            return Ok(());
        };
        let begin = users.iter().position(|user| *user == name);
        users.push(name);
        if let Some(begin) = begin {
            let circle = users[begin..].iter().map(|&name| name.to_owned());
            return Err(InvalidMacros::Cycle(circle.collect()));
        }
        for part in parts(text) {
            if let Part::Reference(used, _) = part {
                self.add(used, written, users)?;
            }
        }
        users.pop();
        let expanded = self.expand(text);
        if expanded.len() > LONGEST {
            return Err(InvalidMacros::TooLong(name.to_owned()));
        }
        self.0.insert(name.to_owned(), expanded);
        Ok(())
    }
}

/// A part of a text.
enum Part<'a> {
    Text(&'a str),
    /// A name, and the reference to it as it is written.
    Reference(&'a str, &'a str),
}

/// Returns the parts of a text. A `${` without an end is text, which the command refuses.
fn parts(mut text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    while let Some(start) = text.find("${") {
        let (before, rest) = text.split_at(start);
        let Some(end) = rest.find('}') else { break };
        let (written, after) = rest.split_at(end + 1);
        parts.push(Part::Text(before));
        parts.push(Part::Reference(&written[2..end], written));
        text = after;
    }
    parts.push(Part::Text(text));
    parts
}

/// Returns `true` if a macro may have this name.
pub(super) fn is_name(name: &str) -> bool {
    let may_be = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.chars().all(may_be)
}

impl<'de> Deserialize<'de> for Macros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = BTreeMap::deserialize(deserializer)?;
        Self::new(&written).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn macros(written: &[(&str, &str)]) -> Result<Macros, String> {
        let written = written.iter();
        let written = written.map(|&(name, text)| (name.to_owned(), text.to_owned()));
        Macros::new(&written.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn macros_that_grow_without_end_are_refused() {
        let written: Vec<_> = (0..40)
            .map(|nth| {
                (
                    format!("m{nth:02}"),
                    format!("${{m{:02}}}${{m{:02}}}", nth + 1, nth + 1),
                )
            })
            .collect();
        let mut written: Vec<_> = written.iter().map(|(a, b)| (&**a, &**b)).collect();
        written.push(("m40", "text"));
        let error = macros(&written).unwrap_err();
        assert!(error.contains("more than 65536 bytes"), "{error}");
    }

    #[test]
    fn macros_are_put_in_and_other_references_stay() {
        let macros = macros(&[
            ("a", "${server-bin} -x"),
            ("server-bin", "srv --port ${PORT}"),
            ("both", "${a} ${a} ${HOME}"),
        ])
        .unwrap();
        for (text, expanded) in [
            ("", ""),
            ("${a} ${MODEL_ID}", "srv --port ${PORT} -x ${MODEL_ID}"),
            (
                "é${both}é",
                "ésrv --port ${PORT} -x srv --port ${PORT} -x ${HOME}é",
            ),
            ("$a {a} ${b} ${a", "$a {a} ${b} ${a"),
        ] {
            assert_eq!(macros.expand(text), expanded, "{text}");
        }
    }

    #[test]
    fn circles_and_bad_names_are_refused() {
        for (written, said) in [
            (&[("a", "${a}")][..], "a → a"),
            (&[("a", "${b}"), ("b", "x${c}"), ("c", "${b}")], "b → c → b"),
            (&[("MODEL_ID", "x")], "\"MODEL_ID\" has a meaning"),
            (&[("a b", "x")], "\"a b\" is not a name"),
            (&[("", "x")], "\"\" is not a name"),
        ] {
            let error = macros(written).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}

//! The headers of a backend's own: its API key, most often.
//!
//! A key that is in the file is in its backups and its history, so a value says where in the environment the
//! key is. No value is ever shown, not even a wrong one.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::endpoints::Endpoint;

use super::Environment;

/// `headers = { authorization = "Bearer ${OPENAI_KEY}" }`
#[derive(Default)]
pub(super) struct Headers(Vec<(HeaderName, String)>);

#[derive(Debug, thiserror::Error)]
#[error("the header `{header}` of {backend:?} {problem}")]
pub(crate) struct HeaderError {
    backend: String,
    header: HeaderName,
    problem: BadValue,
}

#[derive(Debug, PartialEq, thiserror::Error)]
enum BadValue {
    #[error("needs the environment variable {0}, which is not set")]
    Unset(String),
    #[error("needs the environment variable {0}, which is empty")]
    Empty(String),
    #[error("needs the environment variable {0}, which is not UTF-8")]
    NotText(String),
    #[error("has a `${{` that no name of a variable and no `}}` follows: write `${{NAME}}`")]
    NoName,
    #[error(
        "has a value that no header can have: there is a line break or another control character in it"
    )]
    NoValue,
}

impl Headers {
    /// `endpoint`, with these headers.
    pub(super) fn onto(
        &self,
        endpoint: Endpoint,
        environment: Environment,
    ) -> Result<Endpoint, HeaderError> {
        self.0.iter().try_fold(endpoint, |endpoint, (name, text)| {
            let value = fill_in(text, environment)
                .and_then(|value| HeaderValue::try_from(value).map_err(|_| BadValue::NoValue));
            match value {
                Ok(value) => Ok(endpoint.header(name.clone(), value)),
                Err(problem) => Err(HeaderError {
                    backend: endpoint.name,
                    header: name.clone(),
                    problem,
                }),
            }
        })
    }
}

/// `text` with the values of variables where it has `${NAME}`.
fn fill_in(mut text: &str, environment: Environment) -> Result<String, BadValue> {
    let mut filled = String::new();
    while let Some((before, rest)) = text.split_once("${") {
        let (name, after) = rest.split_once('}').ok_or(BadValue::NoName)?;
        if !is_name(name) {
            return Err(BadValue::NoName);
        }
        let value = environment(name).ok_or_else(|| BadValue::Unset(name.to_owned()))?;
        let value = value
            .to_str()
            .ok_or_else(|| BadValue::NotText(name.to_owned()))?;
        if value.is_empty() {
            return Err(BadValue::Empty(name.to_owned()));
        }
        filled.push_str(before);
        filled.push_str(value);
        text = after;
    }
    filled.push_str(text);
    Ok(filled)
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// By hand, because serde's errors show the values that they refuse.
impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else {
            return Err(D::Error::custom(
                "`headers` must be a table: { authorization = \"Bearer ${KEY}\" }",
            ));
        };
        let mut headers = BTreeMap::new();
        for (name, value) in table {
            let toml::Value::String(text) = value else {
                return Err(D::Error::custom(format_args!(
                    "the value of the header {name:?} must be a string"
                )));
            };
            let Ok(header) = HeaderName::try_from(&name) else {
                return Err(D::Error::custom(format_args!(
                    "{name:?} is no header name: use ASCII letters, digits and hyphens"
                )));
            };
            if headers.insert(header.to_string(), (header, text)).is_some() {
                return Err(D::Error::custom(format_args!(
                    "the header {name:?} stands twice: upper and lower case are the same"
                )));
            }
        }
        Ok(Self(headers.into_values().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_nothing_else_is_changed() {
        let environment: Environment = |name| match name {
            "KEY" => Some("sk".into()),
            "NESTED" => Some("${KEY}".into()),
            "_2" => Some("two".into()),
            "EMPTY" => Some("".into()),
            _ => None,
        };
        for (text, filled) in [
            ("", Ok("")),
            ("plain", Ok("plain")),
            ("Bearer ${KEY}", Ok("Bearer sk")),
            ("${KEY}${_2}", Ok("sktwo")),
            ("$KEY $ {KEY} }", Ok("$KEY $ {KEY} }")),
            ("${NESTED}", Ok("${KEY}")),
            ("a ${NONE}", Err(BadValue::Unset("NONE".to_owned()))),
            ("a ${EMPTY}", Err(BadValue::Empty("EMPTY".to_owned()))),
            ("${KEY", Err(BadValue::NoName)),
            ("${}", Err(BadValue::NoName)),
            ("${sk-1234}", Err(BadValue::NoName)),
            ("${2}", Err(BadValue::NoName)),
        ] {
            let filled = filled.map(str::to_owned);
            assert_eq!(fill_in(text, environment), filled, "{text}");
        }
    }
}

//! Headers that the gateway sets on requests for one backend, usually its API key.
//!
//! A value may refer to environment variables, because a key written into the file also ends up in its backups
//! and its version history. Errors never show a value, valid or not.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::endpoints::Endpoint;

use super::Environment;

/// The key `headers`, such as `{ authorization = "Bearer ${OPENAI_KEY}" }`, before variables are expanded.
#[derive(Default)]
pub(super) struct Headers(Vec<(HeaderName, String)>);

#[derive(Debug, thiserror::Error)]
#[error("the header `{header}` of {backend:?} {problem}")]
pub(crate) struct InvalidHeader {
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
    NotUtf8(String),
    #[error("has a `${{` without a variable name and `}}` after it: write `${{NAME}}`")]
    BadReference,
    #[error("has a line break or another control character in its value, which no header may have")]
    ControlCharacter,
}

impl Headers {
    /// Adds these headers to `endpoint`.
    pub(super) fn apply_to(
        &self,
        endpoint: Endpoint,
        environment: Environment,
    ) -> Result<Endpoint, InvalidHeader> {
        self.0.iter().try_fold(endpoint, |endpoint, (name, text)| {
            let value = expand(text, environment).and_then(|value| {
                HeaderValue::try_from(value).map_err(|_| BadValue::ControlCharacter)
            });
            match value {
                Ok(value) => Ok(endpoint.header(name.clone(), value)),
                Err(problem) => Err(InvalidHeader {
                    backend: endpoint.name,
                    header: name.clone(),
                    problem,
                }),
            }
        })
    }
}

/// Replaces each `${NAME}` in `text` by the value of the variable. Values are not expanded again.
fn expand(mut text: &str, environment: Environment) -> Result<String, BadValue> {
    let mut expanded = String::new();
    while let Some((before, rest)) = text.split_once("${") {
        let (name, after) = rest.split_once('}').ok_or(BadValue::BadReference)?;
        if !is_name(name) {
            return Err(BadValue::BadReference);
        }
        let value = environment(name).ok_or_else(|| BadValue::Unset(name.to_owned()))?;
        let value = value
            .to_str()
            .ok_or_else(|| BadValue::NotUtf8(name.to_owned()))?;
        if value.is_empty() {
            return Err(BadValue::Empty(name.to_owned()));
        }
        expanded.push_str(before);
        expanded.push_str(value);
        text = after;
    }
    expanded.push_str(text);
    Ok(expanded)
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Written by hand, because errors of a derived impl show the invalid value.
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
                    "{name:?} is not a header name: use ASCII letters, digits and hyphens"
                )));
            };
            if headers.insert(header.to_string(), (header, text)).is_some() {
                return Err(D::Error::custom(format_args!(
                    "the header {name:?} appears twice: header names ignore case"
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
    fn variables_are_expanded_in_place() {
        let environment: Environment = |name| match name {
            "KEY" => Some("sk".into()),
            "NESTED" => Some("${KEY}".into()),
            "_2" => Some("two".into()),
            "EMPTY" => Some("".into()),
            _ => None,
        };
        for (text, expanded) in [
            ("", Ok("")),
            ("plain", Ok("plain")),
            ("Bearer ${KEY}", Ok("Bearer sk")),
            ("${KEY}${_2}", Ok("sktwo")),
            ("$KEY $ {KEY} }", Ok("$KEY $ {KEY} }")),
            ("${NESTED}", Ok("${KEY}")),
            ("a ${NONE}", Err(BadValue::Unset("NONE".to_owned()))),
            ("a ${EMPTY}", Err(BadValue::Empty("EMPTY".to_owned()))),
            ("${KEY", Err(BadValue::BadReference)),
            ("${}", Err(BadValue::BadReference)),
            ("${sk-1234}", Err(BadValue::BadReference)),
            ("${2}", Err(BadValue::BadReference)),
        ] {
            let expanded = expanded.map(str::to_owned);
            assert_eq!(expand(text, environment), expanded, "{text}");
        }
    }
}

//! Headers that the gateway sets on requests for one backend, usually its API key.
//!
//! A value may refer to environment variables. Errors never show a value, valid or not.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::endpoints::Endpoint;

use super::Environment;
use super::expand::{InvalidReference, expand};

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
    #[error(transparent)]
    Reference(#[from] InvalidReference),
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
            match header_value(text, environment) {
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

fn header_value(text: &str, environment: Environment) -> Result<HeaderValue, BadValue> {
    let value = expand(text, environment)?;
    HeaderValue::try_from(value).map_err(|_| BadValue::ControlCharacter)
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

//! The parameters of requests that the router sets and removes: fields at the top level of a JSON body.

use std::collections::BTreeMap;

/// The parameters that the router sets in the JSON bodies of requests, over those of the clients. Each has its value as JSON.
///
/// ```
/// use tower_triage::endpoints::{Model, SetParams};
///
/// let params = SetParams::default().param("temperature", "0.2")?;
/// let model = Model::new("qwen:7b").set_params(params).strip_params(["top_k"]);
/// assert!(!model.set_params.is_empty());
/// # Ok::<(), tower_triage::endpoints::InvalidParam>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetParams(BTreeMap<String, Box<str>>);

/// The error of a parameter that cannot be set or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidParam {
    /// The name of the model is no parameter, because the router chooses by it.
    #[error("`model` is not a parameter: `use_model_name` sets the name that the backend gets")]
    Model,
    /// The value is not JSON.
    #[error("the value of {name:?} is not JSON: {problem}")]
    NotJson {
        /// The name of the parameter.
        name: String,
        /// The mistake, in words.
        problem: String,
    },
}

/// The field of a body that names the model.
const MODEL: &str = "model";

impl SetParams {
    /// Adds a parameter, whose value is the text `json`. A parameter of the same name is replaced.
    ///
    /// # Errors
    ///
    /// Fails if the text is not one JSON value, or if the name is `model`.
    pub fn param(mut self, name: impl Into<String>, json: &str) -> Result<Self, InvalidParam> {
        let name = name.into();
        if name == MODEL {
            return Err(InvalidParam::Model);
        }
        let value: Result<&serde_json::value::RawValue, _> = serde_json::from_str(json);
        match value {
            Ok(value) => self.0.insert(name, value.get().into()),
            Err(error) => {
                let problem = error.to_string();
                return Err(InvalidParam::NotJson { name, problem });
            }
        };
        Ok(self)
    }

    /// Returns `true` if no parameter is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each name and its value as JSON, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

#[cfg(feature = "serde")]
pub(crate) mod read {
    //! Deserializes parameters from any format. Mistakes are found while a value is read, so an error names its key.

    use serde::de::{Deserialize, Deserializer, Error};
    use serde_json::Value;

    use super::{BTreeMap, InvalidParam, MODEL, SetParams};

    impl<'de> Deserialize<'de> for SetParams {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let values: BTreeMap<String, Value> = BTreeMap::deserialize(deserializer)?;
            let mut params = Self::default();
            for (name, value) in values {
                if !is_allowed(&value) {
                    return Err(D::Error::custom(format_args!(
                        "the value of {name:?} is not JSON: it must be text, a whole number, a finite number, true, false, \
                         an array or a table"
                    )));
                }
                let set = params.param(name, &value.to_string());
                params = set.map_err(D::Error::custom)?;
            }
            Ok(params)
        }
    }

    /// Returns `true` if a value means the same in JSON. TOML has dates, which come as tables, and infinite numbers, which come
    /// as null.
    fn is_allowed(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::Array(items) => items.iter().all(is_allowed),
            Value::Object(fields) => fields
                .iter()
                .all(|(name, value)| !name.starts_with("$__toml") && is_allowed(value)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }

    /// Reads the names of parameters that are removed.
    pub(crate) fn stripped<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let names: Vec<String> = Vec::deserialize(from)?;
        match names.iter().any(|name| name == MODEL) {
            true => Err(D::Error::custom(InvalidParam::Model)),
            false => Ok(names),
        }
    }

    /// Reads the name that the endpoint gets.
    pub(crate) fn model_name<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<String>, D::Error> {
        let name = String::deserialize(from)?;
        match name.is_empty() {
            true => Err(D::Error::custom(
                "an empty name: it must be the name of the model at the backend",
            )),
            false => Ok(Some(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_json_and_never_the_model() {
        let params = SetParams::default().param("a", " [1, 2] ").unwrap();
        assert_eq!(params.iter().next(), Some(("a", "[1, 2]")));
        let with = |name: &str, json: &str| SetParams::default().param(name, json);
        assert_eq!(with("model", "\"m\""), Err(InvalidParam::Model));
        for json in ["", "x", "1 2", "nan"] {
            let error = with("a", json).unwrap_err();
            assert!(matches!(error, InvalidParam::NotJson { .. }), "{json}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn parameters_are_read_from_toml() {
        let read = |text: &str| {
            let table: Result<BTreeMap<String, SetParams>, _> = toml::from_str(text);
            table.map_err(|error| error.message().to_owned())
        };
        let params =
            read("p = { t = 0.2, n = 2, s = 'x\"', b = true, o = { a = [1, 'b'] } }").unwrap();
        let written: Vec<_> = params["p"].iter().collect();
        let expected = [
            ("b", "true"),
            ("n", "2"),
            ("o", r#"{"a":[1,"b"]}"#),
            ("s", r#""x\"""#),
            ("t", "0.2"),
        ];
        assert_eq!(written, expected);
        for (value, said) in [
            ("{ a = nan }", "\"a\" is not JSON"),
            ("{ a = [{ b = 1979-05-27 }] }", "\"a\" is not JSON"),
            ("{ model = 'm' }", "use_model_name"),
        ] {
            let error = read(&format!("p = {value}")).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}

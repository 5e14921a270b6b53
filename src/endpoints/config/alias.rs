//! Other names for models.

use crate::endpoints::SetParams;

/// The model that another name stands for, with the changes to requests that ask by that name.
///
/// The changes go before those of the [model](crate::endpoints::Model) that serves the request. They do not apply if an
/// endpoint serves a model of the alias's own name.
///
/// With feature `serde`, an alias is read from the name of its model, or from a table.
///
/// ```
/// use tower_triage::endpoints::SetParams;
/// use tower_triage::route::{Alias, RoutingConfig};
///
/// let params = SetParams::default().param("temperature", "0")?;
/// let routing = RoutingConfig::default()
///     .alias("gpt-4", "llama3:70b")
///     .alias("exact", Alias::new("llama3:70b").set_params(params));
/// assert_eq!(routing.aliases["exact"].model, "llama3:70b");
/// # Ok::<(), tower_triage::endpoints::InvalidParam>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alias {
    /// The model that the name stands for.
    pub model: String,
    /// The name that the endpoint gets as `model` if it serves the alias's own model. Default `None`, for the name that
    /// the model sets.
    pub use_model_name: Option<String>,
    /// The parameters that the endpoint gets in a JSON body, over those of the client and of the model. Default: none.
    pub set_params: SetParams,
    /// The names of parameters to remove from a JSON body, unless they are set. Default: none. Without `tools` or
    /// `response_format`, requests with these fields need neither `tools` nor `json_mode`.
    pub strip_params: Vec<String>,
}

impl Alias {
    /// Returns an alias of this model that changes no request.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            use_model_name: None,
            set_params: SetParams::default(),
            strip_params: Vec::new(),
        }
    }

    /// Sets the name that the endpoint gets as `model`.
    #[must_use]
    pub fn use_model_name(mut self, name: impl Into<String>) -> Self {
        self.use_model_name = Some(name.into());
        self
    }

    /// Sets the parameters that the endpoint gets over those of the client.
    #[must_use]
    pub fn set_params(mut self, params: SetParams) -> Self {
        self.set_params = params;
        self
    }

    /// Sets the names of parameters to remove from JSON bodies.
    #[must_use]
    pub fn strip_params<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.strip_params = names.into_iter().map(Into::into).collect();
        self
    }
}

impl From<&str> for Alias {
    fn from(model: &str) -> Self {
        Self::new(model)
    }
}

impl From<String> for Alias {
    fn from(model: String) -> Self {
        Self::new(model)
    }
}

#[cfg(feature = "serde")]
mod read {
    //! Deserializes an alias from a string or a table.

    use std::fmt;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

    use super::Alias;
    use crate::endpoints::{SetParams, params};

    impl<'de> Deserialize<'de> for Alias {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(NameOrTable)
        }
    }

    struct NameOrTable;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        model: String,
        #[serde(default, deserialize_with = "params::read::model_name")]
        use_model_name: Option<String>,
        #[serde(default)]
        set_params: SetParams,
        #[serde(default, deserialize_with = "params::read::stripped")]
        strip_params: Vec<String>,
    }

    impl<'de> Visitor<'de> for NameOrTable {
        type Value = Alias;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a model, or a table with its `model`")
        }

        fn visit_str<E>(self, model: &str) -> Result<Alias, E> {
            Ok(Alias::new(model))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Alias, A::Error> {
            let table = Table::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Alias {
                model: table.model,
                use_model_name: table.use_model_name,
                set_params: table.set_params,
                strip_params: table.strip_params,
            })
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_alias_is_a_name_or_a_table() {
        let read = |alias: &str| {
            let aliases: Result<BTreeMap<String, Alias>, _> =
                toml::from_str(&format!("a = {alias}"));
            let read = aliases.map(|mut aliases| aliases.remove("a").unwrap());
            read.map_err(|error| error.message().to_owned())
        };
        assert_eq!(read("'m'"), Ok(Alias::new("m")));
        let table =
            "{ model = 'm', set_params = { t = 0.5 }, strip_params = ['k'], use_model_name = 'n' }";
        let params = SetParams::default().param("t", "0.5").unwrap();
        let built = Alias::new("m").set_params(params).strip_params(["k"]);
        assert_eq!(read(table), Ok(built.use_model_name("n")));
        for (alias, said) in [
            ("{ set_params = {} }", "missing field `model`"),
            ("{ model = 'm', strip = [] }", "unknown field `strip`"),
            (
                "{ model = 'm', strip_params = ['model'] }",
                "use_model_name",
            ),
            ("{ model = 'm', use_model_name = '' }", "an empty name"),
            ("3", "expected the name of a model, or a table"),
        ] {
            let error = read(alias).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}

//! The bodies of requests in JSON, read by the router and by `serde_json`.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tower_triage::endpoints::{Requirements, RouteError};

#[test]
fn a_body_is_read_as_by_serde_json() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let read = Requirements::from_json(input);
            let Ok(fields) = serde_json::from_slice::<Fields<'_>>(input) else {
                assert!(is_malformed(&read), "{read:?}");
                return;
            };
            match fields.model() {
                Model::Named(name) => fields.agree_with(read.as_ref(), &name),
                Model::Missing => {
                    let error = read.expect_err("no model is named");
                    assert_eq!(error.code(), "model_missing");
                }
                Model::Wrong => assert!(is_malformed(&read), "{read:?}"),
            }
        });
}

fn is_malformed(read: &Result<Requirements<'_>, RouteError>) -> bool {
    matches!(read, Err(error) if error.code() == "malformed_body")
}

enum Model {
    Named(String),
    Missing,
    /// A value of another type, two values, or a name in another case.
    Wrong,
}

/// The values of an object by their names, as they are written. A name that is no text, such as half of a surrogate pair, is
/// left out.
struct Fields<'a>(HashMap<String, Vec<&'a str>>);

impl Fields<'_> {
    fn all(&self, name: &str) -> &[&str] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn model(&self) -> Model {
        let is_other = |name: &String| name.eq_ignore_ascii_case("model") && name != "model";
        if self.0.keys().any(is_other) {
            return Model::Wrong;
        }
        match self.all("model") {
            [] | ["null"] => Model::Missing,
            [value] => match serde_json::from_str::<String>(value) {
                Ok(name) if name.is_empty() => Model::Missing,
                Ok(name) => Model::Named(name),
                Err(_) => Model::Wrong,
            },
            _ => Model::Wrong,
        }
    }

    fn agree_with(&self, read: Result<&Requirements<'_>, &RouteError>, name: &str) {
        let read = read.unwrap_or_else(|error| panic!("{name:?} is named: {error}"));
        assert_eq!(read.model, name);
        assert_eq!(read.stream, self.all("stream").last() == Some(&"true"));
        let has_items = |tools: &&str| {
            let items = serde_json::from_str::<Vec<&RawValue>>(tools);
            items.is_ok_and(|items| !items.is_empty())
        };
        assert_eq!(read.tools, self.all("tools").iter().any(has_items));
        assert_eq!(read.max_tokens, self.max_tokens());
    }

    fn max_tokens(&self) -> Option<u32> {
        let others = ["options", "parameters", "sampling_params"];
        let bounds = [
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n_predict",
        ];
        let values = bounds.iter().flat_map(|name| self.all(name));
        let values = values.filter(|value| **value != "null");
        let values: Option<Vec<u32>> = values
            .map(|value| value.parse().ok().filter(|tokens| *tokens > 0))
            .collect();
        let is_bounded = others.iter().all(|name| self.all(name).is_empty());
        values?.into_iter().max().filter(|_| is_bounded)
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadFields)
    }
}

struct ReadFields;

impl<'de> Visitor<'de> for ReadFields {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = HashMap::<_, Vec<_>>::new();
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            if let Ok(name) = serde_json::from_str(name.get()) {
                fields.entry(name).or_default().push(value.get());
            }
        }
        Ok(Fields(fields))
    }
}

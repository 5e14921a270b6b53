//! Parsing a whole body into a tree to learn one name costs more than the rest of the way through a
//! gateway, and lets a client choose how deep the stack goes.
//!
//! Here everything but the name is skipped where it stands: no tree, no recursion, no copies.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::RouteError;

/// The `model` of a JSON object, borrowed unless it is written with escapes.
pub(super) fn read_model(body: &[u8]) -> Result<Cow<'_, str>, RouteError> {
    // Skipped strings are not validated, and a body is forwarded as a whole.
    let body = std::str::from_utf8(body).map_err(RouteError::malformed)?;
    let Body { model } = serde_json::from_str(body).map_err(RouteError::malformed)?;
    model
        .filter(|name| !name.is_empty())
        .ok_or(RouteError::ModelMissing)
}

struct Body<'a> {
    model: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for Body<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut model = None;
        while let Some(key) = map.next_key()? {
            match key {
                // Which of two counts differs from reader to reader, and so would who serves it.
                Key::Model if model.is_some() => return Err(A::Error::duplicate_field("model")),
                Key::Model => model = Some(map.next_value::<Name<'de>>()?.0),
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Body {
            model: model.flatten(),
        })
    }
}

enum Key {
    Model,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        Ok(if key == "model" {
            Key::Model
        } else {
            Key::Other
        })
    }
}

/// A string, or `null` for none.
struct Name<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a model")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Some(Cow::Borrowed(name))))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Some(Cow::Owned(name.to_owned()))))
    }

    fn visit_unit<E: Error>(self) -> Result<Name<'de>, E> {
        Ok(Name(None))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn malformed(body: impl AsRef<[u8]>) -> String {
        match read_model(body.as_ref()) {
            Err(RouteError::MalformedBody { reason }) => reason,
            other => panic!("not malformed: {other:?}"),
        }
    }

    #[test]
    fn the_name_is_borrowed_wherever_it_stands() {
        for body in [
            r#"{"model":"m"}"#,
            r#" { "messages" : [{"model":"x"}], "model" : "m", "n" : 1e400 } "#,
            r#"{"a":{"model":{}},"\u006dodel":"m","Model":"x"}"#,
        ] {
            assert!(
                matches!(read_model(body.as_bytes()), Ok(Cow::Borrowed("m"))),
                "{body}"
            );
        }
    }

    #[test]
    fn escapes_in_the_name_are_read() {
        let name = read_model(br#"{"model":"ll\u0061ma\n\ud83e\udd99"}"#).unwrap();
        assert_eq!(name, "llama\n🦙");
    }

    #[test]
    fn a_body_without_a_name_is_told_so() {
        for body in [
            r#"{}"#,
            r#"{"messages":[]}"#,
            r#"{"model":null}"#,
            r#"{"model":""}"#,
        ] {
            assert_eq!(
                read_model(body.as_bytes()),
                Err(RouteError::ModelMissing),
                "{body}"
            );
        }
    }

    #[test]
    fn whatever_is_not_one_json_object_is_malformed() {
        for body in [
            "",
            " ",
            "null",
            "[]",
            "\"model\"",
            "{",
            r#"{"model"#,
            r#"{"model":"m""#,
            r#"{"model":"m"} x"#,
            r#"{"model":"m"}{"model":"m"}"#,
            r#"{"model":1}"#,
            r#"{"model":["m"]}"#,
            r#"{"model":{"m":1}}"#,
            r#"{"model":"\ud800"}"#,
            r#"{model:"m"}"#,
            "\u{feff}{\"model\":\"m\"}",
            "{\"model\":\"a\nb\"}",
        ] {
            malformed(body);
        }
        assert!(malformed(r#"{"model":"a","model":"a"}"#).contains("duplicate field `model`"));
        assert!(malformed(r#"{"model":null,"model":"a"}"#).contains("duplicate field `model`"));
        assert!(malformed(b"{\"model\":\"m\",\"x\":\"\xff\"}").contains("utf-8"));
        assert!(malformed(format!("\"{}\"", "é".repeat(500_000))).len() < 250);
    }

    #[test]
    fn depth_costs_no_stack() {
        let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
        let nested = format!(r#"{{"x":{open}{close},"model":"m"}}"#);
        assert_eq!(read_model(nested.as_bytes()).unwrap(), "m");
        malformed(format!(r#"{{"model":{open}{close}}}"#));
        malformed(&open);
        malformed(r#"{"a":"#.repeat(100_000));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(body: Vec<u8>) {
            let _ = read_model(&body);
        }

        #[test]
        fn any_name_survives(name in "\\PC+") {
            let body = serde_json::json!({ "x": [name.clone()], "model": name }).to_string();
            prop_assert_eq!(read_model(body.as_bytes()).unwrap(), name);
        }
    }
}

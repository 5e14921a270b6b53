//! Parsing a whole body into a tree to learn one name costs more than the rest of the way through a
//! gateway, and lets a client choose how deep the stack goes.
//!
//! Here everything but the name is skipped where it stands: no tree, no recursion, no copies.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::RouteError;

/// What is read of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read<'a> {
    /// Borrowed unless it is written with escapes.
    pub(super) model: Cow<'a, str>,
    pub(super) stream: bool,
}

/// Reads a body that is one JSON object.
pub(super) fn read(body: &[u8]) -> Result<Read<'_>, RouteError> {
    // Skipped strings are not validated, and a body is forwarded as a whole.
    let body = std::str::from_utf8(body).map_err(RouteError::malformed)?;
    let Body { model, stream } = serde_json::from_str(body).map_err(RouteError::malformed)?;
    let model = model.filter(|name| !name.is_empty());
    Ok(Read {
        model: model.ok_or_else(RouteError::model_missing)?,
        stream,
    })
}

struct Body<'a> {
    model: Option<Cow<'a, str>>,
    stream: bool,
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
        let (mut model, mut stream) = (None, false);
        while let Some(key) = map.next_key()? {
            match key {
                // Which of two counts differs from reader to reader, and so would who serves it.
                Key::Model if model.is_some() => return Err(A::Error::duplicate_field("model")),
                Key::Model => model = Some(map.next_value::<Name<'de>>()?.0),
                Key::Stream => stream = map.next_value::<Flag>()?.0,
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Body {
            model: model.flatten(),
            stream,
        })
    }
}

enum Key {
    Model,
    Stream,
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
        Ok(match key {
            "model" => Key::Model,
            "stream" => Key::Stream,
            _ => Key::Other,
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

/// `true`, or anything else: whether that is allowed is for the endpoint to say.
struct Flag(bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value: &serde_json::value::RawValue = Deserialize::deserialize(deserializer)?;
        Ok(Self(value.get() == "true"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn model_of(body: &[u8]) -> Result<Cow<'_, str>, RouteError> {
        read(body).map(|read| read.model)
    }

    #[test]
    fn a_stream_is_asked_for_by_true_alone() {
        for (body, stream) in [
            (r#"{"model":"m","stream":true}"#, true),
            (r#"{"stream": true ,"model":"m"}"#, true),
            (r#"{"model":"m","stream":false}"#, false),
            (r#"{"model":"m","stream":null}"#, false),
            (r#"{"model":"m","stream":{"true":[true]}}"#, false),
            (r#"{"model":"m"}"#, false),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap().stream, stream, "{body}");
        }
    }

    use super::*;

    fn malformed(body: impl AsRef<[u8]>) -> String {
        match model_of(body.as_ref()) {
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
                matches!(model_of(body.as_bytes()), Ok(Cow::Borrowed("m"))),
                "{body}"
            );
        }
    }

    #[test]
    fn escapes_in_the_name_are_read() {
        let name = model_of(br#"{"model":"ll\u0061ma\n\ud83e\udd99"}"#).unwrap();
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
                model_of(body.as_bytes()),
                Err(RouteError::model_missing()),
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
        assert_eq!(model_of(nested.as_bytes()).unwrap(), "m");
        malformed(format!(r#"{{"model":{open}{close}}}"#));
        malformed(&open);
        malformed(r#"{"a":"#.repeat(100_000));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(body: Vec<u8>) {
            let _ = model_of(&body);
        }

        #[test]
        fn any_name_survives(name in "\\PC+") {
            let body = serde_json::json!({ "x": [name.clone()], "model": name }).to_string();
            prop_assert_eq!(model_of(body.as_bytes()).unwrap(), name);
        }
    }
}

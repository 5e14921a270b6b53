mod asked;
mod prompt;
mod reference;

use proptest::prelude::*;
use serde_json::value::RawValue;

use std::borrow::Cow;

use std::ops::Range;

use super::json::explain;
use super::requirements;
use crate::endpoints::{Requirements, RouteError};

/// Reads the demand, the range of the model's name, and the length of the prompt.
fn read(body: &[u8]) -> Result<(Requirements<'_>, Range<usize>, u64), RouteError> {
    let (asked, model_at, length) = requirements::read(body, true)?;
    let model_at = model_at.ok_or_else(RouteError::model_missing)?;
    Ok((asked, model_at, length))
}

fn model_of(body: &[u8]) -> Result<Cow<'_, str>, RouteError> {
    Requirements::from_json(body).map(|asked| asked.model)
}

fn malformed(body: impl AsRef<[u8]>) -> String {
    match model_of(body.as_ref()) {
        Err(RouteError::MalformedBody { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    }
}

/// Reads `fields` of a body that names a model.
fn asked<T>(fields: &str, what: impl Fn(Requirements<'_>) -> T) -> T {
    let body = format!(r#"{{"model":"m",{fields}}}"#);
    what(
        read(body.as_bytes())
            .unwrap_or_else(|why| panic!("{body}: {why}"))
            .0,
    )
}

#[test]
fn the_name_is_borrowed_from_any_position() {
    for body in [
        r#"{"model":"m"}"#,
        r#" { "messages" : [{"model":"x"}], "model" : "m", "n" : 1e400 } "#,
        r#"{"a":{"model":{}},"\u006dodel":"m","models":"x"}"#,
        "\r\n\t{\"x\":\"é\\u00e9\",\"model\"\n:\t\"m\"}",
    ] {
        let (asked, model_at, _) = read(body.as_bytes()).unwrap();
        assert!(matches!(asked.model, Cow::Borrowed("m")), "{body}");
        assert_eq!(&body[model_at], r#""m""#, "{body}");
    }
}

#[test]
fn a_model_in_another_case_is_refused() {
    for body in [r#"{"model":"m","Model":"x"}"#, r#"{"MODEL":"x"}"#] {
        let error = read(body.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("lower case"), "{error}");
    }
}

#[test]
fn escapes_in_the_name_are_read() {
    let body = br#"{"model":"ll\u0061ma\n\ud83e\udd99"}"#;
    let (asked, model_at, _) = read(body).unwrap();
    assert_eq!(asked.model, "llama\n🦙");
    assert_eq!(model_at, 9..body.len() - 1);
}

#[test]
fn a_name_of_a_megabyte_is_read() {
    let long = "m".repeat(1 << 20);
    let body = format!(r#"{{"model":"{long}"}}"#);
    assert_eq!(model_of(body.as_bytes()).unwrap(), long);
}

#[test]
fn a_body_without_a_model_is_refused() {
    for body in [
        r#"{}"#,
        r#"{"messages":[]}"#,
        r#"{"model":null}"#,
        r#"{"model": null }"#,
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
fn anything_but_one_json_object_is_malformed() {
    for body in [
        "",
        " ",
        "null",
        "[]",
        "\"model\"",
        "{",
        r#"{"model"#,
        r#"{"model":"m""#,
        r#"{"model":"m",}"#,
        r#"{"model":"m"} x"#,
        r#"{"model":"m"}{"model":"m"}"#,
        r#"{"model":1}"#,
        r#"{"model":["m"]}"#,
        r#"{"model":{"m":1}}"#,
        r#"{"model":"\ud800"}"#,
        r#"{model:"m"}"#,
        "\u{feff}{\"model\":\"m\"}",
        "{\"model\":\"a\nb\"}",
        "{\"model\":\"m\",\"messages\":[{\"content\":\"a\nb\"}]}",
        r#"{"model":"m","messages":[{"content":"\x"}]}"#,
        r#"{"model":"m","messages":[{"content":01}]}"#,
        r#"{"model":"m","messages":[{"content":"a"},]}"#,
    ] {
        malformed(body);
    }
    assert!(malformed(r#"{"model":"a","model":"a"}"#).contains("duplicate field `model`"));
    assert!(malformed(r#"{"model":null,"model":"a"}"#).contains("duplicate field `model`"));
    assert!(malformed(r#"{"model":"a","mode\u006c":"b"}"#).contains("duplicate field `model`"));
    assert!(malformed(b"{\"model\":\"m\",\"x\":\"\xff\"}").contains("utf-8"));
    assert!(malformed(format!("\"{}\"", "é".repeat(500_000))).len() < 250);
    assert!(malformed(format!("{{\"model\":\"m\",\"x\":{}", "9".repeat(500_000))).len() < 250);
}

#[test]
fn depth_costs_no_stack() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    for around in [
        r#""x":@"#,
        r#""messages":@"#,
        r#""messages":[@]"#,
        r#""messages":[{"content":@}]"#,
        r#""messages":[{"content":[{"text":@,"type":"text"}]}]"#,
        r#""messages":[{"role":@}]"#,
        r#""input":@"#,
        r#""tools":@"#,
        r#""response_format":{"type":@}"#,
        r#""text":{"format":@}"#,
    ] {
        for nested in [
            format!("{open}{close}"),
            r#"{"content":["#.repeat(50_000) + &"]}".repeat(50_000),
        ] {
            assert!(asked(&around.replace('@', &nested), |asked| asked.model == "m"));
        }
    }
    malformed(format!(r#"{{"model":{open}{close}}}"#));
    malformed(&open);
    malformed(r#"{"a":"#.repeat(100_000));
}

/// Bytes that are JSON more often than random ones.
fn json_like() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\"",
        "\\",
        "\\u",
        "d83e",
        "1e9",
        "-",
        "null",
        "é",
        r#""model":"m""#,
        r#""messages":[{"#,
        r#""content":"#,
        r#""type":"text""#,
        r#""input":["#,
    ]);
    prop::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
}

/// Asserts that `json` is read if `serde_json` accepts it as an object, and that it is refused otherwise.
fn assert_as_serde_json(json: &str) {
    let expected = serde_json::from_str::<&RawValue>(json).map(|value| value.get());
    let is_object = expected.as_ref().is_ok_and(|it| it.starts_with('{'));
    let read = read(json.as_bytes());
    let is_read =
        !matches!(&read, Err(RouteError::MalformedBody { reason }) if !reason.contains("`model`"));
    assert_eq!(is_read, is_object, "{json}: {expected:?}, {read:?}");
    if !is_object && json.trim_ascii_start().starts_with('{') {
        assert_ne!(explain(json), "not a JSON object", "{json}");
    }
}

/// JSON with one part of it replaced, so that most of it is right.
fn nearly_json() -> impl Strategy<Value = String> {
    let text = r#" {"model":"m","a":[1,-0.5e+3,[],{"b":{}},[[null]],true],"\u006d\n":"\ud83e\"é","messages":
        [{"role":"user","content":[{"type":"text","text":"a"}, "b"]}],"input":["a",[1,2],3], "tools":[{}]} "#;
    let chars = text.chars().count();
    let part = prop_oneof!["[\\[\\]{},:\"\\\\ 0-2eE.+tu\u{1}-\u{1f}-]{0,3}", "\\PC?"];
    (0..chars, 0..4_usize, part).prop_map(move |(at, length, part)| {
        let before = text.chars().take(at);
        before
            .chain(part.chars())
            .chain(text.chars().skip(at + length))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_same_texts_are_json_as_for_serde_json(tokens in json_like(), text in nearly_json()) {
        assert_as_serde_json(&tokens);
        assert_as_serde_json(&format!("{{{tokens}}}"));
        assert_as_serde_json(&format!(r#"{{"x":{tokens}}}"#));
        assert_as_serde_json(&text);
    }
}

#[test]
fn a_demand_without_its_prefix_is_the_same_otherwise() {
    let body = br#"{"model":"m","instructions":"a","input":["b",1],"n":2}"#;
    let (with, ..) = requirements::read(body, true).unwrap();
    let (without, ..) = requirements::read(body, false).unwrap();
    assert!(with.prefix.is_some());
    assert_eq!(
        without,
        Requirements {
            prefix: None,
            ..with
        }
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body: Vec<u8>, json in json_like()) {
        let _ = read(&body);
        let _ = read(json.as_bytes());
        let _ = read(format!(r#"{{"model":"m",{json}}}"#).as_bytes());
    }

    #[test]
    fn any_name_can_be_found_and_replaced(name in "\\PC+", new in "\\PC*", space in "[ \n\t\r]{0,3}") {
        let written = serde_json::to_string(&name).unwrap();
        let body = format!(r#"{{"x":[{written}],{space}"model"{space}:{space}{written}{space},"y":1}}"#);
        let (asked, model_at, _) = read(body.as_bytes()).unwrap();
        prop_assert_eq!(&asked.model, &name);
        prop_assert_eq!(&body[model_at.clone()], &written);

        let mut replaced = body.clone();
        replaced.replace_range(model_at, &serde_json::to_string(&new).unwrap());
        let mut expected: serde_json::Value = serde_json::from_str(&body).unwrap();
        expected["model"] = new.into();
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&replaced).unwrap(), expected);
    }
}

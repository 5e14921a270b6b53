//! A reference reader: the same facts, read from a JSON tree.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::read;

fn is(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|word| words.contains(&word))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> usize {
    let quarters = |char| match char {
        ..'\u{80}' => 1,
        ..'\u{3000}' => 2,
        _ => 4,
    };
    value
        .as_str()
        .map_or(0, |text| text.chars().map(quarters).sum())
}

fn image(part: &Value) -> bool {
    is(&part["type"], &["image_url", "input_image"])
}

fn part(part: &Value) -> usize {
    if is(&part["type"], &["text", "input_text", "output_text"]) {
        text(&part["text"])
    } else {
        text(part)
    }
}

fn message(message: &Value) -> usize {
    let content = &message["content"];
    text(content) + items(content).iter().map(part).sum::<usize>()
}

fn input(value: &Value) -> usize {
    let tokens = |list: &[Value]| 4 * list.iter().filter(|item| item.is_number()).count();
    let item = |item| message(item) + part(item) + tokens(items(item));
    text(value) + tokens(items(value)) + items(value).iter().map(item).sum::<usize>()
}

fn vision(body: &Value) -> bool {
    let lists = [&body["messages"], &body["input"]];
    let contents = |list| items(list).iter().flat_map(|item| items(&item["content"]));
    lists.into_iter().flat_map(contents).any(image) || items(&body["input"]).iter().any(image)
}

fn json_mode(body: &Value) -> bool {
    let formats = [&body["response_format"], &body["text"]["format"]];
    formats
        .into_iter()
        .any(|format| is(&format["type"], &["json_object", "json_schema"]))
}

fn word() -> impl Strategy<Value = Value> {
    let words = [
        "text",
        "input_text",
        "output_text",
        "image_url",
        "input_image",
        "json_object",
        "json_schema",
        "user",
        "",
        "tool",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(Value::from),
        1 => odd(),
    ]
}

fn string() -> impl Strategy<Value = Value> {
    prop_oneof!["\\PC{0,40}", "[\"\\\\\n\u{0}-\u{1f}a🦙]{0,20}"].prop_map(Value::from)
}

/// Values of a type that an endpoint would most likely refuse.
fn odd() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let keys = prop::sample::select(vec!["content", "type", "text", "format", "x"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(key, value)| prop::option::weighted(0.7, (Just(key.to_owned()), value)))
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
}

fn list(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(item, 0..5).prop_map(Value::from)
}

fn parts() -> impl Strategy<Value = Value> {
    let part = object(vec![("text", string().boxed()), ("type", word().boxed())]);
    prop_oneof![
        string(),
        list(prop_oneof![6 => part, 1 => string(), 1 => odd()]),
        odd()
    ]
}

fn messages() -> impl Strategy<Value = Value> {
    let message = object(vec![
        ("content", parts().boxed()),
        ("role", word().boxed()),
        ("type", word().boxed()),
        ("text", string().boxed()),
    ]);
    list(prop_oneof![6 => message, 1 => odd()])
}

fn prompt() -> impl Strategy<Value = Value> {
    let tokens = || list(any::<u32>().prop_map(Value::from));
    prop_oneof![string(), list(string()), tokens(), list(tokens()), odd()]
}

fn body() -> impl Strategy<Value = Value> {
    let format = || prop_oneof![object(vec![("type", word().boxed())]), odd()];
    let fields = object(vec![
        ("messages", prop_oneof![4 => messages(), 1 => odd()].boxed()),
        ("prompt", prompt().boxed()),
        ("input", prop_oneof![messages(), prompt()].boxed()),
        ("instructions", string().boxed()),
        ("tools", prop_oneof![list(odd()), odd()].boxed()),
        ("response_format", format().boxed()),
        (
            "text",
            prop_oneof![object(vec![("format", format().boxed())]), odd()].boxed(),
        ),
        ("stream", odd().boxed()),
        ("x", odd().boxed()),
    ]);
    fields.prop_map(|mut body| {
        body["model"] = json!("m");
        body
    })
}

/// The same text with all that is not ASCII written as escapes.
fn in_ascii(json: &str) -> String {
    let mut units = [0; 2];
    let mut ascii = String::new();
    for char in json.chars() {
        if char.is_ascii() {
            ascii.push(char);
        } else {
            for unit in char.encode_utf16(&mut units) {
                ascii += &format!("\\u{unit:04X}");
            }
        }
    }
    ascii
}

proptest! {
    #[test]
    fn what_is_read_is_what_the_tree_says(body in body()) {
        let compact = body.to_string();
        let spacious = serde_json::to_string_pretty(&body).unwrap();
        for json in [&compact, &spacious, &in_ascii(&compact)] {
            let (asked, _, length) = read(json.as_bytes()).unwrap();
            prop_assert_eq!(asked.vision, vision(&body));
            prop_assert_eq!(asked.tools, !items(&body["tools"]).is_empty());
            prop_assert_eq!(asked.json_mode, json_mode(&body));
            prop_assert_eq!(asked.stream, body["stream"] == true);
            let messages = items(&body["messages"]).iter().map(message).sum::<usize>();
            let expected = messages
                + input(&body["prompt"])
                + input(&body["input"])
                + input(&body["instructions"]);
            prop_assert_eq!(length, expected as u64);
        }
    }
}

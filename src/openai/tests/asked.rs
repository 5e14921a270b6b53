use super::{asked, read};

#[test]
fn a_stream_is_asked_for_by_true_alone() {
    for (fields, stream) in [
        (r#""stream":true"#, true),
        (r#""stream": true "#, true),
        (r#""stream":false"#, false),
        (r#""stream":null"#, false),
        (r#""stream":"true""#, false),
        (r#""stream":{"true":[true]}"#, false),
        (r#""n":1"#, false),
    ] {
        assert_eq!(asked(fields, |asked| asked.stream), stream, "{fields}");
    }
}

#[test]
fn an_image_in_a_part_asks_for_vision() {
    for (fields, vision) in [
        (
            r#""messages":[{"content":[{"type":"image_url","image_url":{"url":"data:"}}]}]"#,
            true,
        ),
        (
            r#""messages":[{},{"content":["x",{"image_url":{},"type":"image_url"}]}]"#,
            true,
        ),
        (r#""messages":[{"content":[{"type":"input_image"}]}]"#, true),
        (
            r#""messages":[{"c\u006fntent":[{"typ\u0065":"image\u005Furl"}]}]"#,
            true,
        ),
        (
            r#""input":[{"role":"user","content":[{"type":"input_image"}]}]"#,
            true,
        ),
        (
            r#""input":[{"type":"input_image","image_url":"data:"}]"#,
            true,
        ),
        (
            r#""messages":[{"content":[{"type":"image_url"}]}],"messages":[]"#,
            true,
        ),
        (
            r#""messages":[{"content":[{"type":"text","text":"image_url"}]}]"#,
            false,
        ),
        (
            r#""messages":[{"content":"{\"type\":\"image_url\"}"}]"#,
            false,
        ),
        (r#""messages":[{"content":{"type":"image_url"}}]"#, false),
        (
            r#""messages":[{"content":[[{"type":"image_url"}]]}]"#,
            false,
        ),
        (
            r#""messages":[{"content":[{"x":{"type":"image_url"}}]}]"#,
            false,
        ),
        (r#""messages":[{"type":"image_url"}]"#, false),
        (
            r#""messages":[{"content":[{"type":["image_url"]}]}]"#,
            false,
        ),
        (r#""messages":{"content":[{"type":"image_url"}]}"#, false),
        (r#""content":[{"type":"image_url"}]"#, false),
    ] {
        assert_eq!(asked(fields, |asked| asked.vision), vision, "{fields}");
    }
}

#[test]
fn tools_are_asked_for_by_a_list_of_some() {
    for (fields, tools) in [
        (r#""tools":[{"type":"function"}]"#, true),
        (r#""tools":[ null ]"#, true),
        (r#""tools":[1],"tools":[]"#, true),
        (r#""tools":[ ]"#, false),
        (r#""tools":{"a":1}"#, false),
        (r#""tools":null"#, false),
        (r#""tools":"[1]""#, false),
        (r#""functions":[{}]"#, false),
        (r#""messages":[{"tools":[1]}]"#, false),
    ] {
        assert_eq!(asked(fields, |asked| asked.tools), tools, "{fields}");
    }
}

#[test]
fn json_mode_follows_from_the_formats_type() {
    for (fields, json_mode) in [
        (r#""response_format":{"type":"json_object"}"#, true),
        (
            r#""response_format":{"json_schema":{"type":"text"},"type":"json_schema"}"#,
            true,
        ),
        (r#""response_format":{"type":"json\u005fobject"}"#, true),
        (
            r#""text":{"verbosity":"low","format":{"type":"json_schema","name":"x"}}"#,
            true,
        ),
        (r#""text":{"format":{"type":"json_object"}}"#, true),
        (r#""response_format":{"type":"text"}"#, false),
        (
            r#""response_format":{"json_schema":{"type":"json_schema"}}"#,
            false,
        ),
        (r#""response_format":"json_object""#, false),
        (r#""response_format":null"#, false),
        (r#""response_format":{"type":null}"#, false),
        (r#""text":{"type":"json_object"}"#, false),
        (r#""text":{"format":"json_object"}"#, false),
        (r#""text":"json_object""#, false),
        (r#""format":{"type":"json_object"}"#, false),
    ] {
        assert_eq!(
            asked(fields, |asked| asked.json_mode),
            json_mode,
            "{fields}"
        );
    }
}

#[test]
fn what_has_another_type_counts_for_nothing() {
    let nothing = read(br#"{"model":"m"}"#).unwrap();
    for key in [
        "messages",
        "prompt",
        "input",
        "instructions",
        "system",
        "tools",
        "response_format",
        "text",
    ] {
        for value in ["null", "true", "3", "-1e400", "{}", "[]", r#"{"x":[{}]}"#] {
            let body = format!(r#"{{"model":"m","{key}":{value}}}"#);
            assert_eq!(read(body.as_bytes()).as_ref(), Ok(&nothing), "{body}");
        }
    }
}

use super::{asked, read};

/// The hash of the beginning of the prompt in `fields`.
fn prefix(fields: &str) -> Option<u64> {
    asked(fields, |asked| asked.prefix)
}

#[test]
fn text_alone_is_counted() {
    for (fields, length) in [
        (
            r#""messages":[{"role":"system","content":"abcd"},{"content":"ef"}]"#,
            6,
        ),
        (r#""messages":[{"content":"é\n\u00e9\ud83e\udd99🦙"}]"#, 13),
        (
            r#""messages":[{"content":[{"type":"text","text":"ab"},{"text":"c","type":"input_text"}]}]"#,
            3,
        ),
        (
            r#""messages":[{"content":[{"type":"output_text","text":"ab"},"cd"]}]"#,
            4,
        ),
        (
            r#""messages":[{"content":[{"type":"image_url","text":"abc"},{"text":"abc"}]}]"#,
            0,
        ),
        (
            r#""messages":[{"name":"abc","reasoning":"abc","tool_calls":[{"text":"abc"}]}]"#,
            0,
        ),
        (r#""messages":["abc"]"#, 0),
        (r#""messages":"abc""#, 0),
        (
            r#""messages":[{"content":"ab"}],"messages":[{"content":"c"}]"#,
            3,
        ),
        (
            r#""messages":[{"content":"\ud83e","\ud83e":1},{"content":"ab"}]"#,
            6,
        ),
        (
            r#""messages":[{"content":1e400,"n":-1e400},1e400,{"content":[1e400,"ab"]}]"#,
            2,
        ),
        (r#""prompt":"abc""#, 3),
        (r#""prompt":["abc","d"]"#, 4),
        (r#""prompt":[1,23,-4.5e600]"#, 12),
        (r#""prompt":[[1,2],[3],[],["x"]]"#, 12),
        (r#""prompt":7"#, 0),
        (r#""prompt":{"id":"abc"}"#, 0),
        (r#""input":"abc""#, 3),
        (r#""input":["ab","c"],"dimensions":100"#, 3),
        (r#""input":[100,200]"#, 8),
        (
            r#""input":[{"role":"user","content":"ab"},{"type":"input_text","text":"c"}]"#,
            3,
        ),
        (
            r#""input":[{"type":"message","content":[{"type":"output_text","text":"ab"}]}]"#,
            2,
        ),
        (r#""instructions":"abc","input":"d""#, 4),
        (r#""input":"d","instructions":[{"content":"abc"}]"#, 4),
        (r#""system":"abc","messages":[{"content":"d"}]"#, 4),
        (r#""suffix":"abc","user":"abc""#, 0),
    ] {
        let body = format!(r#"{{"model":"m",{fields}}}"#);
        assert_eq!(read(body.as_bytes()).unwrap().2, length, "{fields}");
    }
}

#[test]
fn turns_of_a_conversation_begin_alike() {
    let first = r#"{"role":"system","content":"Be kind."},{"content":"Hi","role":"user"}"#;
    let other = first.replace("Hi", "Ho");
    let grown = r#"{"role":"assistant","content":"Hello"},{"role":"user","content":"Why?"}"#;
    let messages = |list: &[&str]| prefix(&format!(r#""messages":[{}]"#, list.join(",")));
    assert_eq!(messages(&[first, grown]), messages(&[first]));
    assert_ne!(messages(&[&other]), messages(&[first]));
    let input = |list: &[&str]| prefix(&format!(r#""input":[{}]"#, list.join(",")));
    assert_eq!(input(&[first, grown]), messages(&[first]));
}

#[test]
fn chats_under_one_long_system_prompt_begin_alike() {
    let chat = |letters: usize, user: &str| {
        let system = "s".repeat(letters);
        let user = format!(r#"{{"role":"user","content":"{user}"}}"#);
        [
            format!(r#""messages":[{{"role":"system","content":"{system}"}},{user}]"#),
            format!(r#""instructions":"{system}","input":[{user}]"#),
            format!(r#""input":[{user}],"instructions":"{system}""#),
        ]
        .map(|fields| prefix(&fields))
    };
    assert_eq!(chat(1_024, "a"), chat(1_024, "b"));
    for (one, other) in chat(1_023, "a").iter().zip(chat(1_023, "b")) {
        assert_ne!(*one, other);
    }
    let [_, before, after] = chat(10, "a");
    assert_eq!(before, after);
}

#[test]
fn prompts_that_differ_late_begin_alike() {
    let prompt = |end: &str| prefix(&format!(r#""prompt":"{}{end}""#, "p".repeat(1_024)));
    assert_eq!(prompt("a"), prompt("b"));
    assert_ne!(prefix(r#""prompt":"a""#), prefix(r#""prompt":"b""#));
    assert_ne!(prefix(r#""prompt":[1,2]"#), prefix(r#""prompt":[1,3]"#));
    assert_eq!(
        prefix(r#""prompt":"a""#),
        prefix(r#""stream":true,"input":["a"]"#)
    );
    for fields in [
        r#""n":1"#,
        r#""prompt":"""#,
        r#""messages":[{"role":"user"}]"#,
    ] {
        assert_eq!(prefix(fields), None, "{fields}");
    }
}

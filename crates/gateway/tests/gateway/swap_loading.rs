//! Tests of `loading_state = "reasoning"`: chats that show how their model loads.

use serde_json::Value;

use crate::client::ClientRequest;
use crate::process::Gateway;
use crate::swap::assert_served;
use crate::swap_support::{TempFile, model, swap};
use crate::waiting_status::{asks, reads};

fn chat(gateway: &Gateway) -> ClientRequest {
    let body = r#"{"model":"a","stream":true,"messages":[]}"#;
    gateway.ask("").body(body)
}

/// The chunks of a stream, up to its last event.
fn chunks(text: &str) -> Vec<Value> {
    let events = text
        .split("\n\n")
        .filter_map(|it| it.strip_prefix("data: "));
    let chunks = events.filter(|data| *data != "[DONE]");
    chunks
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// The text of all chunks under a key of their `delta`.
fn text_of(chunks: &[Value], key: &str) -> String {
    let texts = chunks.iter();
    texts
        .filter_map(|chunk| chunk["choices"][0]["delta"][key].as_str())
        .collect()
}

#[tokio::test]
async fn a_chat_shows_its_load_and_then_the_answer() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0\nloading_state = \"reasoning\"");
    let gateway = setup.sections(&model("a", &gate.gates("a"))).start().await;
    let waiting = gateway.ask("a").send(); // not a stream
    let mut response = chat(&gateway).open().await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let begin = reads(&mut response, "Loading a").await;
    gate.open();
    let all = begin + &reads(&mut response, "data: [DONE]\n\n").await;
    let chunks = chunks(&all);
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["model"], "a");
    }
    let reasoning = text_of(&chunks, "reasoning_content");
    assert!(reasoning.ends_with(" s.\n\n"), "{reasoning}");
    assert!(reasoning.contains("\nReady after "), "{reasoning}");
    assert!(!all.contains(": queue"), "{all}");
    let first = text_of(&chunks[..1], "reasoning_content");
    assert!(!first.is_empty());
    assert!(text_of(&chunks, "content").starts_with("You are next"));
    assert_served(&waiting.answer().await, "a");

    let loaded = chat(&gateway).answer().await;
    assert!(!loaded.text().contains("reasoning"), "{loaded:?}");
}

#[tokio::test]
async fn only_streamed_chats_of_models_with_the_key_show_a_load() {
    let gate = TempFile::new();
    let lines = |state: &str| format!("loading_state = \"{state}\"\n");
    let gateway = swap("memory = 2.0\nloading_state = \"reasoning\"")
        .sections(&(model("a", &gate.gates("a")) + &lines("none")))
        .sections(&(model("b", &gate.gates("b")) + &lines("reasoning")))
        .start()
        .await;
    let silent = [
        chat(&gateway),
        chat(&gateway).path("/v1/completions"),
        gateway
            .ask("")
            .path("/v1/completions")
            .body(r#"{"model":"b","stream":true,"prompt":""}"#),
    ];
    let silent = silent.map(ClientRequest::send);
    gateway.depth(3).await;
    let asked = gateway.ask("").body(r#"{"model":"b","stream":true}"#);
    let mut asked = asks(asked).open().await; // a client that asks gets the comments that it knows
    let said = reads(&mut asked, ": queue position=").await;
    assert!(!said.contains("reasoning"), "{said}");
    gate.open();
    for silent in silent {
        let answer = silent.answer().await;
        assert!(!answer.text().contains("reasoning"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_load_that_fails_ends_the_chat_with_an_error_event() {
    let gate = TempFile::new();
    let file = gate.path().display();
    let cmd = format!("sh -c \"while [ ! -e {file} ]; do sleep 0.01; done; exit 3\"");
    let setup = swap("memory = 1.0\nloading_state = \"reasoning\"");
    let gateway = setup.sections(&model("a", &cmd)).start().await;
    let mut response = chat(&gateway).open().await;
    reads(&mut response, "Loading a").await;
    gate.open();
    let rest = reads(&mut response, "model_start_failed").await;
    assert!(rest.contains("event: error\ndata: {"), "{rest}");
    assert!(!rest.contains("Ready"), "{rest}");
}

#[tokio::test]
async fn loads_are_shown_after_a_reload_that_asks_for_it() {
    let gate = TempFile::new();
    let setup =
        |lines: &str| swap("memory = 1.0").sections(&(model("a", &gate.gates("a")) + lines));
    let gateway = setup("").start().await;
    let before = chat(&gateway).send();
    gateway.until_state("a", "loading").await;
    gateway.reload(&setup("loading_state = \"reasoning\"\n"));
    gateway.logs(&["INFO", "models changed: a"]).await;
    let mut response = chat(&gateway).open().await;
    reads(&mut response, "reasoning_content").await;
    gate.open();
    reads(&mut response, "data: [DONE]\n\n").await;
    let before = before.answer().await;
    assert!(!before.text().contains("reasoning"), "{before:?}");
    assert_served(&gateway.ask("a").answer().await, "a");
    assert_eq!(gateway.logged("model is loaded"), 1);
}

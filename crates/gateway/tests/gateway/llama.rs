//! Tests with llama.cpp's server, which closes its connections without announcing it.

use crate::client::{Answer, Client};
use crate::process::{Gateway, Setup};
use crate::python::environment;
use crate::swap_support::{model, swap};

/// Asserts that each of 200 requests of four callers is answered in full.
async fn assert_served(gateway: &Gateway) {
    let streams = |nth: usize| !nth.is_multiple_of(10);
    let request = move |client: &Client, nth| {
        let body = serde_json::json!({
            "model": "m",
            "messages": [{ "role": "user", "content": "Am I next?" }],
            "max_tokens": 4,
            "stream": streams(nth),
        });
        client.ask("m").body(body.to_string())
    };
    let answers = gateway.client().four_callers(50, request).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let is_whole = |it: &&Answer| it.text().ends_with("data: [DONE]\n\n");
    assert_eq!(answers.iter().filter(is_whole).count(), 4 * 45);
}

#[tokio::test]
async fn llama_cpp_loses_no_request() {
    let packages = ["xllamacpp==2026.10.11549", "gguf==0.19.0"];
    let python = environment("llama", &packages);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/llama_engine.py");
    let cmd = format!("'{}' '{script}' ${{PORT}}", python.display());
    let setup = swap("memory = 1.0").sections(&(model("m", &cmd) + "concurrency = 4\n"));
    let started = setup.start().await;
    assert_served(&started).await;
    assert_eq!(started.logged("model is loaded"), 1);
    // As an endpoint of a gateway that did not start it.
    let url = started.model("m").await["url"].clone();
    let setup = Setup::new().backend_at("llama", url.as_str().unwrap(), 4, &["m"]);
    assert_served(&setup.start().await).await;
}

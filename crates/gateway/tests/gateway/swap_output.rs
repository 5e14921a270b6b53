//! Tests of `/admin/models/{name}/logs`: the output of models.

use crate::chromium::Browser;
use crate::process::Gateway;
use crate::swap_support::{TempFile, model, ready, swap};
use crate::waiting_status::reads;

/// The command line of a model that prints lines before and after the file exists.
fn talks(gate: &TempFile) -> String {
    let (file, ready) = (gate.path().display(), ready("a"));
    format!(
        "sh -c \"echo one; printf 'b\\\\303d\\\\r\\\\n' >&2; while [ ! -e {file} ]; do sleep 0.01; done; echo three; exec {ready}\""
    )
}

async fn load(gateway: &Gateway, model: &str) {
    let load = format!("/admin/models/{model}/load");
    assert_eq!(gateway.admin().post(&load).answer().await.status, 202);
}

#[tokio::test]
async fn output_is_streamed_from_its_last_lines_on() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("org/a:7b", &talks(&gate)));
    let gateway = setup
        .routing("aliases = { gpt = \"org/a:7b\" }")
        .start()
        .await;
    let logs = |path: &str| gateway.admin().get(&format!("/admin/models/{path}"));
    let mut early = logs("org/a:7b/logs").open().await;
    assert_eq!(early.headers()["content-type"], "text/event-stream");
    load(&gateway, "org/a:7b").await;
    let begin = "data: one\n\ndata: b\u{fffd}d\n\n";
    assert_eq!(reads(&mut early, begin).await, begin);

    let mut text = logs("org%2Fa%3A7b/logs")
        .header("accept", "text/plain")
        .open()
        .await;
    assert_eq!(text.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(reads(&mut text, "d\n").await, "one\nb\u{fffd}d\n");
    let mut new = logs("gpt/logs?no-history").open().await;
    gate.open();
    for (response, expected) in [
        (&mut early, "data: three\n\ndata: a listens on "),
        (&mut text, "three\na listens on "),
        (&mut new, "data: three\n\ndata: a listens on "),
    ] {
        let said = reads(response, "listens on").await;
        assert!(said.starts_with(expected), "{said}");
    }
}

#[tokio::test]
async fn output_of_other_models_and_other_queries_is_refused() {
    let setup = swap("memory = 1.0").sections(&model("a", &ready("a")));
    let gateway = setup.start().await;
    let logs = |path: &str| gateway.admin().get(path).answer();
    let unknown = logs("/admin/models/b/logs").await;
    assert_eq!(unknown.error(), (404, "model_not_found".to_owned()));
    let query = logs("/admin/models/a/logs?lines=3").await;
    assert_eq!(query.error(), (400, "invalid_parameter".to_owned()));
    let other = logs("/admin/models/a/log").await;
    other.assert_error(404, "not_found");
    let outside = gateway.get("/admin/models/a/logs").answer().await;
    outside.assert_error(404, "not_found");
}

#[tokio::test]
async fn output_without_readers_or_with_slow_ones_never_holds_a_model_up() {
    let flood = format!(
        "sh -c \"seq 200000; head -c 3000000 /dev/zero | tr '\\\\0' x; echo; exec {}\"",
        ready("a")
    );
    let setup = swap("memory = 1.0").sections(&model("a", &flood));
    let gateway = setup.start().await;
    let path = "/admin/models/a/logs";
    let mut slow = gateway.admin().get(path).open().await;
    load(&gateway, "a").await;
    gateway.until_state("a", "loaded").await;
    let mut later = gateway.admin().get(path).open().await;
    let kept = reads(&mut later, "a listens on ").await;
    assert_eq!(kept.matches("data: ").count(), 200, "{kept}");
    assert!(kept.contains("data: 200000\n"), "{kept}");
    let long = kept.lines().find(|line| line.contains("xxx")).unwrap();
    assert_eq!(long, format!("data: {}…", "x".repeat(1024)));
    let said = reads(&mut slow, "a listens on ").await;
    assert!(said.contains(" lines are left out here)"));
}

#[tokio::test]
async fn page_shows_the_output_of_a_model() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("a", &talks(&gate)));
    let gateway = setup.start().await;
    let mut browser = Browser::open(&format!("{}/admin/", gateway.admin_url())).await;
    let button = "[...document.querySelectorAll('button')].find((it) => it.innerText === 'Output')";
    browser.until(&format!("!!{button}")).await;
    browser.eval(&format!("{button}.click()")).await;
    load(&gateway, "a").await;
    let text = "document.getElementById('output-text').innerText";
    browser
        .until(&format!("{text}.startsWith('one\\nb\u{fffd}d\\n')"))
        .await;
    gate.open();
    browser
        .until(&format!("{text}.includes('three\\na listens on')"))
        .await;
    let heading = "document.getElementById('output-h').innerText";
    assert_eq!(browser.eval(heading).await, "Output of a");
    browser
        .eval("document.getElementById('output-close').click()")
        .await;
    let hidden = "document.getElementById('output').hidden";
    assert_eq!(browser.eval(hidden).await, true);
    browser.assert_no_problems().await;
}

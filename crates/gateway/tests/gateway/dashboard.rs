//! Tests of the Grafana dashboard and of the alert rules, with a real scrape and with `promtool`.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::backend::{Backend, status};
use crate::durable_support::{Folder, id, stored};
use crate::metrics::samples;
use crate::process::Gateway;
use crate::swap_support::{model, ready, swap};

fn deploy(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

/// Returns the names of the gateway's metrics in these texts.
fn metrics_in<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let prefixes = [
        "triage_",
        "http_server_",
        "gen_ai_server_",
        "gen_ai_client_",
    ];
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = texts
        .into_iter()
        .flat_map(|text| text.split(move |c| !is_part(c)));
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// Adds all texts with the key `expr` or `query` to `found`.
fn queries<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_query = key == "expr" || key == "definition";
                found.extend(value.as_str().filter(|_| is_query));
                queries(value, found);
            }
        }
        _ => {}
    }
}

/// Lets a gateway do all that its metrics count, and returns its page `/metrics`.
async fn busy_page() -> String {
    let [one, two, three] = [
        Backend::start().await,
        Backend::start().await,
        Backend::start().await,
    ];
    let store = Folder::new();
    let gateway = swap("memory = 1.0")
        .queue("max_size = 1")
        .routing("fallbacks = { none = [\"m\"] }")
        .backend("gpu-1", &one, 1, &["m"])
        .backend("gpu-2", &two, 1, &["r"])
        .backend("gpu-3", &three, 1, &["r"])
        .sections(&model("a", &ready("a")))
        .sections(&model("bad", "false"))
        .sections(&store.section(""))
        .start()
        .await;
    assert_eq!(gateway.ask("a").answer().await.status, 200);
    gateway
        .admin()
        .post("/admin/models/a/unload")
        .answer()
        .await;
    gateway.until_state("a", "unloaded").await;
    gateway
        .ask("bad")
        .answer()
        .await
        .assert_error(503, "model_start_failed");
    stream(&gateway, &one).await;
    wait_and_reject(&gateway, &one).await;
    retry(&gateway, &two, &three).await;
    gateway.idle().await;
    page_while_stored(&gateway, &one).await
}

/// Returns the page while a stored request waits.
async fn page_while_stored(gateway: &Gateway, backend: &Backend) -> String {
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    id(&stored(gateway.client(), "").answer().await);
    let page = gateway.admin().get("/metrics").answer().await;
    arrived.answer("done");
    running.answer().await.assert_ok("done");
    page.text().to_owned()
}

/// Streams an answer of a fallback.
async fn stream(gateway: &Gateway, backend: &Backend) {
    let sent = gateway.ask("none").send();
    let stream = backend.next().await.stream();
    stream.send("data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":12}}\n\n");
    stream.end();
    assert_eq!(sent.answer().await.status, 200);
}

/// Lets one request wait, and one be rejected meanwhile.
async fn wait_and_reject(gateway: &Gateway, backend: &Backend) {
    let first = gateway.ask("m").send();
    let arrived = backend.next().await;
    let second = gateway.ask("m").send();
    gateway.depth(1).await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "queue_full");
    arrived.answer("first");
    backend.next().await.answer("second");
    first.answer().await.assert_ok("first");
    second.answer().await.assert_ok("second");
}

/// Sends a request to the second backend after it failed at the first.
async fn retry(gateway: &Gateway, one: &Backend, two: &Backend) {
    let sent = gateway.ask("r").send();
    let (failed, other) = tokio::select! {
        arrived = one.next() => (arrived, two),
        arrived = two.next() => (arrived, one),
    };
    failed.respond(status(503));
    other.next().await.answer("ok");
    sent.answer().await.assert_ok("ok");
}

/// Runs `promtool`, and asserts that it finds nothing to mend.
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let process = command.spawn();
    let mut process = process.expect("promtool is missing: it is in Debian's package `prometheus`");
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = process.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(
        output.status.success(),
        "promtool {arguments:?}: {}",
        said.concat()
    );
}

#[tokio::test]
async fn each_metric_of_the_dashboard_and_of_the_alerts_is_on_the_page() {
    let page = busy_page().await;
    promtool(&["check", "metrics"], &page);
    let scraped: HashMap<_, _> = samples(&page);
    let scraped = scraped
        .keys()
        .map(|sample| sample.split('{').next().unwrap());
    let scraped: BTreeSet<&str> = scraped.collect();
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).unwrap();
    let mut shown = Vec::new();
    queries(&dashboard, &mut shown);
    let shown = metrics_in(shown);
    assert!(shown.len() > 20, "{shown:?}");
    let missing: Vec<_> = shown.difference(&scraped).collect();
    assert!(
        missing.is_empty(),
        "the dashboard shows {missing:?}, which the gateway lacks"
    );
    let alerts = read("alerts.yml");
    let named = metrics_in([&*alerts]);
    assert!(named.len() > 8, "{named:?}");
    let missing: Vec<_> = named.difference(&scraped).collect();
    assert!(
        missing.is_empty(),
        "the alerts name {missing:?}, which the gateway lacks"
    );
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let (alerts, tests) = (deploy("alerts.yml"), deploy("alerts.test.yml"));
    promtool(&["check", "rules", alerts.to_str().unwrap()], "");
    promtool(&["test", "rules", tests.to_str().unwrap()], "");
}

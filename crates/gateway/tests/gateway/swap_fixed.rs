//! Tests of models at fixed ports, and of what a process of a model inherits.

use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{ConfigFile, TIMEOUT, output};
use crate::swap::assert_served;
use crate::swap_support::{TempFile, model, ready, swap};

/// The section of a model that an engine without SO_REUSEADDR serves at this port.
fn engine(name: &str, port: u16) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/engine.py");
    let proxy = format!("proxy = \"http://127.0.0.1:{port}\"\n");
    model(name, &format!("python3 -I -S {script} {port} {name}")) + &proxy
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn another_server_at_the_port_of_a_model_does_not_answer_for_it() {
    let foreign = Backend::replying("foreign").await;
    let section = model("a", "sleep 600") + &format!("proxy = \"{}\"\n", foreign.url());
    let gateway = swap("memory = 1.0").sections(&section).start().await;
    let answer = gateway.ask("a").answer().await;
    answer.assert_error(503, "model_start_failed");
    assert_eq!(foreign.counts().arrived, 0);
    let error = gateway.model("a").await["last_error"].to_string();
    assert!(error.contains("another server answers"), "{error}");
}

#[tokio::test]
async fn an_engine_at_a_fixed_port_starts_again_after_a_swap() {
    let setup = swap("memory = 1.0")
        .sections(&engine("a", free_port()))
        .sections(&model("b", &ready("b")));
    let gateway = setup.start().await;
    for name in ["a", "b", "a"] {
        assert_served(&gateway.ask(name).answer().await, name);
    }
    assert_eq!(gateway.logged("model could not be started"), 0);
}

/// Opens a websocket at the page `/ws` of the model `a`.
async fn websocket(addr: &str) -> TcpStream {
    let mut client = TcpStream::connect(addr).await.unwrap();
    let request = "GET /upstream/a/ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-key: k\r\nsec-websocket-version: 13\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(client.read_buf(&mut head).await.unwrap(), 0, "closed");
        }
    };
    timeout(TIMEOUT, read).await.expect("no answer");
    assert!(head.starts_with(b"HTTP/1.1 101"));
    client
}

#[tokio::test]
async fn an_ignored_websocket_does_not_keep_its_model() {
    let section = engine("a", free_port()) + "ignore_websockets = true\n";
    let setup = swap("memory = 1.0\nswap_after_seconds = 600")
        .sections(&section)
        .sections(&model("b", &ready("b")));
    let gateway = setup.start().await;
    let mut client = websocket(gateway.addr()).await;
    gateway.until_model("a", |a| a["in_flight"] == 0).await;
    assert_served(&gateway.ask("b").answer().await, "b");
    let closed = timeout(TIMEOUT, client.read(&mut [0; 1])).await;
    closed.expect("the websocket stays open").unwrap_or(0);
}

#[tokio::test]
async fn a_websocket_keeps_its_model_by_default() {
    let setup = swap("memory = 1.0").sections(&engine("a", free_port()));
    let gateway = setup.start().await;
    let client = websocket(gateway.addr()).await;
    gateway.until_model("a", |a| a["in_flight"] == 1).await;
    drop(client);
}

#[tokio::test]
async fn an_ignored_page_starts_no_model() {
    let setup = swap("memory = 1.0").sections(&engine("a", free_port()));
    let gateway = setup.start().await;
    let icon = || gateway.get("/upstream/a/favicon.ico").answer();
    icon().await.assert_error(409, "model_not_loaded");
    assert_eq!(gateway.model("a").await["state"], "unloaded");
    let page = gateway.get("/upstream/a/page").answer().await;
    assert_eq!(page.status, 200);
    assert_eq!(icon().await.status, 200, "it is loaded now");
}

#[tokio::test]
async fn a_preloaded_model_is_loaded_again_with_a_new_command() {
    let setup = |key: &str| {
        let env = format!("env = {{ KEY = \"{key}\" }}\npreload = true\n");
        swap("memory = 1.0").sections(&(model("a", &ready("a")) + &env))
    };
    let gateway = setup("1").start().await;
    gateway.until_state("a", "loaded").await;
    gateway.reload(&setup("2"));
    gateway.logs(&["INFO", "models changed: a"]).await;
    gateway.logs_more_than("model is loaded", 1).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_model_has_the_limit_of_files_that_the_gateway_was_started_with() {
    let file = TempFile::new();
    let cmd = format!(
        "sh -c \"echo $$ > {}; exec {}\"",
        file.path().display(),
        ready("a")
    );
    let setup = swap("memory = 1.0").sections(&model("a", &cmd));
    let gateway = setup.soft_open_files(500).start().await;
    assert_served(&gateway.ask("a").answer().await, "a");
    let pid = std::fs::read_to_string(file.path()).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.trim())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    assert!(line.unwrap().contains(" 500 "), "{limits}");
}

/// The report of `check` on a configuration with these lines.
async fn checked(config: &str) -> String {
    let file = ConfigFile::new(&format!("listen = \"127.0.0.1:0\"\n{config}"));
    let (code, report, _) = output(&["check", "--config", file.path()]).await;
    assert_eq!(code, Some(0), "{report}");
    report
}

#[tokio::test]
async fn check_warns_of_models_that_can_not_be_loaded() {
    let section = |name: &str, lines: &str| model(name, "x --port ${PORT}") + lines;
    let same = "proxy = \"http://127.0.0.1:81\"\n";
    for (memory, sections, words) in [
        (
            "1.0",
            [model("a", "x --port 81"), section("b", "")],
            "`${PORT}`",
        ),
        ("2.0", [section("a", same), section("b", same)], "`proxy`"),
        (
            "1.0",
            [
                section("a", "preload = true\n"),
                section("b", "preload = true\n"),
            ],
            "`preload`",
        ),
        (
            "1.0",
            [section("a", "pinned = true\n"), section("b", "")],
            "`pinned`",
        ),
    ] {
        let report = checked(&format!("[swap]\nmemory = {memory}\n{}", sections.concat())).await;
        let mut lines = report.lines();
        let warns = lines.any(|line| line.starts_with("warning: ") && line.contains(words));
        assert!(warns, "{words}: {report}");
    }
    let fine = [section("a", ""), section("b", "")].concat();
    let report = checked(&format!("[swap]\nmemory = 1.0\n{fine}")).await;
    assert!(!report.contains("warning"), "{report}");
}

//! Tests of the reload on SIGHUP, while requests wait and run.

use crate::backend::Backend;
use crate::client::PendingResponse;
#[cfg(target_os = "linux")]
use crate::hanging_file::Hangs;
use crate::process::{Gateway, Setup};

fn names(state: &crate::process::State) -> Vec<String> {
    let endpoints = state.0["endpoints"].as_array().unwrap();
    let name = |endpoint: &serde_json::Value| endpoint["name"].as_str().unwrap().to_owned();
    endpoints.iter().map(name).collect()
}

#[tokio::test]
async fn removed_backend_finishes_and_added_backend_serves_on_reload() {
    let (old, new) = (Backend::start().await, Backend::replying("new").await);
    let gateway = Setup::new().backend("old", &old, 1, &["m"]).start().await;
    let running = gateway.ask("m").send();
    let arrived = old.next().await;
    let waiting = gateway.ask("m").send();
    gateway.depth(1).await;

    gateway.reload(&Setup::new().backend("new", &new, 1, &["m"]));
    gateway.logs(&["INFO", "endpoints added: new"]).await;
    gateway.logs(&["INFO", "endpoints removed: old"]).await;
    waiting.answer().await.assert_ok("new");
    gateway.ask("m").answer().await.assert_ok("new");
    assert!(!running.is_answered());
    arrived.answer("old");
    running.answer().await.assert_ok("old");
    assert_eq!(names(&gateway.state().await), ["new"]);
    assert_eq!(old.counts().arrived, 1);
}

#[tokio::test]
async fn raised_max_concurrent_serves_waiters_on_reload() {
    let backend = Backend::start().await;
    let setup = |slots| Setup::new().backend("a", &backend, slots, &["m"]);
    let gateway = setup(1).start().await;
    let running = gateway.ask("m").label("1").send();
    let first = backend.next().await;
    let waiting = gateway.ask("m").label("2").send();
    gateway.depth(1).await;

    gateway.reload(&setup(2));
    let second = backend.next().await;
    assert_eq!(second.label(), "2");
    gateway.logs(&["INFO", "endpoints changed: a"]).await;
    assert_eq!(gateway.state().await.in_flight(), [2]);
    second.answer("2");
    first.answer("1");
    waiting.answer().await.assert_ok("2");
    running.answer().await.assert_ok("1");
    gateway.idle().await;
}

#[tokio::test]
async fn queue_and_routing_reload_while_requests_wait() {
    let backend = Backend::start().await;
    let setup = || Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = setup().queue("max_size = 1").start().await;
    let running = gateway.ask("m").send();
    let first = backend.next().await;
    let waiting = gateway.ask("m").send();
    gateway.depth(1).await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "queue_full");
    gateway
        .ask("gpt")
        .answer()
        .await
        .assert_error(404, "model_not_found");

    let larger = setup()
        .queue("max_size = 2")
        .routing("aliases = { gpt = \"m\" }");
    gateway.reload(&larger);
    gateway.logs(&["INFO", "[queue] has changed"]).await;
    gateway.logs(&["INFO", "[routing] has changed"]).await;
    assert_eq!(gateway.logged("endpoints "), 0);
    let by_alias = gateway.ask("gpt").send();
    gateway.depth(2).await;
    first.answer("1");
    backend.next().await.answer("2");
    backend.next().await.answer("3");
    running.answer().await.assert_ok("1");
    waiting.answer().await.assert_ok("2");
    by_alias.answer().await.assert_ok("3");

    gateway.reload(&larger);
    gateway.logs(&["INFO", "nothing has changed"]).await;
}

#[tokio::test]
async fn repeated_reloads_under_load_lose_no_request() {
    let (one, two) = (
        Backend::replying("fine").await,
        Backend::replying("fine").await,
    );
    let setup = |at, slots, max_size: u32| {
        let setup = Setup::new().queue(&format!("max_size = {max_size}\ntarget_wait = \"none\""));
        setup.backend(if slots == 1 { "one" } else { "two" }, at, slots, &["m"])
    };
    let gateway = setup(&one, 1, 1000).start().await;
    let mut sent_requests: Vec<PendingResponse> = Vec::new();
    for _ in 0..10 {
        for (at, slots, max_size) in [(&two, 2, 2000), (&one, 1, 1000)] {
            sent_requests.extend((0..10).map(|_| gateway.ask("m").send()));
            gateway.reload(&setup(at, slots, max_size));
            sent_requests.extend((0..10).map(|_| gateway.ask("m").send()));
            let name = if slots == 1 { "one" } else { "two" };
            let there = |state: &crate::process::State| names(state) == [name];
            gateway.until(name, there).await;
        }
    }
    for sent in sent_requests {
        sent.answer().await.assert_ok("fine");
    }
    gateway.idle().await;
}

/// Asserts that reloading a file with which the gateway does not start changes nothing, and logs the same error.
async fn assert_unchanged(gateway: &Gateway, config: &str) {
    let (message, file) = Gateway::refusal(config).await;
    let problem = message.strip_prefix(&file).unwrap().trim_end();
    let before = gateway.state().await.0;
    gateway.reload_text(config);
    gateway
        .logs(&["ERROR", problem, "nothing has changed"])
        .await;
    assert_eq!(gateway.state().await.0, before, "{config}");
}

#[tokio::test]
async fn invalid_file_on_reload_changes_nothing_and_is_logged() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting = gateway.ask("m").send();
    gateway.depth(1).await;

    let b = "[queue]\nmax_size = 0\n[[backends]]\nname = \"b\"\nurl = \"http://127.0.0.1:9\"\n";
    assert_unchanged(&gateway, &format!("{b}slots = 3")).await;
    assert_unchanged(&gateway, &format!("{b}priority = -1")).await;
    assert_unchanged(
        &gateway,
        &format!("{b}headers = {{ x-key = \"${{NO_SUCH_KEY}}\" }}"),
    )
    .await;
    assert_unchanged(&gateway, &format!("{b}models = [{{ name = \"\" }}]")).await;
    assert_unchanged(
        &gateway,
        &format!("{b}[routing.aliases]\nx = \"y\"\ny = \"x\""),
    )
    .await;
    assert_unchanged(
        &gateway,
        &format!("{b}[upstream]\nca_file = \"/no/such/file\""),
    )
    .await;
    assert_unchanged(
        &gateway,
        &b.replace("[queue]", "[queue]\ndefault_priority = \"vip\""),
    )
    .await;
    assert_unchanged(&gateway, "listen = ").await;

    arrived.answer("1");
    backend.next().await.answer("2");
    running.answer().await.assert_ok("1");
    waiting.answer().await.assert_ok("2");
    gateway.reload(&Setup::new().backend("c", &backend, 1, &["m"]));
    gateway.logs(&["INFO", "endpoints added: c"]).await;
}

#[tokio::test]
async fn reload_warns_of_restart_only_keys_and_applies_others() {
    let (one, two) = (Backend::replying("1").await, Backend::replying("2").await);
    let setup = Setup::new().backend("a", &one, 1, &["m"]);
    let gateway = setup.start().await;
    let config = format!(
        "listen = \"127.0.0.1:1\"\nbody_limit_bytes = 1\n[upstream]\nfirst_byte_timeout_seconds = 1\n\
         [[backends]]\nname = \"b\"\nurl = \"{}\"\nmodels = [{{ name = \"m\" }}]",
        two.url()
    );
    gateway.reload_text(&config);
    for key in ["`listen`", "`body_limit_bytes`", "`[upstream]`"] {
        gateway.logs(&["WARN", key, "restart"]).await;
    }
    gateway.logs(&["INFO", "endpoints added: b"]).await;
    gateway.ask("m").answer().await.assert_ok("2");
}

#[tokio::test]
async fn unreachable_backend_gets_nothing_at_start_or_reload() {
    let good = Backend::replying("good").await;
    let (up, down) = (good.url(), Backend::unreachable());
    let models = "models = [{ name = \"m\" }]";
    let backend = |name, url, lines: &str| {
        format!("[[backends]]\nname = \"{name}\"\nurl = \"{url}\"\n{models}\n{lines}\n")
    };
    let sick = backend("sick", &down, "priority = 0");
    let setup = Setup::new()
        .routing("strategy = \"priority_only\"\nmax_retries = 0")
        .backend("unchecked", &good, 1, &["other"]);
    let setup = setup.sections(&sick).sections(&backend("good", &up, ""));
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, false, true]);
    gateway.ask("m").answer().await.assert_ok("good");

    let later = backend("later", &down, "priority = 0");
    gateway.reload(&Setup::new().sections(&sick).sections(&later));
    let down = |state: &crate::process::State| state.healthy() == [false, false];
    gateway.until("both are down", down).await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "no_healthy_backend");
}

/// Asserts that a reload of the present file logs `problem` and changes nothing.
async fn assert_reload_refused(gateway: &Gateway, problem: &str) {
    let before = gateway.state().await.0;
    let errors = gateway.logged(" ERROR ");
    gateway.signal("HUP");
    gateway.logs_more_than(" ERROR ", errors).await;
    let words = ["ERROR", problem, "nothing has changed"];
    gateway.logs(&words).await;
    assert_eq!(gateway.state().await.0, before, "{problem}");
}

#[tokio::test]
async fn truncated_or_empty_file_on_reload_removes_no_backend() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting = gateway.ask("m").send();
    gateway.depth(1).await;

    let file = gateway.config_file();
    let whole = std::fs::read_to_string(file).unwrap();
    let backends_at = whole.find("[[backends]]").unwrap();
    let cut_within = |word| &whole[..whole.find(word).unwrap() + 3];
    for (text, problem) in [
        ("", "no [[backends]]"),
        ("# later", "no [[backends]]"),
        (&whole[..backends_at], "no [[backends]]"),
        (&whole[..backends_at + 13], "missing field `name`"),
        (cut_within("url"), "line "),
        (cut_within("models"), "line "),
        (&whole[..whole.find("models").unwrap()], "no model"),
    ] {
        std::fs::write(file, text).unwrap();
        assert_reload_refused(&gateway, problem).await;
    }
    std::fs::write(file, b"listen = \"\xff\"").unwrap();
    assert_reload_refused(&gateway, "valid UTF-8").await;
    std::fs::remove_file(file).unwrap();
    assert_reload_refused(&gateway, "No such file").await;
    std::fs::create_dir(file).unwrap();
    assert_reload_refused(&gateway, "not a regular file").await;
    std::fs::remove_dir(file).unwrap();

    arrived.answer("1");
    backend.next().await.answer("2");
    running.answer().await.assert_ok("1");
    waiting.answer().await.assert_ok("2");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn file_that_hangs_on_reload_blocks_no_request() {
    let backend = Backend::replying("fine").await;
    let mut gateway = Setup::new().backend("a", &backend, 1, &["m"]).start().await;
    let hangs = Hangs::new(gateway.config_file());
    for reload in 0..2 {
        gateway.signal("HUP");
        gateway.ask("m").answer().await.assert_ok("fine");
        gateway.logs_more_than("has not responded", reload).await;
    }
    gateway.signal("HUP");
    gateway.signal("TERM");
    assert!(gateway.exit().await.success());
    drop(hangs);
}

#[tokio::test]
async fn without_backends_any_model_is_503_not_404() {
    let backend = Backend::replying("fine").await;
    let gateway = Setup::new()
        .routing("aliases = { alias = \"m\" }")
        .start()
        .await;
    gateway.logs(&["WARN", "no [[backends]]", "503"]).await;
    for name in ["m", "alias", "gpt-5"] {
        let answer = gateway.ask(name).answer().await;
        answer.assert_error(503, "no_healthy_backend");
    }
    gateway.reload(&Setup::new().backend("a", &backend, 1, &["m"]));
    gateway.logs(&["INFO", "endpoints added: a"]).await;
    gateway.ask("m").answer().await.assert_ok("fine");
    let answer = gateway.ask("gpt-5").answer().await;
    answer.assert_error(404, "model_not_found");
}

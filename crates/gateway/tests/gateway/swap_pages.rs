//! Tests of the pages and actions for models of `[swap]`.

use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::timeout;

use crate::admin_stream::Stream;
use crate::backend::Backend;
use crate::client::Client;
use crate::process::{Gateway, Setup, TIMEOUT};
use crate::swap_support::{TempFile, model, read_events, ready, swap};

fn pairs(states: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(name, state): &(&str, &str)| (name.to_owned(), state.to_owned());
    states.iter().map(owned).collect()
}

#[tokio::test]
async fn v1_models_gives_the_state_of_each_model() {
    let (backend, gate) = (Backend::start().await, TempFile::new());
    let setup = swap("memory = 1.0")
        .routing("aliases = { gpt = \"a\" }")
        .backend("gpu-1", &backend, 1, &["m"])
        .sections(&model("a", &gate.gates("a")))
        .sections(&model("bad", "false"));
    let gateway = setup.start().await;
    let expect = |a, bad| pairs(&[("m", "loaded"), ("a", a), ("bad", bad), ("gpt", a)]);
    assert_eq!(gateway.states().await, expect("unloaded", "unloaded"));
    gateway
        .ask("bad")
        .answer()
        .await
        .assert_error(503, "model_start_failed");
    assert_eq!(gateway.states().await, expect("unloaded", "failed"));
    let sent = gateway.ask("a").send();
    gateway.until_state("a", "loading").await;
    assert_eq!(gateway.states().await, expect("loading", "failed"));
    let running = gateway.get("/running").answer().await.json();
    assert_eq!(
        running,
        json!({ "running": [{ "model": "a", "state": "starting" }] })
    );
    gate.open();
    assert_eq!(sent.answer().await.status, 200);
    assert_eq!(gateway.states().await, expect("loaded", "failed"));
    let running = gateway.admin().get("/running").answer().await.json();
    assert_eq!(
        running,
        json!({ "running": [{ "model": "a", "state": "ready" }] })
    );
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_by_actions() {
    let setup = swap("memory = 1.0")
        .routing("aliases = { gpt = \"org/a:7b\" }")
        .sections(&model("org/a:7b", &ready("org/a:7b")));
    let gateway = setup.start().await;
    let post = |path: &str| gateway.admin().post(path).answer();
    let load = post("/admin/models/org/a:7b/load").await;
    assert_eq!(load.status, 202);
    assert_eq!(
        load.json(),
        json!({ "action": "load", "model": "org/a:7b" })
    );
    let loaded = gateway.until_state("org/a:7b", "loaded").await;
    assert_eq!(
        (&loaded["running"], &loaded["in_flight"]),
        (&json!(1), &json!(0))
    );
    assert!(loaded["since_seconds"].is_f64(), "{loaded}");
    for (load, unload) in [
        (
            "/admin/models/org%2Fa%3A7b/load",
            "/admin/models/org%2fa%3a7b/unload",
        ),
        ("/admin/models/gpt/load", "/admin/models/gpt/unload"),
        ("/admin/models/org/a:7b/load", "/admin/unload"),
    ] {
        assert_eq!(post(unload).await.status, 202, "{unload}");
        gateway.until_state("org/a:7b", "unloaded").await;
        assert_eq!(post(load).await.status, 202, "{load}");
        gateway.until_state("org/a:7b", "loaded").await;
    }
    for path in [
        "/admin/models/b/load",
        "/admin/models/b/unload",
        "/admin/models//load",
        "/api/models/unload/b",
    ] {
        let unknown = post(path).await;
        assert_eq!(
            unknown.error(),
            (404, "model_not_found".to_owned()),
            "{path}"
        );
    }
    for path in [
        "/admin/models/org/a:7b",
        "/admin/models",
        "/api/models/load",
    ] {
        assert_eq!(
            post(path).await.error(),
            (404, "not_found".to_owned()),
            "{path}"
        );
    }
    let got = gateway
        .admin()
        .get("/admin/models/org/a:7b/unload")
        .answer()
        .await;
    got.assert_error(404, "not_found");
    assert_eq!(gateway.model("org/a:7b").await["state"], "loaded");
}

/// Loads `a`, then unloads it by each path of llama.cpp and llama-swap, and checks the answers.
async fn peers_unload(gateway: &Gateway, client: &Client) {
    for (path, expected) in [
        ("/models/unload", r#"{"success":true}"#),
        ("/api/models/unload", r#"{"msg":"ok"}"#),
        ("/api/models/unload/a", "OK"),
        ("/unload", "OK"),
    ] {
        let load = client.ask("a").path("/models/load").answer().await;
        load.assert_ok(r#"{"success":true}"#);
        gateway.until_state("a", "loaded").await;
        let unload = match path {
            "/unload" => client.get(path),
            "/models/unload" => client.ask("a").path(path),
            _ => client.post(path),
        };
        unload.answer().await.assert_ok(expected);
        gateway.until_state("a", "unloaded").await;
    }
    let unknown = client.ask("b").path("/models/unload").answer().await;
    unknown.assert_error(404, "model_not_found");
    let unknown = client.post("/api/models/unload/b").answer().await;
    unknown.assert_error(404, "model_not_found");
    let nameless = client.post("/models/load").answer().await;
    nameless.assert_error(400, "model_missing");
    let cross_site = client.get("/unload").header("sec-fetch-site", "cross-site");
    cross_site.answer().await.assert_error(403, "cross_site");
}

#[tokio::test]
async fn operators_unload_as_with_llama_cpp_and_llama_swap() {
    let gateway = swap("memory = 1.0")
        .sections(&model("a", &ready("a")))
        .start()
        .await;
    peers_unload(&gateway, gateway.admin()).await;
}

#[tokio::test]
async fn clients_unload_models_where_they_may() {
    let gateway = swap("memory = 1.0\nclients_may_unload = true")
        .sections(&model("a", &ready("a")))
        .start()
        .await;
    peers_unload(&gateway, gateway.client()).await;
    for path in ["/admin/unload", "/admin/models/a/load"] {
        let own = gateway.client().post(path).answer().await;
        own.assert_error(404, "not_found");
    }
    let models = gateway.get("/models").answer().await.json();
    assert_eq!(models["data"][0]["status"]["value"], "unloaded");
}

#[tokio::test]
async fn clients_may_not_unload_unless_the_file_says_so() {
    let setup = |lines: &str| swap(lines).sections(&model("a", &ready("a")));
    let gateway = setup("memory = 1.0").start().await;
    assert_eq!(gateway.ask("a").answer().await.status, 200);
    let paths = ["/models/load", "/models/unload", "/api/models/unload/a"];
    for path in paths {
        // It is no request for the model, either.
        let refused = gateway.ask("a").path(path).answer().await;
        refused.assert_error(404, "not_found");
    }
    gateway
        .get("/unload")
        .answer()
        .await
        .assert_error(404, "not_found");
    assert_eq!(gateway.model("a").await["state"], "loaded");

    gateway.reload(&setup("memory = 1.0\nclients_may_unload = true"));
    gateway
        .logs(&["INFO", "clients_may_unload", "changed"])
        .await;
    let unload = gateway.client().post("/api/models/unload/a");
    unload.answer().await.assert_ok("OK");
    gateway.until_state("a", "unloaded").await;
    gateway.reload(&setup("memory = 1.0"));
    gateway.logs_more_than("clients_may_unload", 1).await;
    let refused = gateway.client().post("/api/models/unload/a").answer();
    refused.await.assert_error(404, "not_found");
}

#[tokio::test]
async fn a_tenant_with_models_sees_its_own_and_may_not_unload() {
    let tenants = "[[tenants]]\nname = \"one\"\nkeys = [\"sk-1\"]\nmodels = [\"a\"]\n\
                   [[tenants]]\nname = \"two\"\nkeys = [\"sk-2\"]\n";
    let gateway = swap("memory = 2.0\nclients_may_unload = true")
        .sections(&model("a", &ready("a")))
        .sections(&model("b", &ready("b")))
        .sections(tenants)
        .start()
        .await;
    for name in ["a", "b"] {
        let ask = gateway.ask(name).header("x-api-key", "sk-2");
        assert_eq!(ask.answer().await.status, 200);
    }
    for (key, names) in [("sk-1", &["a"][..]), ("sk-2", &["a", "b"])] {
        let page = gateway.get("/running").header("x-api-key", key);
        let running = page.answer().await.json();
        let models = running["running"].as_array().unwrap().iter();
        let models: Vec<_> = models.map(|it| it["model"].as_str().unwrap()).collect();
        assert_eq!(models, names, "{key}");
    }
    let unload = || gateway.client().post("/api/models/unload/b");
    unload().answer().await.assert_error(401, "invalid_api_key");
    let refused = unload().header("x-api-key", "sk-1").answer().await;
    refused.assert_error(404, "not_found");
    let done = unload().header("x-api-key", "sk-2").answer().await;
    done.assert_ok("OK");
}

#[tokio::test]
async fn actions_refuse_requests_of_other_sites() {
    let gateway = swap("memory = 1.0")
        .sections(&model("a", &ready("a")))
        .start()
        .await;
    assert_eq!(gateway.ask("a").answer().await.status, 200);
    let post = || gateway.admin().post("/admin/unload");
    for refused in [
        post().header("sec-fetch-site", "cross-site"),
        post().header("sec-fetch-site", "same-site"),
        post().header("origin", "http://evil.example"),
        post().header("origin", "null"),
    ] {
        refused.answer().await.assert_error(403, "cross_site");
    }
    assert_eq!(gateway.model("a").await["state"], "loaded");
    let own = post()
        .header("sec-fetch-site", "same-origin")
        .answer()
        .await;
    assert_eq!(own.status, 202);
    gateway.until_state("a", "unloaded").await;
}

#[tokio::test]
async fn events_tell_what_happens_until_the_shutdown() {
    let setup = swap("memory = 1.0")
        .sections(&model("a", &ready("a")))
        .sections(&model("b", "false"));
    let mut gateway = setup.start().await;
    let mut events = gateway.admin().get("/admin/events").open().await;
    assert_eq!(events.status(), 200);
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    assert_eq!(gateway.ask("a").answer().await.status, 200);
    let read = read_events(&mut events, "loaded").await;
    assert_eq!(read, pairs(&[("a", "loading"), ("a", "loaded")]));
    gateway.admin().post("/admin/unload").answer().await;
    let read = read_events(&mut events, "unloaded").await;
    assert_eq!(read.last(), Some(&("a".to_owned(), "unloaded".to_owned())));
    gateway
        .ask("b")
        .answer()
        .await
        .assert_error(503, "model_start_failed");
    let read = read_events(&mut events, "failed").await;
    assert_eq!(read, pairs(&[("b", "loading"), ("b", "failed")]));
    gateway.signal("TERM");
    let rest = timeout(TIMEOUT, events.into_body().collect()).await;
    rest.expect("the stream does not end").unwrap();
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn without_admin_address_models_are_seen_and_not_changed() {
    let sections = format!("[swap]\nmemory = 1.0\n{}", model("a", &ready("a")));
    let mut gateway = Setup::new().sections(&sections).start().await;
    let mut events = gateway.get("/admin/events").open().await;
    assert_eq!(gateway.ask("a").answer().await.status, 200);
    read_events(&mut events, "loaded").await;
    let models = gateway.get("/admin/models").answer().await.json();
    assert_eq!(models["models"][0]["state"], "loaded");
    let unload = gateway.ask("").path("/admin/unload").answer().await;
    unload.assert_error(404, "not_found");
    gateway.signal("TERM");
    let rest = timeout(TIMEOUT, events.into_body().collect()).await;
    rest.expect("the stream does not end").unwrap();
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn without_swap_pages_are_empty_and_actions_find_no_model() {
    let setup = Setup::new().top("[admin]\nlisten = \"127.0.0.1:0\"");
    let mut gateway = setup.start().await;
    let page = gateway.admin().get("/admin/models").answer().await.json();
    assert_eq!(page, json!({ "models": [] }));
    let running = gateway.get("/running").answer().await.json();
    assert_eq!(running, json!({ "running": [] }));
    let load = gateway.admin().post("/admin/models/a/load").answer().await;
    load.assert_error(404, "model_not_found");
    let events = gateway.admin().get("/admin/events").open().await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    drop(events);
}

#[tokio::test]
async fn operators_page_shows_models_with_their_memory_and_load_time() {
    let setup = swap("memory = 2.0").sections(&model("a", &ready("a")));
    let gateway = setup.start().await;
    let mut stream = Stream::open(gateway.admin()).await;
    let (_, _, snapshot) = stream.next().await.unwrap();
    let swap = &snapshot["state"]["swap"];
    let memory = [&swap["memory_used"], &swap["memory_total"]];
    assert_eq!(memory, [&json!(0.0), &json!(2.0)]);
    assert_eq!(swap["models"]["a"]["state"], "unloaded");
    assert_eq!(swap["models"]["a"]["memory"], 1.0);
    let load = gateway.admin().post("/admin/models/a/load").answer().await;
    assert_eq!(load.status, 202);
    let (mut used, mut load_time) = (json!(0.0), json!(null));
    while load_time.is_null() {
        let (_, _, patch) = stream.next().await.unwrap();
        if let Some(now) = patch["swap"].get("memory_used") {
            used = now.clone();
        }
        load_time = patch["swap"]["models"]["a"]["load_seconds"].clone();
    }
    assert_eq!(used, 1.0);
    assert!(load_time.as_f64().unwrap() >= 0.0);
}

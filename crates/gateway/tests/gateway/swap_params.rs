//! Tests of what a model or an alias changes in requests, of fixed URLs and of macros.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backend::{Backend, status};
use crate::process::{Gateway, Setup, TIMEOUT};
use crate::swap::assert_served;
use crate::swap_support::{model, ready, swap};

const PATH: &str = "/v1/chat/completions";

/// Sends a body, and returns the one that the backend gets, whose length is as its head says.
async fn received(gateway: &Gateway, backend: &Backend, body: &'static str) -> String {
    let sent = gateway.ask("").path(PATH).body(body).send();
    let arrived = backend.next().await;
    let text = String::from_utf8(arrived.body.to_vec()).unwrap();
    let length = arrived.header("content-length").unwrap();
    assert_eq!(length, text.len().to_string());
    arrived.answer("done");
    sent.answer().await.assert_ok("done");
    text
}

#[tokio::test]
async fn parameters_are_set_and_removed_by_model_and_alias() {
    let backend = Backend::start().await;
    let lines = r#"
        models = [
          { name = "m", set_params = { temperature = 0.2, stop = ["a", "\"b"] }, strip_params = ["top_k"], use_model_name = "real" },
          { name = "plain" },
        ]"#;
    let setup = Setup::new()
        .routing(
            r#"aliases = { exact = { model = "m", set_params = { temperature = 0, seed = 7 }, strip_params = ["user"] }, other = "m", lora = { model = "plain", use_model_name = "adapter" } }
               fallbacks = { gone = ["m"] }"#,
        )
        .backend_with("gpu-1", &backend.url(), lines);
    let gateway = setup.start().await;
    for (sent, expected) in [
        (
            r#" { "top_k":40 , "model" : "m", "temperature":1.50,"x":[1, {"top_k":2}] } "#,
            r#" { "model" : "real", "temperature":0.2,"x":[1, {"top_k":2}],"stop":["a","\"b"] } "#,
        ),
        (
            r#"{"model":"exact","user":"u","top_k":1,"temperature":2}"#,
            r#"{"model":"real","temperature":0,"seed":7,"stop":["a","\"b"]}"#,
        ),
        (
            r#"{"model":"other","user":"u"}"#,
            r#"{"model":"real","user":"u","stop":["a","\"b"],"temperature":0.2}"#,
        ),
        (
            r#"{"model":"gone"}"#,
            r#"{"model":"real","stop":["a","\"b"],"temperature":0.2}"#,
        ),
        (
            r#"{"temperature":1.0, "model":"plain" ,"top_k":1}"#,
            r#"{"temperature":1.0, "model":"plain" ,"top_k":1}"#,
        ),
        (
            r#"{"temperature":1.0, "model":"lora" }"#,
            r#"{"temperature":1.0, "model":"adapter" }"#,
        ),
    ] {
        assert_eq!(received(&gateway, &backend, sent).await, expected);
    }
}

#[tokio::test]
async fn a_field_that_is_removed_needs_no_capability() {
    let (backend, able) = (Backend::start().await, Backend::start().await);
    let strips = "strip_params = [\"Tools\", \"response_format\"]";
    let models = format!(
        r#"models = [{{ name = "m", {strips} }}, {{ name = "plain" }}, {{ name = "both", {strips} }}]"#
    );
    let setup = Setup::new()
        .routing(&format!(
            "aliases = {{ alias = {{ model = \"plain\", {strips} }}, both = {{ model = \"plain\", {strips} }} }}"
        ))
        .backend_with("gpu-1", &backend.url(), &models)
        .backend_with(
            "gpu-2",
            &able.url(),
            "models = [{ name = \"both\", tools = true, json_mode = true }]",
        );
    let gateway = setup.start().await;
    for (sent, expected) in [
        (
            r#"{"model":"m","tools":[{}],"response_format":{"type":"json_object"}}"#,
            r#"{"model":"m"}"#,
        ),
        (
            r#"{"model":"alias","tools":[{}],"response_format":{"type":"json_object"}}"#,
            r#"{"model":"plain"}"#,
        ),
    ] {
        assert_eq!(received(&gateway, &backend, sent).await, expected);
    }
    let tools = r#"{"model":"both","tools":[{}]}"#;
    for _ in 0..4 {
        assert_eq!(received(&gateway, &able, tools).await, tools);
    }
    for body in [
        r#"{"model":"plain","tools":[{}]}"#,
        r#"{"model":"alias","messages":[{"content":[{"type":"image_url"}]}]}"#,
    ] {
        let refused = gateway.ask("").path(PATH).body(body).answer().await;
        refused.assert_error(400, "capability_mismatch");
    }
}

#[tokio::test]
async fn another_try_gets_the_parameters_of_its_own_backend() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let lines = |name: &str, priority: u32| {
        format!(
            "priority = {priority}\nmodels = [{{ name = \"m\", use_model_name = \"{name}\", set_params = {{ {name} = true }} }}]"
        )
    };
    let setup = Setup::new()
        .backend_with("gpu-1", &first.url(), &lines("one", 1))
        .backend_with("gpu-2", &second.url(), &lines("two", 50))
        .routing("strategy = \"priority_only\"");
    let gateway = setup.start().await;
    let sent = gateway
        .ask("")
        .path(PATH)
        .body(r#"{"model":"m","n":1}"#)
        .send();
    let failed = first.next().await;
    assert_eq!(failed.body, r#"{"model":"one","n":1,"one":true}"#);
    failed.respond(status(503));
    let served = second.next().await;
    assert_eq!(served.body, r#"{"model":"two","n":1,"two":true}"#);
    served.answer("done");
    sent.answer().await.assert_ok("done");

    let sent = gateway.get("/v1/x?model=m").send();
    let failed = first.next().await;
    assert_eq!(failed.head.uri, "/v1/x?model=one");
    failed.respond(status(503));
    let served = second.next().await;
    assert_eq!(served.head.uri, "/v1/x?model=two");
    served.answer("done");
    sent.answer().await.assert_ok("done");
}

#[tokio::test]
async fn changes_of_a_model_s_requests_need_no_restart() {
    let section = |lines: &str| model("a", &ready("inner")) + lines;
    let setup = |lines: &str| swap("memory = 1.0").sections(&section(lines));
    let gateway = setup("").start().await;
    let refused = gateway.ask("a").answer().await;
    refused.assert_error(404, "model_not_found"); // by the model, which has another name
    let before = gateway.model("a").await;
    let lines = "use_model_name = \"inner\"\nset_params = { n = 1 }\nstrip_params = [\"x\"]\n\
                 loading_state = \"reasoning\"\n";
    gateway.reload(&setup(lines));
    gateway.logs(&["INFO", "models changed: a"]).await;
    assert_served(&gateway.ask("a").answer().await, "inner");
    assert_eq!(gateway.model("a").await["url"], before["url"]);
    assert_eq!(gateway.logged("model is loaded"), 1);
}

#[tokio::test]
async fn requests_and_checks_go_to_a_fixed_url() {
    let (first, second) = (
        Backend::replying("first").await,
        Backend::replying("second").await,
    );
    // The process itself serves nothing, and a server that all instances share is there before.
    let section = |backend: &Backend| {
        model("a", "sleep 600") + &format!("instances = 2\nproxy = \"{}/base\"\n", backend.url())
    };
    let setup = |backend: &Backend| {
        swap("memory = 1.0").sections(&(section(backend) + "health_interval_seconds = 0.1\n"))
    };
    let gateway = setup(&first).start().await;
    gateway.ask("a").answer().await.assert_ok("first");
    let url = format!("{}/base", first.url());
    assert_eq!(gateway.model("a").await["url"], url);
    gateway.reload(&setup(&second));
    gateway.logs(&["INFO", "models changed: a"]).await;
    gateway.ask("a").answer().await.assert_ok("second");
    let url = format!("{}/base", second.url());
    assert_eq!(gateway.model("a").await["url"], url);
    // Each check has a connection of its own.
    let checked = async {
        while second.counts().connections < 4 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let checked = timeout(TIMEOUT, checked).await;
    checked.expect("the checks do not go to the new URL");
    assert_eq!(gateway.logged("model is loaded"), 1);
    drop(first);

    let refused = swap("memory = 1.0")
        .sections(&(model("a", "x") + "proxy = \"127.0.0.1:1\"\n"))
        .refusal()
        .await;
    assert!(refused.contains("`proxy` is"), "{refused}");
}

#[tokio::test]
async fn a_model_that_failed_starts_with_the_next_request_after_its_url_is_corrected() {
    let backend = Backend::replying("served").await;
    let setup = |url: &str, seconds| {
        let proxy = format!("instances = 2\nproxy = {url:?}\nstart_timeout_seconds = {seconds}\n");
        swap("memory = 1.0").sections(&(model("a", "sleep 600") + &proxy))
    };
    let gateway = setup("http://127.0.0.1:1", 0.1).start().await;
    for _ in 0..2 {
        let failed = gateway.ask("a").answer().await;
        failed.assert_error(503, "model_start_failed");
    }
    let failed = gateway.logged("model could not be started");
    gateway.reload(&setup(&backend.url(), 60.0));
    gateway.logs(&["INFO", "models changed: a"]).await;
    gateway.ask("a").answer().await.assert_ok("served");
    assert_eq!(gateway.logged("model could not be started"), failed);
}

#[tokio::test]
async fn a_load_that_waits_at_a_wrong_url_begins_again_when_it_is_corrected() {
    let backend = Backend::replying("served").await;
    let setup = |url: &str| {
        let proxy = format!("instances = 2\nproxy = {url:?}\n");
        swap("memory = 1.0").sections(&(model("a", "sleep 600") + &proxy))
    };
    let gateway = setup("http://127.0.0.1:1").start().await;
    let waits = gateway.ask("a").send();
    gateway.until_state("a", "loading").await;
    gateway.reload(&setup(&backend.url()));
    waits.answer().await.assert_ok("served");
}

#[tokio::test]
async fn macros_and_the_name_of_the_model_are_put_into_commands() {
    let macros = r#"
        [swap.macros]
        server = "${GATEWAY} model ${listen}"
        listen = "--port ${PORT} --answer-ms ${ANSWER_MS}"
        "#;
    let gateway = swap("memory = 1.0")
        .sections(macros)
        .sections(&model("org/a b", "${server} --name ${MODEL_ID}"))
        .environment("ANSWER_MS", "0")
        .start()
        .await;
    assert_served(&gateway.ask("org/a b").answer().await, "org/a b");
}

#[tokio::test]
async fn mistakes_in_macros_and_parameters_name_line_and_key() {
    for (text, said) in [
        (
            "[swap.macros]\na = '${b}'\nb = '${a}'",
            "line 1, column 1, in `swap.macros`: the macros lead in a circle: a → b → a",
        ),
        (
            "[swap.models.m]\ncmd = 'x'\n\nstop_cmd = 'x ${no-macro}'",
            "line 4, [swap]: `stop_cmd` of the model \"m\" uses ${no-macro}, and [swap.macros] has no macro",
        ),
        (
            "[swap.macros]\nq = \"it's\"\n[swap.models.m]\ncmd = 'x ${q}'",
            "line 4, [swap]: `cmd` of the model \"m\" has an open quote",
        ),
        (
            "[swap.models.m]\ncmd = 'x'\nset_params = { model = 'y' }",
            "in `swap.models.m.set_params`: `model` is not a parameter: `use_model_name` sets",
        ),
        (
            "[swap.models.m]\ncmd = 'x'\nloading_state = 'dots'",
            "in `swap.models.m.loading_state`: unknown variant `dots`, expected `none` or `reasoning`",
        ),
        (
            "[routing]\naliases.a = { model = 'm', params = {} }",
            "in `routing.aliases.a`: unknown field `params`",
        ),
        (
            "[routing.aliases]\na = 1",
            "line 2, column 5, in `routing.aliases.a`: invalid type: integer `1`, expected the name of a model, or a table",
        ),
    ] {
        let (message, _) = Gateway::refusal(text).await;
        assert!(message.contains(said), "{text}\n{message}");
    }
}

//! Tests of `[swap]`: models that are started when requests ask for them, as real processes.

use crate::process::Setup;
use crate::swap_support::{TempFile, listens, model, ready, swap, until_closed};
use crate::waiting_status::{asks, reads};

/// A canned response of the model server.
pub(crate) fn assert_served(answer: &crate::client::Answer, model: &str) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["model"], model);
}

#[tokio::test]
async fn interleaved_requests_of_three_models_need_three_loads() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0")
        .sections(&model("a", &gate.gates("a")))
        .sections(&model("b", &ready("b")))
        .sections(&model("org/c:7b", &ready("org/c:7b")));
    let gateway = setup.start().await;
    let names = ["a", "b", "org/c:7b", "a", "b", "org/c:7b"];
    let mut sent = Vec::new();
    for (name, depth) in names.into_iter().zip(1..) {
        sent.push((name, gateway.ask(name).send()));
        gateway.depth(depth).await;
    }
    let waiting = gateway.until_state("a", "loading").await;
    assert_eq!(waiting["waiting"], 2);
    gate.open();
    for (name, sent) in sent {
        assert_served(&sent.answer().await, name);
    }
    let path = "path=\"/v1/chat/completions\"";
    gateway.logs_more_than(path, 5).await;
    assert_eq!(gateway.logged("model is loaded"), 3);
    let served: Vec<String> = gateway
        .log_lines()
        .iter()
        .filter(|line| line.contains(path))
        .filter_map(|line| Some(line.split_once("endpoint=\"")?.1.chars().take(1).collect()))
        .collect();
    assert_eq!(served, ["a", "a", "b", "b", "o", "o"]);
}

#[tokio::test]
async fn models_of_swap_and_backends_live_in_one_gateway() {
    let backend = crate::backend::Backend::replying("from the backend").await;
    let setup = swap("")
        .sections(
            "[swap.models.a]\ncmd = \"${GATEWAY} model --name a --port ${PORT} --answer-ms 0\"\n",
        )
        .routing("aliases = { gpt = \"a\" }\nfallbacks = { none = [\"a\"] }")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_ok("from the backend");
    for name in ["gpt", "none"] {
        let answer = gateway.ask(name).answer().await;
        assert_eq!(answer.header("x-triage-model"), Some("a"), "{answer:?}");
    }
    let streamed = gateway.ask("").body(r#"{"model":"a","stream":true}"#);
    let streamed = streamed.answer().await;
    assert!(
        streamed.text().ends_with("data: [DONE]\n\n"),
        "{streamed:?}"
    );
    gateway
        .ask("b")
        .answer()
        .await
        .assert_error(404, "model_not_found");
}

#[tokio::test]
async fn client_that_waits_for_a_load_is_told_so() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("a", &gate.gates("a")));
    let gateway = setup.start().await;
    let request = gateway.ask("").body(r#"{"model":"a","stream":true}"#);
    let mut response = asks(request).open().await;
    assert_eq!(response.status(), 200);
    reads(&mut response, ": queue position=1 state=loading").await;
    gate.open();
    let rest = reads(&mut response, "data: [DONE]\n\n").await;
    assert!(rest.contains("\"content\":\"You \""), "{rest}");
}

#[tokio::test]
async fn unload_during_load_answers_waiters_with_model_unloaded() {
    let never = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("a", &never.gates("a")));
    let gateway = setup.start().await;
    let sent = [gateway.ask("a").send(), gateway.ask("a").send()];
    gateway
        .until_model("a", |a| a["state"] == "loading" && a["waiting"] == 2)
        .await;
    let unload = gateway
        .admin()
        .post("/admin/models/a/unload")
        .answer()
        .await;
    assert_eq!(unload.status, 202);
    for sent in sent {
        sent.answer().await.assert_error(503, "model_unloaded");
    }
    gateway.until_state("a", "unloaded").await;
    never.open();
    let answer = gateway.ask("a").answer().await; // asked for again, it is started again
    assert_served(&answer, "a");
}

#[tokio::test]
async fn unload_drains_or_kills_as_asked() {
    let slow = |name: &str| ready(name).replace("--answer-ms 0", "--answer-ms 600000");
    let first_slow = TempFile::new();
    let cmd = format!(
        "sh -c \"if [ -e {0} ]; then exec {1}; fi; touch {0}; exec {2}\"",
        first_slow.path().display(),
        ready("a"),
        slow("a"),
    );
    let setup = swap("memory = 2.0")
        .sections(&model("a", &cmd))
        .sections(&model("b", &ready("b")));
    let gateway = setup.start().await;
    let running = gateway.ask("a").send();
    gateway.until_model("a", |a| a["in_flight"] == 1).await;
    let unload = |query: &str| {
        let path = format!("/admin/models/a/unload{query}");
        gateway.admin().post(&path).answer()
    };
    assert_eq!(
        unload("?kill=maybe").await.error(),
        (400, "invalid_parameter".to_owned())
    );
    assert_eq!(unload("").await.status, 202);
    // Actions are carried out in their order: once this one is, so is the unload.
    let load_b = gateway.admin().post("/admin/models/b/load").answer();
    assert_eq!(load_b.await.status, 202);
    gateway.until_state("b", "loaded").await;
    let later = gateway.ask("a").send();
    gateway.depth(1).await;
    assert!(!running.is_answered());
    assert_eq!(unload("?kill=true").await.status, 202);
    let killed = running.answer().await;
    assert_eq!(killed.error(), (503, "model_unloaded".to_owned()));
    later.answer().await.assert_error(503, "model_unloaded");
    assert_served(&gateway.ask("a").answer().await, "a");
}

#[tokio::test]
async fn failed_start_is_503_and_its_output_only_in_the_log() {
    let setup = swap("memory = 1.0")
        .sections(&model("a", "sh -c 'echo no such weights >&2; exit 3'"))
        .sections(&model("b", "/no/such/program"))
        .sections(&model("c", &ready("c")));
    let gateway = setup.start().await;
    for name in ["a", "b"] {
        let answer = gateway.ask(name).answer().await;
        answer.assert_error(503, "model_start_failed");
        assert!(!answer.text().contains("weights"), "{answer:?}");
    }
    gateway
        .logs(&["ERROR", "\"a\"", "exit status: 3", "no such weights"])
        .await;
    gateway.logs(&["ERROR", "\"b\"", "/no/such/program"]).await;
    let failed = gateway.model("a").await;
    assert_eq!(failed["state"], "failed");
    let error = failed["last_error"].as_str().unwrap();
    assert!(error.contains("exit status: 3"), "{error}");
    assert_served(&gateway.ask("c").answer().await, "c");
}

#[tokio::test]
async fn shutdown_waits_for_requests_and_leaves_no_model() {
    let slow = ready("a").replace("--answer-ms 0", "--answer-ms 300");
    let asked = TempFile::new();
    let trap = format!("trap 'touch {}; exit' TERM", asked.path().display());
    let setup = swap("memory = 3.0")
        .sections(&model("a", &slow))
        .sections(&model(
            "b",
            &format!("sh -c \"{trap}; {} & wait\"", ready("b")),
        ))
        .sections(&model("c", &format!("sh -c \"{} & wait\"", ready("c"))));
    let mut gateway = setup.start().await;
    for name in ["b", "c"] {
        assert_served(&gateway.ask(name).answer().await, name);
    }
    let running = gateway.ask("a").send();
    let mut models = vec![gateway.until_model("a", |a| a["in_flight"] == 1).await];
    for name in ["b", "c"] {
        models.push(gateway.model(name).await);
    }
    for model in &models {
        assert!(listens(model).await, "{model}");
    }
    gateway.signal("TERM");
    assert_served(&running.answer().await, "a");
    assert_eq!(gateway.exit().await.code(), Some(0));
    for model in &models {
        assert!(!listens(model).await, "{model}");
    }
    assert!(
        asked.path().exists(),
        "b was killed without a signal to stop"
    );
}

#[tokio::test]
async fn second_interrupt_kills_models_that_do_not_stop() {
    let stubborn = format!("sh -c \"trap '' TERM; {} & wait; sleep 600\"", ready("a"));
    let lines = model("a", &stubborn) + "stop_cmd = \"true\"\nstop_grace_seconds = 600\n";
    let mut gateway = swap("memory = 1.0").sections(&lines).start().await;
    assert_served(&gateway.ask("a").answer().await, "a");
    let model = gateway.model("a").await;
    gateway.signal("INT");
    gateway.until_state("a", "unloading").await;
    assert!(listens(&model).await);
    gateway.signal("INT");
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert!(!listens(&model).await);
}

#[tokio::test]
async fn end_of_the_grace_period_kills_models_that_serve() {
    let slow = ready("a").replace("--answer-ms 0", "--answer-ms 600000");
    let setup = swap("memory = 1.0").sections(&model("a", &slow));
    let mut gateway = setup.arguments(&["--grace", "0.1"]).start().await;
    let running = gateway.ask("a").send();
    let model = gateway.until_model("a", |a| a["in_flight"] == 1).await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert!(!listens(&model).await);
    drop(running);
}

#[tokio::test]
async fn reload_keeps_unchanged_models_and_restarts_changed_ones() {
    let section = |name: &str, lines: &str| model(name, &ready(name)) + lines;
    let setup = |sections: &[String]| {
        let setup = swap("memory = 9.0");
        sections
            .iter()
            .fold(setup, |setup, section| setup.sections(section))
    };
    let gateway = setup(&[section("a", ""), section("b", ""), section("c", "")])
        .start()
        .await;
    let mut before = Vec::new();
    for name in ["a", "b", "c"] {
        assert_served(&gateway.ask(name).answer().await, name);
        before.push(gateway.model(name).await);
    }
    gateway.reload(&setup(&[
        section("a", ""),
        section("b", "env = { KEY = \"1\" }\n"),
        section("d", ""),
    ]));
    gateway.logs(&["INFO", "models added: d"]).await;
    gateway.logs(&["INFO", "models removed: c"]).await;
    gateway.logs(&["INFO", "models changed: b"]).await;
    gateway.until_state("b", "unloaded").await;
    for name in ["a", "b", "d"] {
        assert_served(&gateway.ask(name).answer().await, name);
    }
    gateway
        .ask("c")
        .answer()
        .await
        .assert_error(404, "model_not_found");
    assert_eq!(gateway.model("a").await["url"], before[0]["url"]);
    assert_eq!(gateway.logged("model is loaded"), 5);
    for gone in &before[1..] {
        until_closed(gone).await;
    }
}

#[tokio::test]
async fn memory_lowered_by_reload_stops_what_is_idle() {
    let slow = ready("c").replace("--answer-ms 0", "--answer-ms 600000");
    let setup = |memory| {
        let setup = swap(&format!("memory = {memory}"));
        let setup = setup.sections(&model("a", &ready("a")));
        let setup = setup.sections(&model("b", &ready("b")));
        setup.sections(&model("c", &slow))
    };
    let gateway = setup("3.0").arguments(&["--grace", "0.1"]).start().await;
    let mut before = Vec::new();
    for name in ["a", "b"] {
        assert_served(&gateway.ask(name).answer().await, name);
        before.push(gateway.model(name).await);
    }
    let running = gateway.ask("c").send();
    gateway.until_model("c", |c| c["in_flight"] == 1).await;

    gateway.reload(&setup("2.0"));
    gateway.until_state("a", "unloaded").await; // it was used before b
    assert!(!listens(&before[0]).await);
    assert_eq!(gateway.model("b").await["state"], "loaded");

    gateway.reload(&setup("1.0"));
    gateway.until_state("b", "unloaded").await;
    assert!(!listens(&before[1]).await);
    let serving = gateway.model("c").await;
    assert_eq!(
        (&serving["state"], &serving["in_flight"]),
        (&"loaded".into(), &1.into())
    );
    assert!(!running.is_answered());
}

#[tokio::test]
async fn model_moves_between_backends_and_swap_while_requests_wait() {
    // Both with the name of the model, which two that run together may not have.
    let backend = crate::backend::Backend::start().await;
    let as_backend = || swap("memory = 1.0").backend("m", &backend, 1, &["m"]);
    let as_model = swap("memory = 1.0").sections(&model("m", &ready("m")));
    let gateway = as_backend().start().await;
    for nth in 0..2 {
        let runs = gateway.ask("m").send();
        let at_backend = backend.next().await;
        let waits = gateway.ask("m").send();
        gateway.depth(1).await;
        gateway.reload(&as_model);
        assert_served(&waits.answer().await, "m");
        at_backend.answer("done");
        runs.answer().await.assert_ok("done");

        gateway.reload(&as_backend());
        gateway.logs_more_than("models removed: m", nth).await;
        let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
            backend.next().await.answer("done");
        });
        answer.assert_ok("done");
    }
}

#[tokio::test]
async fn reload_without_swap_is_refused_and_new_swap_needs_a_restart() {
    let gateway = swap("memory = 1.0")
        .sections(&model("a", &ready("a")))
        .start()
        .await;
    let backends = Setup::new().backend_at("gpu-1", "http://127.0.0.1:9", 1, &["m"]);
    gateway.reload(&backends);
    gateway
        .logs(&["ERROR", "no [swap]", "nothing has changed"])
        .await;
    assert_served(&gateway.ask("a").answer().await, "a");

    let gateway = backends.start().await;
    let both = swap("").backend_at("gpu-1", "http://127.0.0.1:9", 1, &["m"]);
    gateway.reload(&both.sections("[swap.models.a]\ncmd = \"true\""));
    gateway.logs(&["WARN", "`[swap]`", "restart"]).await;
    gateway
        .ask("a")
        .answer()
        .await
        .assert_error(404, "model_not_found");
}

//! Tests of requests whose model is named by their path or query, or by nothing at all.

use http::Method;

use crate::backend::{Backend, status};
use crate::process::{Gateway, Setup};

/// Two backends with the models `m` and `n`, of which the second one has the alias `other`.
async fn two(routing: &str) -> (Gateway, Backend, Backend) {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("aliases = { other = \"n\" }")
        .routing(routing)
        .backend("gpu-1", &first, 1, &["m", "org/m:7b"])
        .backend("gpu-2", &second, 1, &["n"]);
    (setup.start().await, first, second)
}

#[tokio::test]
async fn paths_without_a_model_go_to_the_default_backend() {
    let (gateway, _, second) = two("default_backend = \"gpu-2\"").await;
    for (method, path, body) in [
        (Method::GET, "/v1/responses/resp_1", ""),
        (Method::DELETE, "/v1/responses/resp_1", ""),
        (Method::POST, "/v1/responses/resp_1/cancel", ""),
        (Method::GET, "/v1/responses/resp_1/input_items?limit=2", ""),
        (Method::POST, "/v1/moderations", "{\"input\":\"x\"}"),
        (Method::POST, "/tokenize", "{\"content\":\"x\"}"),
        (Method::POST, "/detokenize", "{\"tokens\":[1]}"),
        (Method::PUT, "/v1/unknown/path", "no JSON"),
    ] {
        let sent = gateway.get(path).method(method.clone()).body(body).send();
        let arrived = second.next().await;
        assert_eq!(arrived.head.method, method, "{path}");
        assert_eq!(arrived.head.uri, path);
        assert_eq!(arrived.body, body, "{path}");
        arrived.answer("fine");
        let answer = sent.answer().await;
        answer.assert_ok("fine");
        assert_eq!(answer.header("x-triage-endpoint"), Some("gpu-2"));
        assert_eq!(answer.header("x-triage-model"), None);
    }
    for path in ["/", "/apis/delete", "/v2/x"] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(404, "not_found");
    }
}

#[tokio::test]
async fn a_model_that_is_named_goes_before_the_default_backend() {
    let (gateway, first, _) = two("default_backend = \"gpu-2\"").await;
    for (path, body) in [
        ("/v1/moderations", "{\"model\":\"m\"}"),
        ("/v1/unknown?model=m", ""),
    ] {
        let sent = gateway.client().post(path).body(body).send();
        first.next().await.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
    let unknown = gateway
        .client()
        .post("/tokenize")
        .body("{\"model\":\"x\"}")
        .answer()
        .await;
    unknown.assert_error(404, "model_not_found");
}

#[tokio::test]
async fn without_a_default_backend_the_query_names_the_model() {
    let (gateway, first, second) = two("").await;
    for (path, backend) in [
        ("/v1/responses/resp_1?model=m", &first),
        ("/v1/x?model=org%2Fm%3A7b", &first),
        ("/v1/x?a=other&model=n&model=other", &second),
    ] {
        let sent = gateway.get(path).send();
        let arrived = backend.next().await;
        assert_eq!(arrived.head.uri, path);
        arrived.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
    gateway
        .get("/v1/x?model=nobody")
        .answer()
        .await
        .assert_error(404, "model_not_found");
    for path in ["/v1/responses/resp_1", "/v1/x?model="] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(404, "not_found");
        assert!(answer.message().contains("`default_backend`"), "{answer:?}");
    }
    let missing = gateway.client().post("/tokenize").body("{}").answer().await;
    missing.assert_error(400, "model_missing");
}

#[tokio::test]
async fn the_backend_gets_its_own_name_of_the_model_in_the_query() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing(
            "aliases = { \"a b\" = \"m\", lora = { model = \"m\", use_model_name = \"ad&pter\" } }",
        )
        .backend_with(
            "gpu-1",
            &backend.url(),
            "models = [{ name = \"m\" }, { name = \"n\", use_model_name = \"org/n:7b\" }]",
        );
    let gateway = setup.start().await;
    for (path, expected) in [
        ("/v1/x?model=a+b", "/v1/x?model=m"),
        ("/v1/x?y=1&model=a%20b&z=%26", "/v1/x?y=1&model=m&z=%26"),
        ("/v1/x?model=lora", "/v1/x?model=ad%26pter"),
        ("/v1/x?model=n", "/v1/x?model=org%2Fn%3A7b"),
        ("/v1/x?model=m&other=lora", "/v1/x?model=m&other=lora"),
    ] {
        let sent = gateway.get(path).send();
        let arrived = backend.next().await;
        assert_eq!(arrived.head.uri, expected);
        arrived.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn requests_for_the_default_backend_wait_for_its_slot() {
    let (gateway, _first, second) = two("default_backend = \"gpu-2\"").await;
    let running = gateway.ask("n").send();
    let arrived = second.next().await;
    let waiting = gateway.get("/v1/responses/resp_1").send();
    gateway.depth(1).await;
    arrived.answer("one");
    second.next().await.answer("two");
    running.answer().await.assert_ok("one");
    waiting.answer().await.assert_ok("two");
}

#[tokio::test]
async fn the_default_backend_must_be_a_backend() {
    let backend = Backend::start().await;
    let setup =
        Setup::new()
            .routing("default_backend = \"gpu-9\"")
            .backend("gpu-1", &backend, 1, &["m"]);
    let error = setup.refusal().await;
    assert!(
        error.contains("[routing]: `default_backend` is \"gpu-9\""),
        "{error}"
    );
    assert!(error.contains("[[backends]]"), "{error}");
    assert!(error.contains("line "), "{error}");
}

#[tokio::test]
async fn a_reload_changes_the_default_backend() {
    let (first, second) = (Backend::replying("1").await, Backend::replying("2").await);
    let setup = |default: &str| {
        Setup::new()
            .routing(default)
            .backend("gpu-1", &first, 1, &["m"])
            .backend("gpu-2", &second, 1, &["n"])
    };
    let gateway = setup("default_backend = \"gpu-1\"").start().await;
    gateway.get("/v1/x").answer().await.assert_ok("1");
    gateway.reload(&setup("default_backend = \"gpu-2\""));
    gateway.logs(&["[routing] has changed"]).await;
    gateway.get("/v1/x").answer().await.assert_ok("2");
}

#[tokio::test]
async fn a_models_own_pages_are_below_its_name() {
    let (gateway, first, second) = two("").await;
    for (path, backend, rest) in [
        ("/upstream/m/", &first, "/"),
        ("/upstream/m/slots?x=1", &first, "/slots?x=1"),
        ("/upstream/org/m:7b/v1/models", &first, "/v1/models"),
        ("/upstream/other/props", &second, "/props"),
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let sent = gateway.get(path).method(method.clone()).body("x").send();
            let arrived = backend.next().await;
            assert_eq!(
                (&arrived.head.method, arrived.head.uri.to_string()),
                (&method, rest.to_owned())
            );
            assert_eq!(arrived.body, "x");
            arrived.answer("fine");
            sent.answer().await.assert_ok("fine");
        }
    }
    let moved = gateway.get("/upstream/m?x=1").answer().await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (301, Some("/upstream/m/?x=1"))
    );
    for path in ["/upstream/x/", "/upstream/", "/upstream/org/"] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(404, "model_not_found");
    }
    for path in ["/upstream/m/../x", "/upstream/m//x", "/upstream/m/%2e%2e/x"] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(400, "invalid_path");
    }
}

#[tokio::test]
async fn a_fallback_serves_no_own_pages_of_another_model() {
    let (failing, other) = (Backend::start().await, Backend::replying("other").await);
    let setup = Setup::new()
        .routing("aliases = { other = \"n\", alias = \"gone\" }")
        .routing("fallbacks = { gone = [\"n\"], m = [\"n\"] }")
        .backend("gpu-1", &failing, 1, &["m"])
        .backend("gpu-2", &other, 1, &["n"])
        .sections(&format!(
            "[[backends]]\nname = \"gpu-3\"\nurl = {:?}\nmodels = [{{ name = \"gone\" }}]\n",
            Backend::unreachable()
        ));
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, true, false]);
    gateway.ask("gone").answer().await.assert_ok("other");
    for name in ["gone", "alias"] {
        let page = gateway.get(&format!("/upstream/{name}/adapters/1"));
        let answer = page.method(Method::DELETE).answer().await;
        answer.assert_error(503, "no_healthy_backend");
    }
    let sent = gateway.get("/upstream/m/x").send();
    failing.next().await.respond(status(503));
    assert_eq!(sent.answer().await.status, 503);
    let page = gateway.get("/upstream/other/x").answer().await;
    page.assert_ok("other");
    assert_eq!(other.counts().arrived, 2);
}

#[tokio::test]
async fn configured_prefixes_leave_the_own_pages_of_models_out() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .routing("default_backend = \"gpu-1\"")
        .sections("[server]\npaths = [\"/v1/chat\", \"/own\"]\n")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    gateway.get("/own/page").answer().await.assert_ok("fine");
    gateway.get("/v1/chat/x").answer().await.assert_ok("fine");
    for path in ["/upstream/m/", "/v1/responses/x", "/v1/x?model=m"] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(404, "not_found");
    }
}

#[tokio::test]
async fn tenants_reach_the_pages_of_their_own_models() {
    let backend = Backend::replying("fine").await;
    let tenants = "[[tenants]]\nname = \"a\"\nkeys = [\"sk-a\"]\nmodels = [\"m\"]\n\
                   [[tenants]]\nname = \"b\"\nkeys = [\"sk-b\"]\n";
    let setup = Setup::new().routing("default_backend = \"gpu-1\"").backend(
        "gpu-1",
        &backend,
        1,
        &["m", "n"],
    );
    let gateway = setup.sections(tenants).start().await;
    let get = |key: &str, path: &str| gateway.get(path).header("x-api-key", key).answer();
    for (key, path) in [
        ("sk-a", "/upstream/m/x"),
        ("sk-a", "/v1/x?model=m"),
        ("sk-b", "/upstream/n/x"),
        ("sk-b", "/v1/x?model=n"),
        ("sk-b", "/v1/responses/x"),
    ] {
        get(key, path).await.assert_ok("fine");
    }
    for (path, code) in [
        ("/upstream/n/x", "model_not_found"),
        ("/v1/x?model=n", "model_not_found"),
        ("/v1/responses/x", "not_found"),
    ] {
        get("sk-a", path).await.assert_error(404, code);
    }
    let request = gateway
        .client()
        .post("/tokenize")
        .header("x-api-key", "sk-a");
    let answer = request.body("{}").answer().await;
    answer.assert_error(400, "model_missing");
    get("sk-c", "/upstream/m/x")
        .await
        .assert_error(401, "invalid_api_key");
}

#[tokio::test]
async fn unread_bodies_name_no_model_of_others() {
    let backend = Backend::replying("fine").await;
    let tenants = "[[tenants]]\nname = \"a\"\nkeys = [\"sk-a\"]\nmodels = [\"m\"]\n\
                   [[tenants]]\nname = \"b\"\nkeys = [\"sk-b\"]\n";
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m", "n"]);
    let gateway = setup.sections(tenants).start().await;
    let ask = |key: &str, method: Method, path: &str| {
        let request = gateway.get(path).method(method).header("x-api-key", key);
        request.body("{\"model\":\"n\"}")
    };
    for (method, path) in [
        (Method::POST, "/upstream/m/v1/chat/completions"),
        (Method::POST, "/v1/other/?model=m"),
        (Method::DELETE, "/v1/models/n?model=m"),
        (Method::GET, "/v1/x?model=m"),
        (Method::GET, "/upstream/m/x"),
    ] {
        let refused = ask("sk-a", method.clone(), path).answer().await;
        refused.assert_error(403, "path_not_allowed");
        ask("sk-b", method, path).answer().await.assert_ok("fine");
    }
    let upgrade = ask("sk-a", Method::GET, "/v1/realtime?model=m").header("upgrade", "websocket");
    upgrade.answer().await.assert_error(403, "path_not_allowed");
    let encoded = ask("sk-a", Method::POST, "/v1/%63hat/completions?model=m");
    encoded.answer().await.assert_error(400, "invalid_path");
    assert_eq!(backend.counts().arrived, 5);
}

#[cfg(unix)]
#[tokio::test]
async fn a_models_page_starts_the_model() {
    use crate::swap_support::{model, ready, swap};
    let setup = swap("memory = 1.0").sections(&model("a", &ready("a")));
    let gateway = setup.start().await;
    let answer = gateway.get("/upstream/a/health").answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    gateway.until_state("a", "loaded").await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_models_page_says_that_the_model_could_not_be_started() {
    use crate::swap_support::{model, ready, swap};
    let setup = swap("memory = 2.0")
        .routing("fallbacks = { bad = [\"a\"] }")
        .sections(&model("a", &ready("a")))
        .sections(&model("bad", "sh -c 'exit 1'"));
    let gateway = setup.start().await;
    let answer = gateway.get("/upstream/bad/health").answer().await;
    answer.assert_error(503, "model_start_failed");
}

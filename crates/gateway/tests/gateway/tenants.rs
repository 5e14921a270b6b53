//! Tests of `[[tenants]]`: the keys of clients, and what a tenant may ask for.

use crate::backend::Backend;
use crate::client::{Answer, ClientRequest};
use crate::durable_support::{Folder, id, until};
use crate::process::{Gateway, Setup};

/// The sections of the tenants `a` and `b` with the keys `sk-a` and `sk-b`, and these lines for `a`.
fn tenants(lines: &str) -> String {
    format!(
        "[[tenants]]\nname = \"a\"\nkeys = [\"${{KEY_A}}\"]\n{lines}\n\
         [[tenants]]\nname = \"b\"\nkeys = [\"sk-old\", \"sk-b\"]\n"
    )
}

fn setup(backend: &Backend, slots: u32, lines: &str) -> Setup {
    Setup::new()
        .environment("KEY_A", "sk-a")
        .backend("gpu-1", backend, slots, &["m", "n"])
        .sections(&tenants(lines))
}

/// A request of the tenant with the key `sk-NAME`.
fn of(tenant: &str, request: ClientRequest) -> ClientRequest {
    request.header("authorization", format!("Bearer sk-{tenant}"))
}

#[track_caller]
fn assert_no_key(answer: &Answer) {
    answer.assert_error(401, "invalid_api_key");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn clients_need_a_known_key_in_one_of_three_headers() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "").start().await;
    for (name, value) in [
        ("authorization", "Bearer sk-a"),
        ("authorization", "bearer sk-b"),
        ("x-api-key", "sk-old"),
        ("api-key", "sk-a"),
    ] {
        let answer = gateway.ask("m").header(name, value).answer().await;
        answer.assert_ok("fine");
    }
    assert_no_key(&gateway.ask("m").answer().await);
    for (name, value) in [
        ("authorization", "Bearer sk-c"),
        ("authorization", "sk-a"),
        ("authorization", "Bearer ${KEY_A}"),
        ("x-api-key", "sk-"),
        ("x-tenant-id", "a"),
    ] {
        assert_no_key(&gateway.ask("m").header(name, value).answer().await);
    }
    for page in ["/v1/models", "/running", "/nothing"] {
        assert_no_key(&gateway.get(page).answer().await);
    }
    assert_no_key(&gateway.ask("m").path("/v1/nothing").answer().await);
    assert_eq!(backend.counts().arrived, 4);
    for page in ["/healthz", "/metrics", "/admin/state"] {
        assert_eq!(gateway.get(page).answer().await.status, 200, "{page}");
    }
    assert_eq!(of("a", gateway.get("/running")).answer().await.status, 200);
}

#[tokio::test]
async fn connection_cannot_remove_what_the_gateway_has_verified() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 4, "max_level = \"normal\"").start().await;
    for options in [
        "x-tenant-id,X-Priority",
        "x-hop, X-Tenant-Id, keep-alive, x-priority",
    ] {
        let ask = of("a", gateway.ask("m")).header("connection", options);
        let sent = ask.header("x-priority", "high").header("x-hop", "1").send();
        let arrived = backend.next().await;
        assert_eq!(arrived.header("x-tenant-id"), Some("a"), "{options}");
        assert_eq!(arrived.header("x-priority"), Some("normal"), "{options}");
        let removes_hop = options.contains("x-hop");
        assert_eq!(arrived.header("x-hop").is_none(), removes_hop, "{options}");
        arrived.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn anthropics_paths_have_anthropics_errors() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 1, "paths = [\"/v1/chat\"]").start().await;
    for (key, path, status, kind) in [
        ("sk-c", "/v1/messages", 401, "authentication_error"),
        ("sk-a", "/v1/messages", 403, "permission_error"),
        ("sk-b", "/v1/messages/batches", 404, "not_found_error"),
    ] {
        let answer = gateway
            .ask("m")
            .path(path)
            .header("x-api-key", key)
            .answer()
            .await;
        assert_eq!(answer.status, status, "{answer:?}");
        let error = answer.json();
        assert_eq!(error["type"], "error", "{error}");
        assert_eq!(error["error"]["type"], kind, "{error}");
    }
    let page = gateway.ask("m").path("/v1/messages");
    let page = page.header("origin", "http://evil.example").answer().await;
    assert_eq!(page.json()["error"]["type"], "permission_error");
}

#[tokio::test]
async fn backends_get_the_verified_tenant_and_no_key_of_a_client() {
    let (plain, keyed) = (Backend::start().await, Backend::start().await);
    let lines = "headers = { authorization = \"Bearer own\" }\nmodels = [{ name = \"k\" }]";
    let gateway = setup(&plain, 1, "")
        .backend_with("keyed", &keyed.url(), lines)
        .start()
        .await;
    for (model, backend, own) in [("m", &plain, None), ("k", &keyed, Some("Bearer own"))] {
        let ask = of("a", gateway.ask(model)).header("x-api-key", "sk-b");
        let sent = ask.header("api-key", "other").tenant("b").send();
        let arrived = backend.next().await;
        assert_eq!(arrived.header("authorization"), own);
        for name in ["x-api-key", "api-key"] {
            assert_eq!(arrived.header(name), None, "{name}");
        }
        assert_eq!(arrived.header("x-tenant-id"), Some("a"));
        arrived.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn a_level_above_max_level_is_lowered() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 1, "max_level = \"Normal\"").start().await;
    let first = of("b", gateway.ask("m")).send();
    let running = backend.next().await;
    let lowered = of("a", gateway.ask("m")).high().label("a").send();
    gateway.depth(1).await;
    let high = of("b", gateway.ask("m")).high().label("b").send();
    gateway.depth(2).await;
    running.answer("fine");
    let next = backend.next().await;
    assert_eq!(
        (next.label(), next.header("x-priority")),
        ("b", Some("high"))
    );
    next.answer("fine");
    let last = backend.next().await;
    assert_eq!(
        (last.label(), last.header("x-priority")),
        ("a", Some("normal"))
    );
    last.answer("fine");
    for sent in [first, lowered, high] {
        sent.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn the_default_level_is_lowered_too() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 1, "max_level = \"low\"")
        .queue("priorities = [\"high\", \"normal\", \"low\"]")
        .start()
        .await;
    let sent = of("a", gateway.ask("m")).send();
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-priority"), Some("low"));
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn a_tenant_has_limits_of_its_own() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 4, "concurrency = 1\nmax_size = 1")
        .start()
        .await;
    // The header does not move a request to another tenant's limits.
    let ask = || of("a", gateway.ask("m")).tenant("b");
    let first = ask().send();
    let running = backend.next().await;
    let waiting = ask().send();
    gateway.depth(1).await;
    ask().answer().await.assert_error(429, "tenant_queue_full");
    let other = of("b", gateway.ask("m")).send();
    backend.next().await.answer("b");
    other.answer().await.assert_ok("b");
    running.answer("1");
    backend.next().await.answer("2");
    first.answer().await.assert_ok("1");
    waiting.answer().await.assert_ok("2");
}

/// The names that `/v1/models` lists for a tenant.
async fn listed(gateway: &Gateway, tenant: &str) -> Vec<String> {
    let answer = of(tenant, gateway.get("/v1/models")).answer().await;
    let list = answer.json();
    let models = list["data"].as_array().unwrap().iter();
    models
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_model_of_others_looks_unknown() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "models = [\"m\", \"mine\"]")
        .routing("aliases = { gpt = \"m\", mine = \"n\", theirs = \"n\" }")
        .start()
        .await;
    assert_eq!(listed(&gateway, "a").await, ["m", "gpt", "mine"]);
    assert_eq!(
        listed(&gateway, "b").await,
        ["m", "n", "gpt", "mine", "theirs"]
    );
    for model in ["m", "gpt", "mine"] {
        of("a", gateway.ask(model)).answer().await.assert_ok("fine");
    }
    for model in ["n", "theirs", "none"] {
        let answer = of("a", gateway.ask(model)).tenant("b").answer().await;
        answer.assert_error(404, "model_not_found");
        assert_eq!(answer.message(), format!("Model '{model}' not found"));
    }
    of("b", gateway.ask("n")).answer().await.assert_ok("fine");
}

#[tokio::test]
async fn a_second_model_in_a_query_is_for_tenants_with_all_models() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "models = [\"m\"]").start().await;
    let get = |tenant, path: &str| of(tenant, gateway.get(path)).answer();
    get("a", "/v1/x?model=m").await.assert_ok("fine");
    for query in ["model=m&model=n", "mod%65l=n&model=m", "model=m;MODEL=n"] {
        let path = format!("/v1/x?{query}");
        get("a", &path).await.assert_error(403, "path_not_allowed");
    }
    get("a", "/upstream/m/x?model=n")
        .await
        .assert_error(403, "path_not_allowed");
    get("b", "/v1/x?model=m&model=n").await.assert_ok("fine");
}

#[tokio::test]
async fn a_tenant_with_paths_may_use_no_others() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "paths = [\"/v1/chat\", \"/v1/models\"]")
        .start()
        .await;
    of("a", gateway.ask("m")).answer().await.assert_ok("fine");
    assert_eq!(
        of("a", gateway.get("/v1/models")).answer().await.status,
        200
    );
    let ask = |tenant| of(tenant, gateway.ask("m").path("/v1/embeddings"));
    ask("a")
        .answer()
        .await
        .assert_error(403, "path_not_allowed");
    ask("b").answer().await.assert_ok("fine");
    of("a", gateway.get("/models"))
        .answer()
        .await
        .assert_error(403, "path_not_allowed");
}

#[tokio::test]
async fn stored_requests_are_those_of_their_tenant() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder
        .setup("", &backend)
        .environment("KEY_A", "sk-a")
        .sections(&tenants(
            "models = [\"m\"]\npaths = [\"/v1/chat\", \"/requests\"]",
        ))
        .start()
        .await;
    let stored = |model| of("a", gateway.ask(model)).header("prefer", "respond-async");
    let receipt = stored("m").tenant("b").answer().await;
    let page = format!("/requests/{}", id(&receipt));
    assert_no_key(&gateway.get(&page).answer().await);
    assert_eq!(of("a", gateway.get(&page)).answer().await.status, 200);
    assert_eq!(
        of("b", gateway.get(&page))
            .tenant("a")
            .answer()
            .await
            .status,
        404
    );
    stored("n")
        .answer()
        .await
        .assert_error(404, "model_not_found");
    stored("m")
        .path("/v1/embeddings")
        .answer()
        .await
        .assert_error(403, "path_not_allowed");

    let shown = gateway.admin().get("/admin/requests").answer().await.json();
    assert_eq!(shown["data"][0]["tenant"], "a", "{shown}");
}

#[tokio::test]
async fn no_key_is_logged_or_shown() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "")
        .environment("TRIAGE_LOG", "trace")
        .start()
        .await;
    of("a", gateway.ask("m")).answer().await.assert_ok("fine");
    assert_no_key(&of("wrong", gateway.ask("m")).answer().await);
    gateway
        .logs(&["path=\"/v1/chat/completions\"", "status=401"])
        .await;
    let mut shown = gateway.log_lines();
    shown.push(gateway.state().await.0.to_string());
    for key in ["sk-a", "sk-b", "sk-old", "sk-wrong"] {
        assert!(
            !shown.iter().any(|line| line.contains(key)),
            "{key}: {shown:?}"
        );
    }
}

#[tokio::test]
async fn without_tenants_the_log_says_that_headers_are_believed() {
    let backend = Backend::replying("fine").await;
    let plain = || Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = plain().start().await;
    let words = ["no [[tenants]]", "x-priority and x-tenant-id"];
    let line = gateway.logs(&words).await;
    assert!(line.contains(" INFO "), "{line}");
    let gateway = plain().listen("0.0.0.0:0").start().await;
    let line = gateway.logs(&words).await;
    assert!(line.contains(" WARN "), "{line}");
    let gateway = setup(&backend, 1, "").start().await;
    gateway.ask("m").answer().await;
    gateway.logs(&["status=401"]).await;
    assert_eq!(gateway.logged("no [[tenants]]"), 0);
}

/// Each of these bodies names the model `n` to some server, and `m`, or no model, to others.
#[tokio::test]
async fn no_spelling_gets_a_tenant_another_model() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "models = [\"m\"]").start().await;
    let part = |header: &str, content: &str| {
        format!("--XX\r\nContent-Disposition: form-data; {header}\r\n\r\n{content}\r\n")
    };
    let named = part("name=\"model\"", "m");
    let json = "{\"model\":\"m\"}";
    let form = "multipart/form-data; boundary=XX";
    let whole = |parts: &str| format!("{parts}--XX--\r\n");
    for (kind, body, status) in [
        (
            "application/json; charset=utf-7",
            "{\"+AG0-odel\":\"n\",\"model\":\"m\"}".to_owned(),
            415,
        ),
        ("application/json; charset=utf-16", json.to_owned(), 415),
        ("multipart/mixed; boundary=XX", whole(&named), 415),
        (
            "multipart/form-data; boundary=XX; charset=utf-7",
            whole(&(part("name=\"+AG0-odel\"", "n") + &named)),
            415,
        ),
        (
            "multipart/form-data; boundary=XX; boundary=YY",
            whole(&named),
            415,
        ),
        (form, whole(&(part("name=\"model \"", "n") + &named)), 400),
        (
            form,
            whole(&(named.clone() + &part("name=\"Model\"", "n"))),
            400,
        ),
        (form, whole(&(part("name=\"model[]\"", "n") + &named)), 400),
        (
            form,
            whole(&(part("name=\"_charset_\"", "utf-7") + &named)),
            400,
        ),
        (
            form,
            whole(&(named.clone() + &part("name=\"model\"; filename=\"x\"", "n"))),
            400,
        ),
        (form, whole(&named) + &part("name=\"model\"", "n"), 400),
        (
            form,
            whole(
                &(part(
                    "name=\"x\"",
                    "a--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nn",
                ) + &named),
            ),
            400,
        ),
    ] {
        let post = gateway.client().post("/v1/audio/transcriptions");
        let ask = of("a", post.header("content-type", kind));
        let answer = ask.body(body.clone()).answer().await;
        assert_eq!(answer.status, status, "{kind}: {body}: {answer:?}");
    }
    for query in ["model=n", "x=1&mod%65l=n", "model=m&MODEL=n", "model[]=n"] {
        let ask = of(
            "a",
            gateway
                .ask("m")
                .path(&format!("/v1/chat/completions?{query}")),
        );
        ask.answer().await.assert_error(404, "model_not_found");
    }
    assert_eq!(backend.counts().arrived, 0);
    let both = gateway.ask("m").path("/v1/chat/completions?model=m");
    of("a", both).answer().await.assert_ok("fine");
    let utf_8 = gateway.client().post("/v1/chat/completions").body(json);
    let utf_8 = utf_8.header("content-type", "application/json; charset=UTF-8");
    of("a", utf_8).answer().await.assert_ok("fine");
}

#[tokio::test]
async fn the_level_that_was_found_is_the_only_one_that_backends_get() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 4, "max_level = \"normal\"").start().await;
    for (levels, expected) in [
        (&[][..], "normal"),
        (&["normal", "high"], "normal"),
        (&["normal, high"], "normal"),
        (&["urgent"], "normal"),
        (&["NORMAL"], "normal"),
    ] {
        let mut ask = of("a", gateway.ask("m"));
        for level in levels {
            ask = ask.header("x-priority", level);
        }
        let ask = ask.header("x_priority", "high").header("x_tenant_id", "b");
        let ask = ask.header("x_api_key", "k").header("session_id", "s");
        let sent = ask.send();
        let arrived = backend.next().await;
        let got: Vec<_> = arrived.head.headers.get_all("x-priority").iter().collect();
        assert_eq!(got, [expected], "{levels:?}");
        for name in ["x_priority", "x_tenant_id", "x_api_key"] {
            assert_eq!(arrived.header(name), None, "{name}");
        }
        assert_eq!(arrived.header("session_id"), Some("s"));
        arrived.answer("fine");
        sent.answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn clients_with_keys_cannot_forge_their_way_here() {
    let backend = Backend::start().await;
    let gateway = setup(&backend, 4, "").start().await;
    let ask = of("a", gateway.ask("m")).header("x-forwarded-host", "evil.example");
    let ask = ask
        .header("x-forwarded-proto", "https")
        .header("forwarded", "for=1.2.3.4");
    let sent = ask.header("x_forwarded_host", "evil.example").send();
    let arrived = backend.next().await;
    let host = gateway.addr().to_string();
    assert_eq!(arrived.header("x-forwarded-host"), Some(&*host));
    assert_eq!(arrived.header("x-forwarded-proto"), Some("http"));
    let forwarded = format!("for=127.0.0.1;host=\"{host}\";proto=http");
    assert_eq!(arrived.header("forwarded"), Some(&*forwarded));
    assert_eq!(arrived.header("x_forwarded_host"), None);
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn trace_and_connect_show_no_backends_key() {
    let backend = Backend::replying("fine").await;
    let gateway = setup(&backend, 4, "")
        .routing("default_backend = \"gpu-1\"")
        .start()
        .await;
    for path in ["/v1/x?model=m", "/upstream/m/x", "/v1/x", "/nothing"] {
        let trace = of("b", gateway.get(path).method(http::Method::TRACE));
        let answer = trace.answer().await;
        answer.assert_error(405, "unsupported_method");
        assert!(answer.header("allow").is_some(), "{answer:?}");
    }
    assert_eq!(backend.counts().arrived, 0);
}

/// The stored requests of a tenant that is gone may not do more than they could before.
#[tokio::test]
async fn stored_requests_of_a_removed_tenant_do_not_run() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let with = |sections: &str| {
        let setup = folder.setup("", &backend).environment("KEY_A", "sk-a");
        setup.sections(sections)
    };
    let gateway = with(&tenants("models = [\"m\"]")).start().await;
    let stored = |label| {
        let ask = of("a", gateway.ask("m")).header("prefer", "respond-async");
        ask.label(label)
    };
    stored("running").answer().await;
    let running = backend.next().await;
    let waiting = id(&stored("waiting").answer().await);
    let other = "[[tenants]]\nname = \"b\"\nkeys = [\"sk-b\"]\n";
    gateway.reload(&with(other));
    gateway.logs(&["INFO", "tenants removed: a"]).await;
    running.answer("fine");
    let ended = until(gateway.admin(), &waiting, &["failed"]).await;
    assert_eq!(ended["response_status"], 404, "{ended}");
    assert_eq!(backend.counts().arrived, 1);
}

//! Tests of `[server] paths`, and of paths that servers could read differently.

use crate::backend::Backend;
use crate::process::{Gateway, Setup};

async fn gateway(backend: &Backend, server: &str) -> Gateway {
    let setup = Setup::new().backend("gpu-1", backend, 4, &["m"]);
    setup
        .sections(&format!("[server]\n{server}\n"))
        .start()
        .await
}

#[tokio::test]
async fn by_default_the_paths_of_known_apis_reach_backends() {
    let backend = Backend::replying("fine").await;
    let gateway = gateway(&backend, "").await;
    for path in [
        "/v1/chat/completions",
        "/v1/embeddings?x=/../y",
        "/v1/messages",
        "/api/chat",
        "/rerank",
    ] {
        gateway.ask("m").path(path).answer().await.assert_ok("fine");
    }
    let arrived = backend.counts().arrived;
    for path in [
        "/",
        "/v1/load_lora_adapter",
        "/apis/delete",
        "/v1/chat/completions/x",
    ] {
        let answer = gateway.ask("m").path(path).answer().await;
        answer.assert_error(404, "not_found");
        assert!(
            answer.message().contains("`paths` of [server]"),
            "{answer:?}"
        );
    }
    assert_eq!(backend.counts().arrived, arrived);
}

#[tokio::test]
async fn prefixes_name_the_paths_that_reach_backends() {
    let backend = Backend::replying("fine").await;
    let gateway = gateway(&backend, "paths = [\"/v1/chat\", \"/own/\"]").await;
    for path in ["/v1/chat", "/v1/chat/completions", "/own/x/y"] {
        gateway.ask("m").path(path).answer().await.assert_ok("fine");
    }
    for path in ["/v1/embeddings", "/v1/chats", "/owner"] {
        gateway
            .ask("m")
            .path(path)
            .answer()
            .await
            .assert_error(404, "not_found");
    }
    assert_eq!(gateway.get("/v1/models").answer().await.status, 200);
}

#[tokio::test]
async fn bodies_without_a_model_reach_the_default_backend_at_any_allowed_path() {
    let (named, default) = (Backend::replying("m").await, Backend::replying("n").await);
    let part = "Content-Disposition: form-data; name=\"file\"; filename=\"a\"";
    let form = format!("--b\r\n{part}\r\n\r\n{}\r\n--b--\r\n", "x".repeat(2_000));
    for paths in ["\"apis\"", "[\"/v1\"]", "\"all\""] {
        let setup = |routing: &str| {
            Setup::new()
                .top("body_limit_bytes = 1000")
                .sections(&format!("[server]\npaths = {paths}\n"))
                .routing(routing)
                .backend("gpu-1", &named, 4, &["m"])
                .backend("gpu-2", &default, 4, &["n"])
        };
        let gateway = setup("default_backend = \"gpu-2\"").start().await;
        for (path, content_type, body) in [
            ("/v1/responses/resp_1/cancel", "application/json", ""),
            ("/v1/realtime/calls", "application/sdp", "v=0"),
            ("/v1/uploads/u1/raw", "application/octet-stream", "\u{0}{"),
            ("/v1/files", "multipart/form-data; boundary=b", &form),
        ] {
            let ask = gateway.client().post(path).body(body.to_owned());
            let answer = ask.header("content-type", content_type).answer().await;
            answer.assert_ok("n");
        }
        if paths != "\"apis\"" {
            let ask = gateway.ask("m").path("/v1/files").answer().await;
            ask.assert_ok("m");
            let bare = gateway.client().post("/v1/files").body("{\"model\":\"m\"}");
            bare.answer().await.assert_ok("m");
            let broken = gateway.client().post("/v1/files").body("{");
            broken.answer().await.assert_error(400, "malformed_body");
        }
        let known = gateway.client().post("/v1/chat/completions").body("{");
        let known = known.header("content-type", "text/plain").answer().await;
        known.assert_error(400, "malformed_body");
        drop(gateway);
        let gateway = setup("").start().await;
        let none = gateway.client().post("/v1/files").body("").answer().await;
        let expected = match paths {
            "\"apis\"" => (404, "not_found"),
            _ => (400, "malformed_body"),
        };
        none.assert_error(expected.0, expected.1);
    }
}

#[tokio::test]
async fn forms_name_a_model_at_any_allowed_path_without_a_default_backend() {
    let backend = Backend::replying("fine").await;
    let tenants = "[[tenants]]\nname = \"a\"\nkeys = [\"sk-a\"]\nmodels = [\"m\"]\n";
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
    for (routing, tenants) in [("", ""), ("default_backend = \"gpu-1\"", tenants)] {
        let setup = Setup::new()
            .sections("[server]\npaths = \"all\"\n")
            .sections(tenants)
            .routing(routing)
            .backend("gpu-1", &backend, 4, &["m"]);
        let gateway = setup.start().await;
        let ask = gateway
            .client()
            .post("/v1/other")
            .header("x-api-key", "sk-a");
        let ask = ask.header("content-type", "multipart/form-data; boundary=b");
        ask.body(form).answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn ambiguous_paths_reach_no_backend() {
    let backend = Backend::replying("fine").await;
    let gateway = gateway(&backend, "paths = \"all\"").await;
    gateway
        .ask("m")
        .path("/any/path/")
        .answer()
        .await
        .assert_ok("fine");
    for path in [
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/../admin",
        "/v1/chat/..",
        "/v1/./chat",
        "/v1/%2e%2E/admin",
        "/v1/.%2e/admin",
        "/v1/..;/admin",
        "/v1/.;x/chat",
        "/v1/..%3b/admin",
        "/v1/chat%2fcompletions",
        "/v1/chat%5Ccompletions",
        "/v1/chat%00",
        "/v1/chat%0a",
    ] {
        let answer = gateway.ask("m").path(path).answer().await;
        answer.assert_error(400, "invalid_path");
        let page = gateway.get(path).answer().await;
        page.assert_error(400, "invalid_path");
    }
    let answer = gateway.ask("m").path("/v1/messages/../x").answer().await;
    assert_eq!(
        (answer.status, &*answer.json()["type"].to_string()),
        (400, "\"error\"")
    );
    assert_eq!(backend.counts().arrived, 1);
}

#[tokio::test]
async fn stored_requests_are_for_allowed_paths() {
    use crate::durable_support::Folder;
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder.setup("", &backend).start().await;
    let ask = gateway.ask("m").header("prefer", "respond-async");
    let answer = ask.path("/v1/load_lora_adapter").answer().await;
    answer.assert_error(404, "not_found");
}

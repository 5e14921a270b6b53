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
        "/api/delete",
        "/v1/chat/completions/",
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

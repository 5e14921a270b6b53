//! Limits on the bytes and files that a tenant stores, and on their age.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::backend::Backend;
use crate::client::Answer;
use crate::durable_support::Folder;
use crate::process::{Gateway, Setup};
use crate::redis_server::Server;

const TENANTS: &str = "[[tenants]]\nname = \"small\"\nkeys = [\"s\"]\nstored_bytes = 100000\nstored_files = 3\n\
                       [[tenants]]\nname = \"other\"\nkeys = [\"o\"]\n";

fn setup(folder: &Folder, durable: &str, backend: &Backend) -> Setup {
    folder.setup(durable, backend).sections(TENANTS)
}

async fn upload(gateway: &Gateway, key: &str, bytes: usize) -> Answer {
    let disposition = "content-disposition: form-data";
    let content = "x".repeat(bytes);
    let form = format!(
        "--b\r\n{disposition}; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n{disposition}; name=\"file\"; \
         filename=\"in.jsonl\"\r\n\r\n{content}\r\n--b--\r\n"
    );
    let upload = gateway.client().post("/v1/files").body(form);
    let upload = upload.header("content-type", "multipart/form-data; boundary=b");
    upload.header("x-api-key", key).answer().await
}

async fn uploaded(gateway: &Gateway, key: &str, bytes: usize) -> Value {
    let answer = upload(gateway, key, bytes).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn store(gateway: &Gateway, key: &str, bytes: usize) -> Answer {
    let body = json!({ "model": "m", "messages": "x".repeat(bytes) });
    let request = gateway.client().post("/v1/chat/completions");
    let request = request.body(body.to_string()).header("x-api-key", key);
    let request = request.header("content-type", "application/json");
    request.header("prefer", "respond-async").answer().await
}

async fn delete(gateway: &Gateway, key: &str, file: &Value) {
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    let delete = gateway.client().get(&path).method(http::Method::DELETE);
    let deleted = delete.header("x-api-key", key).answer().await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
}

#[tokio::test]
async fn a_tenant_stores_as_many_bytes_as_it_may() {
    let (backend, folder) = (Backend::start().await, Folder::new());
    let gateway = setup(&folder, "", &backend).start().await;
    let first = uploaded(&gateway, "s", 60_000).await;
    let refused = upload(&gateway, "s", 60_000).await;
    refused.assert_error(413, "tenant_storage_full");
    assert!(
        refused.message().contains("DELETE /v1/files/"),
        "{refused:?}"
    );
    let refused = store(&gateway, "s", 60_000).await;
    refused.assert_error(429, "tenant_storage_full");
    assert!(refused.header("retry-after").is_some());
    // Others are not concerned, and what is deleted is free at once.
    uploaded(&gateway, "o", 200_000).await;
    assert_eq!(store(&gateway, "o", 200_000).await.status, 202);
    delete(&gateway, "s", &first).await;
    assert_eq!(store(&gateway, "s", 60_000).await.status, 202);
    let refused = upload(&gateway, "s", 60_000).await;
    refused.assert_error(413, "tenant_storage_full");
    uploaded(&gateway, "s", 10_000).await;
}

fn on_redis(redis: &Server, backend: &Backend, tenants: &str) -> Setup {
    let durable = format!(
        "[durable]\nstore = \"redis\"\nurl = {:?}\nretention_seconds = 1\n{tenants}",
        redis.url()
    );
    let setup = Setup::new().backend("gpu-1", backend, 1, &["m"]);
    setup.top("body_limit_bytes = 20000000").sections(&durable)
}

#[tokio::test]
async fn gateways_on_one_redis_count_the_bytes_of_a_tenant_together() {
    let (backend, redis) = (Backend::start().await, Server::start());
    let one = on_redis(&redis, &backend, TENANTS).start().await;
    let other = on_redis(&redis, &backend, TENANTS).start().await;
    let first = store(&one, "s", 60_000).await;
    assert_eq!(first.status, 202);
    let refused = store(&other, "s", 60_000).await;
    refused.assert_error(429, "tenant_storage_full");
    assert!(refused.header("retry-after").is_some());
    let refused = upload(&other, "s", 60_000).await;
    refused.assert_error(413, "tenant_storage_full");
    assert_eq!(store(&other, "o", 200_000).await.status, 202);
    // It is forgotten a second after its end.
    for _ in 0..2 {
        backend.next().await.answer("fine");
    }
    while store(&other, "s", 60_000).await.status != 202 {
        sleep(Duration::from_millis(100)).await;
    }
}

/// A large part of what the Redis of a test holds.
const LARGE: usize = 15_000_000;

/// Stores requests until a tenant is full, and returns their number.
async fn until_refused(mut store: impl AsyncFnMut() -> Answer) -> usize {
    let mut stored = 0;
    loop {
        let answer = store().await;
        if answer.status != 202 {
            answer.assert_error(429, "tenant_storage_full");
            return stored;
        }
        stored += 1;
    }
}

#[tokio::test]
async fn a_tenant_does_not_fill_a_redis_with_a_limit() {
    let backend = Backend::start().await;
    let redis = Server::with(&["--maxmemory", "256mb"]);
    let gateway = on_redis(&redis, &backend, TENANTS).start().await;
    let stored = until_refused(async || store(&gateway, "o", LARGE).await).await;
    // About a third of 256 MiB.
    assert!((2..=8).contains(&stored), "{stored}");
    assert_eq!(store(&gateway, "s", 60_000).await.status, 202);
    // A tenant may also be named by a proxy in front.
    let gateway = on_redis(&redis, &backend, "").start().await;
    let ask = |tenant, bytes| {
        let body = json!({ "model": "m", "messages": "x".repeat(bytes) });
        let request = gateway.ask("m").tenant(tenant).body(body.to_string());
        request.header("prefer", "respond-async").answer()
    };
    until_refused(async || ask("other", LARGE).await).await;
    assert_eq!(ask("third", 60_000).await.status, 202);
    assert_eq!(ask("", 60_000).await.status, 202);
}

#[tokio::test]
async fn a_tenant_stores_as_many_files_as_it_may() {
    let (backend, folder) = (Backend::start().await, Folder::new());
    let gateway = setup(&folder, "", &backend).start().await;
    let mut last = Value::Null;
    for _ in 0..3 {
        last = uploaded(&gateway, "s", 1).await;
    }
    let refused = upload(&gateway, "s", 1).await;
    refused.assert_error(413, "tenant_files_full");
    assert!(
        refused.message().contains("DELETE /v1/files/"),
        "{refused:?}"
    );
    for _ in 0..5 {
        uploaded(&gateway, "o", 1).await;
    }
    delete(&gateway, "s", &last).await;
    uploaded(&gateway, "s", 1).await;
}

#[tokio::test]
async fn a_file_without_an_end_expires_after_its_retention() {
    for (durable, seconds) in [("", 2_592_000), ("file_retention_seconds = 7200", 7_200)] {
        let (backend, folder) = (Backend::start().await, Folder::new());
        let gateway = setup(&folder, durable, &backend).start().await;
        let file = uploaded(&gateway, "o", 1).await;
        let created = file["created_at"].as_u64().unwrap();
        assert_eq!(file["expires_at"], created + seconds);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_reads_the_folder_of_stored_requests() {
    use std::os::unix::fs::PermissionsExt;
    let backend = Backend::start().await;
    for is_there in [false, true] {
        let folder = Folder::new();
        if is_there {
            std::fs::create_dir(folder.path()).unwrap();
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let _gateway = setup(&folder, "", &backend).start().await;
        let mode = std::fs::metadata(folder.path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

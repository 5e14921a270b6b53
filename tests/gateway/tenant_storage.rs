//! Limits on the bytes and files that a tenant stores, and on their age.

use serde_json::{Value, json};

use crate::backend::Backend;
use crate::client::Answer;
use crate::durable_support::Folder;
use crate::process::{Gateway, Setup};

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
    let (backend, folder) = (Backend::start().await, Folder::new());
    let _gateway = setup(&folder, "", &backend).start().await;
    let mode = std::fs::metadata(folder.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

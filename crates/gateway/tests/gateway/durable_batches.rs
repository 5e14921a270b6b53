//! Tests of batches and webhooks through the gateway.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::durable_support::{Folder, id, stored};
use crate::process::{Gateway, TIMEOUT};

/// Uploads an input file with these lines; returns the answer.
async fn upload(gateway: &Gateway, lines: &[Value]) -> Value {
    upload_by(gateway, "", lines).await
}

/// Uploads an input file as the client with this key.
async fn upload_by(gateway: &Gateway, key: &str, lines: &[Value]) -> Value {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let disposition = "content-disposition: form-data";
    let form = format!(
        "--b\r\n{disposition}; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n{disposition}; name=\"file\"; \
         filename=\"in.jsonl\"\r\n\r\n{}\n\r\n--b--\r\n",
        lines.join("\n")
    );
    let upload = gateway.client().post("/v1/files").body(form);
    let upload = upload.header("content-type", "multipart/form-data; boundary=b");
    let upload = upload.header("x-api-key", key);
    let answer = upload.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn line(model: &str, number: u32) -> Value {
    json!({ "custom_id": format!("line-{number}"), "method": "POST", "url": "/v1/chat/completions",
            "body": { "model": model, "n": number } })
}

/// Creates a batch of this file; returns its id.
async fn create(gateway: &Gateway, file: &Value) -> String {
    create_by(gateway, "", file).await
}

/// Creates a batch of this file as the client with this key; returns its id.
async fn create_by(gateway: &Gateway, key: &str, file: &Value) -> String {
    let batch = json!({ "input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h" });
    let create = gateway.client().post("/v1/batches").body(batch.to_string());
    let answer = create
        .header("content-type", "application/json")
        .header("x-api-key", key)
        .answer()
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn until_batch(gateway: &Gateway, id: &str, status: &str) -> Value {
    until_batch_by(gateway, "", id, status).await
}

async fn until_batch_by(gateway: &Gateway, key: &str, id: &str, status: &str) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let batch = gateway
            .get(&format!("/v1/batches/{id}"))
            .header("x-api-key", key)
            .answer()
            .await
            .json();
        if batch["status"] == status {
            return batch;
        }
        assert!(Instant::now() < end, "never {status}: {batch}");
        sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn batch_runs_behind_online_requests_and_is_read_as_a_file() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let online = gateway.ask("m").label("online").send();
    let running = backend.next().await;
    let file = upload(&gateway, &[line("m", 1), line("m", 2)]).await;
    assert_eq!(file["purpose"], "batch");
    let batch = create(&gateway, &file).await;
    gateway.depth(1).await; // the worker waits for the slot
    let urgent = gateway.ask("m").label("urgent").send();
    gateway.depth(2).await;
    running.answer("");
    assert_eq!(online.answer().await.status, 200);
    let next = backend.next().await;
    assert_eq!(next.label(), "urgent");
    next.answer("");
    assert_eq!(urgent.answer().await.status, 200);
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let arrived = backend.next().await;
        let body: Value = serde_json::from_slice(&arrived.body).unwrap();
        numbers.push(body["n"].as_u64().unwrap());
        arrived.answer("{}");
    }
    assert_eq!(numbers, [1, 2]);
    let batch = until_batch(&gateway, &batch, "completed").await;
    assert_eq!(
        batch["request_counts"],
        json!({ "total": 2, "completed": 2, "failed": 0 })
    );
    let output = batch["output_file_id"].as_str().unwrap();
    let output = gateway
        .get(&format!("/v1/files/{output}/content"))
        .answer()
        .await;
    let lines = output.text().lines().map(serde_json::from_str::<Value>);
    let mut ids: Vec<_> = lines
        .map(|line| line.unwrap()["custom_id"].to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["\"line-1\"", "\"line-2\""]);
    let listed = gateway.get("/requests").answer().await.json();
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn batch_with_an_unknown_model_runs_no_line() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let file = upload(&gateway, &[line("m", 1), line("gpt-5", 2)]).await;
    let batch = create(&gateway, &file).await;
    let batch = until_batch(&gateway, &batch, "failed").await;
    assert_eq!(batch["errors"]["data"][0]["line"], 2);
    assert_eq!(batch["errors"]["data"][0]["code"], "model_not_found");
    let foreign = gateway.get(&format!("/v1/batches/{}", batch["id"].as_str().unwrap()));
    assert_eq!(foreign.tenant("b").answer().await.status, 404);
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn batch_for_an_endpoint_that_nobody_serves_is_refused() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let tenant = "[[tenants]]\nname = \"a\"\nkeys = [\"k\"]\npaths = [\"/v1/files\", \"/v1/batches\", \"/v1/embeddings\"]";
    let gateway = folder.setup("", &backend).sections(tenant).start().await;
    let file = upload_by(&gateway, "k", &[line("m", 1)]).await;
    for (endpoint, status) in [
        ("/v1/nope", 400),
        ("/v1/chat/completions", 400), // not for this tenant
        ("/v1/embeddings", 200),
    ] {
        let batch = json!({ "input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h" });
        let create = gateway.client().post("/v1/batches").body(batch.to_string());
        let create = create.header("content-type", "application/json");
        let answer = create.header("x-api-key", "k").answer().await;
        assert_eq!(answer.status, status, "{endpoint}: {answer:?}");
        if status == 400 {
            answer.assert_error(400, "invalid_endpoint");
        }
    }
}

#[tokio::test]
async fn options_of_stored_requests_are_refused_where_nothing_is_stored() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let file = upload(&gateway, &[line("m", 1)]).await;
    let batch = json!({ "input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h" });
    let json = "application/json";
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
    let of_form = "multipart/form-data; boundary=b";
    for (path, content_type, body) in [
        ("/v1/batches", json, batch.to_string()),
        ("/v1/audio/transcriptions", of_form, form.to_owned()),
        ("/upstream/m/v1/chat/completions", json, "{}".to_owned()),
        ("/v1/other?model=m", json, "{}".to_owned()),
    ] {
        for (option, value) in [
            ("idempotency-key", "k"),
            ("not-before", "60"),
            ("cancel-after", "60"),
        ] {
            let ask = gateway.client().post(path).body(body.clone());
            let ask = ask.header("content-type", content_type);
            let answer = ask.header(option, value).answer().await;
            answer.assert_error(400, "unsupported_header");
            assert!(answer.message().contains(option), "{answer:?}");
        }
    }
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn webhook_tells_the_end_of_a_request() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let receiver = Backend::start().await;
    let secret = "webhook_secret = \"whsec_${KEY}\"\nwebhook_allow_private = true";
    let setup = folder.setup(secret, &backend);
    let setup = setup.environment("KEY", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let gateway = setup.start().await;
    let url = format!("{}/told", receiver.url());
    let asked = stored(gateway.client(), "").header("webhook-url", &url);
    let id = id(&asked.answer().await);
    let told = receiver.next().await;
    assert_eq!(told.head.uri.path(), "/told");
    for header in ["webhook-id", "webhook-timestamp"] {
        assert!(told.header(header).is_some(), "{header}");
    }
    assert!(told.header("webhook-signature").unwrap().starts_with("v1,"));
    assert!(String::from_utf8_lossy(&told.body).contains(&id));
    told.answer("");
    assert_eq!(gateway.logged("MfKQ9r8"), 0);
}

#[tokio::test]
async fn webhook_tells_the_end_of_a_batch() {
    let (folder, backend) = (Folder::new(), Backend::replying("{}").await);
    let receiver = Backend::start().await;
    let secret =
        "webhook_secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nwebhook_allow_private = true";
    let gateway = folder.setup(secret, &backend).start().await;
    let file = upload(&gateway, &[line("m", 1)]).await;
    let batch = json!({ "input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h" });
    let create = || gateway.client().post("/v1/batches").body(batch.to_string());
    let url = format!("{}/told", receiver.url());
    let created = create().header("webhook-url", &url).answer().await.json();
    let told = receiver.next().await;
    assert_eq!(told.head.uri.path(), "/told");
    assert_eq!(told.header("webhook-id"), created["id"].as_str());
    let object: Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!(
        (&object["id"], &object["status"]),
        (&created["id"], &"completed".into())
    );
    assert!(object["output_file_id"].is_string(), "{object}");
    told.answer("");
    let odd = create().header("webhook-url", "nowhere").answer().await;
    odd.assert_error(400, "invalid_webhook_url");
}

#[tokio::test]
async fn webhook_to_a_private_address_is_refused() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let secret = "webhook_secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";
    for lines in ["", secret] {
        let gateway = folder.setup(lines, &backend).start().await;
        for url in ["http://127.0.0.1:9/", "http://10.0.0.1/"] {
            let asked = stored(gateway.client(), "").header("webhook-url", url);
            asked
                .answer()
                .await
                .assert_error(400, "webhook_not_allowed");
        }
        let mut gateway = gateway;
        gateway.signal("TERM");
        assert!(gateway.exit().await.success());
    }
}

#[tokio::test]
async fn lines_of_a_batch_have_the_models_and_paths_of_their_tenant() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let lines = "headers = { x-own = \"1\" }\nmodels = [{ name = \"n\" }]";
    let tenant = |name: &str, rest: &str| {
        format!("[[tenants]]\nname = \"{name}\"\nkeys = [\"sk-{name}\"]\n{rest}\n")
    };
    let gateway = folder
        .setup("", &backend)
        .backend_with("gpu-2", &backend.url(), lines)
        .sections(&tenant("a", "models = [\"m\"]"))
        .sections(&tenant("b", "paths = [\"/v1/files\", \"/v1/batches\"]"))
        .start()
        .await;
    let file = upload_by(&gateway, "sk-a", &[line("n", 1)]).await;
    let id = create_by(&gateway, "sk-a", &file).await;
    let batch = until_batch_by(&gateway, "sk-a", &id, "failed").await;
    assert_eq!(batch["errors"]["data"][0]["line"], 1, "{batch}");
    let file = upload_by(&gateway, "sk-a", &[line("m", 1)]).await;
    let id = create_by(&gateway, "sk-a", &file).await;
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-tenant-id"), Some("a"));
    assert_eq!(arrived.header("x-api-key"), None);
    arrived.answer("");
    until_batch_by(&gateway, "sk-a", &id, "completed").await;
    let page = gateway.get(&format!("/v1/batches/{id}"));
    assert_eq!(page.header("x-api-key", "sk-b").answer().await.status, 404);
    assert_eq!(backend.counts().arrived, 1);
}

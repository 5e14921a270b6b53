//! Files: their shapes, bounds and owners.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{World, lines, new_batch, upload};

#[tokio::test(start_paused = true)]
async fn a_file_has_the_shape_of_openais() {
    let world = World::fast();
    let id = world.upload("hello\n").await;
    let file = world.get(&format!("/v1/files/{id}")).await;
    assert!(id.starts_with("file-"), "{id}");
    let created_at = file["created_at"].as_u64().unwrap();
    let expected = json!({
        "id": id, "object": "file", "bytes": 6, "created_at": created_at, "filename": "in.jsonl",
        "purpose": "batch", "status": "processed", "status_details": null, "expires_at": null,
    });
    assert_eq!(file, expected);
    let list = world.get("/v1/files").await;
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"], json!([expected]));
    let content = Request::get(format!("/v1/files/{id}/content")).body(Full::default());
    let content = world.send("a", content.unwrap()).await;
    assert_eq!(content.body(), "hello\n");
    assert_eq!(content.headers()["content-length"], "6");
    let (status, deleted) = world
        .ask("DELETE", &format!("/v1/files/{id}"), Value::Null)
        .await;
    assert_eq!(
        (status.as_u16(), deleted),
        (200, json!({ "id": id, "object": "file", "deleted": true }))
    );
    let (status, error) = world
        .ask("GET", &format!("/v1/files/{id}"), Value::Null)
        .await;
    assert_eq!(
        (status.as_u16(), &error["error"]["code"]),
        (404, &json!("file_not_found"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_of_several_pieces_reads_back() {
    let world = World::fast();
    let content: String = (0..400_000).map(|number| format!("{number}\n")).collect();
    let id = world.upload(&content).await;
    let read = Request::get(format!("/v1/files/{id}/content")).body(Full::default());
    assert!(world.send("a", read.unwrap()).await.body() == content.as_bytes());
    assert!(content.len() > 2 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_too_large_is_not_kept() {
    let world = World::fast();
    let response = world.send("a", upload("batch", &"x".repeat(9 << 20))).await;
    assert_eq!(response.status(), 413);
    let error: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(error["error"]["code"], "file_too_large");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for prefix in ["pieces/", "uploads/", "files/"] {
        let kept = world.store.values(prefix, None, 1).await.unwrap();
        assert!(kept.is_empty(), "{prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_upload_names_its_mistake() {
    let world = World::fast();
    let no_form = Request::post("/v1/files").body(Full::from("{}")).unwrap();
    let mut broken_off = upload("batch", "x");
    *broken_off.body_mut() = Full::from("--b0undary\r\ncontent-disposition: form-data; name=\"fi");
    let mut no_file = upload("batch", "x");
    *no_file.body_mut() = Full::from(
        "--b0undary\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b0undary--\r\n",
    );
    for (request, code, param) in [
        (no_form, "invalid_multipart", Value::Null),
        (broken_off, "invalid_multipart", Value::Null),
        (no_file, "missing_required_parameter", json!("file")),
        (
            upload("fine-tune", "x"),
            "invalid_purpose",
            json!("purpose"),
        ),
    ] {
        let response = world.send("a", request).await;
        let error: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(
            (&error["error"]["code"], &error["error"]["param"]),
            (&json!(code), &param)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_endless_heads_or_fields_ends() {
    let world = World::fast();
    let head = "--b0undary\r\ncontent-disposition: form-data; name=\"a\"";
    let endless_head = format!("{head}; x=\"{}", "x".repeat(1 << 20));
    let many_fields = format!("{head}\r\n\r\nx\r\n").repeat(1_000);
    for content in [endless_head, many_fields] {
        let content = content.into_bytes();
        let frames: Vec<_> = content
            .chunks(10_000)
            .map(|frame| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(frame))))
            .collect();
        let request = Request::post("/v1/files")
            .header("content-type", "multipart/form-data; boundary=b0undary")
            .body(StreamBody::new(futures_util::stream::iter(frames)))
            .unwrap();
        let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let response = world.api.layer(inner).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 400);
    }
}

#[tokio::test(start_paused = true)]
async fn another_tenants_files_and_batches_are_not_there() {
    let world = World::slow();
    let file = world.upload(&lines(1)).await;
    let batch = world.batch(&lines(1)).await;
    for (method, path) in [
        ("GET", format!("/v1/files/{file}")),
        ("GET", format!("/v1/files/{file}/content")),
        ("DELETE", format!("/v1/files/{file}")),
        ("GET", format!("/v1/batches/{batch}")),
        ("POST", format!("/v1/batches/{batch}/cancel")),
    ] {
        let (status, _) = world.ask_as("b", method, &path, Value::Null).await;
        assert_eq!(status, 404, "{method} {path}");
    }
    let (status, error) = world
        .ask_as("b", "POST", "/v1/batches", new_batch(&file, "24h"))
        .await;
    assert_eq!(
        (status.as_u16(), &error["error"]["param"]),
        (404, &json!("input_file_id"))
    );
    for path in ["/v1/files", "/v1/batches"] {
        let (_, list) = world.ask_as("b", "GET", path, Value::Null).await;
        assert_eq!(list["data"], json!([]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_in_pages_from_the_newest() {
    let world = World::fast();
    let mut files = Vec::new();
    for _ in 0..3 {
        tokio::time::advance(Duration::from_millis(1)).await;
        files.insert(0, world.upload("x").await);
    }
    let first = world.get("/v1/files?limit=2").await;
    let ids = |list: &Value| -> Vec<String> {
        let data = list["data"].as_array().unwrap().iter();
        data.map(|file| file["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&first), files[..2]);
    assert_eq!(
        (&first["has_more"], &first["last_id"]),
        (&json!(true), &json!(files[1]))
    );
    let second = world
        .get(&format!("/v1/files?limit=2&after={}", files[1]))
        .await;
    assert_eq!(ids(&second), files[2..]);
    assert_eq!(second["has_more"], false);
    assert_eq!(
        world.get("/v1/files?purpose=batch_output").await["data"],
        json!([])
    );
    let oldest = world.get("/v1/files?order=asc&limit=2").await;
    assert_eq!(ids(&oldest), [files[2].clone(), files[1].clone()]);
    assert_eq!(oldest["has_more"], true);
    let path = format!("/v1/files?order=asc&after={}", files[1]);
    let newest = world.get(&path).await;
    assert_eq!(ids(&newest), files[..1]);
    assert_eq!(newest["has_more"], false);
    for query in ["limit=0", "limit=10001", "limit=x", "after=x", "order=up"] {
        let (status, _) = world
            .ask("GET", &format!("/v1/files?{query}"), Value::Null)
            .await;
        assert_eq!(status, 400, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_files_has_up_to_10000_of_them() {
    let world = World::fast();
    for _ in 0..150 {
        world.upload("x").await;
    }
    for query in ["", "?limit=10000", "?limit=1000&order=asc"] {
        let list = world.get(&format!("/v1/files{query}")).await;
        assert_eq!(list["data"].as_array().unwrap().len(), 150, "{query}");
        assert_eq!(list["has_more"], false);
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_is_deleted_once_it_is_read() {
    let mut world = World::slow();
    world.stop();
    let file = world.upload(&lines(2)).await;
    let (_, batch) = world
        .ask("POST", "/v1/batches", new_batch(&file, "24h"))
        .await;
    let path = format!("/v1/files/{file}");
    let (status, error) = world.ask("DELETE", &path, Value::Null).await;
    assert_eq!(
        (status.as_u16(), &error["error"]["code"]),
        (409, &json!("file_in_use"))
    );
    world.restart();
    world.until_started(2).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let (status, _) = world.ask("DELETE", &path, Value::Null).await;
    assert_eq!(status, 200);
    world.restart(); // which reads the names of the lines again
    world.backend.finish(2);
    let batch = world
        .until(batch["id"].as_str().unwrap(), "completed")
        .await;
    assert_eq!(world.lines(&batch["output_file_id"]).await.len(), 2);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let pieces = format!("pieces/{file}/");
    assert!(
        world
            .store
            .values(&pieces, None, 1)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn other_paths_go_to_the_inner_service() {
    let world = World::fast();
    let request = Request::get("/v1/filesystem")
        .body(Full::default())
        .unwrap();
    assert_eq!(world.send("a", request).await.body(), "/v1/filesystem");
    let (status, _) = world.ask("PUT", "/v1/files", Value::Null).await;
    assert_eq!(status, 405);
    let (status, _) = world.ask("GET", "/v1/batches/x/y", Value::Null).await;
    assert_eq!(status, 404);
}

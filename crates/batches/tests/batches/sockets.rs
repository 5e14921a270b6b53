//! Files and batches over real sockets.

use axum::Router;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::support::{World, form, lines, new_batch};

/// Serves a world on a port of its own, and returns its address.
pub(crate) async fn serve(world: &World) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .fallback(|| async { "inner" })
        .layer(world.api.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

fn client() -> Client<HttpConnector, Full<bytes::Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn json(response: Response<Incoming>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_batch_goes_from_upload_to_output() {
    let world = World::fast();
    let url = serve(&world).await;
    let client = client();
    let upload = Request::post(format!("{url}/v1/files"))
        .header("content-type", "multipart/form-data; boundary=b0undary")
        .body(form("batch", &lines(300)).into());
    let file = json(client.request(upload.unwrap()).await.unwrap()).await;
    let batch = new_batch(file["id"].as_str().unwrap(), "24h").to_string();
    let create = Request::post(format!("{url}/v1/batches")).body(batch.into());
    let batch = json(client.request(create.unwrap()).await.unwrap()).await;
    let id = batch["id"].as_str().unwrap();
    let batch = loop {
        let get = Request::get(format!("{url}/v1/batches/{id}")).body(Full::default());
        let batch = json(client.request(get.unwrap()).await.unwrap()).await;
        if batch["status"] == "completed" {
            break batch;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let output = batch["output_file_id"].as_str().unwrap();
    let get = Request::get(format!("{url}/v1/files/{output}/content")).body(Full::default());
    let content = client.request(get.unwrap()).await.unwrap();
    let content = content.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(content.split(|&byte| byte == b'\n').count(), 301);
}

#[tokio::test]
async fn a_client_that_sends_too_much_gets_an_answer() {
    let world = World::fast();
    let url = serve(&world).await;
    let upload = Request::post(format!("{url}/v1/files"))
        .header("content-type", "multipart/form-data; boundary=b0undary")
        .body(form("batch", &"x".repeat(20 << 20)).into());
    let response = client().request(upload.unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
}

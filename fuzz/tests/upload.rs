//! Files that are uploaded for batches, and their lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage_batches::BatchApi;
use tower_triage_durable::{Store, StoreConfig};
use tower_triage_embedded::EmbeddedStore;

/// The time in which an upload to memory is over, even in pieces.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn an_upload_is_stored_or_refused() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let (kind, body) = super::first_line(input);
            let Ok(kind) = HeaderValue::from_bytes(kind) else {
                return;
            };
            let whole = super::runtime().block_on(upload(&kind, body, usize::MAX));
            let pieces = super::runtime().block_on(upload(&kind, body, 7));
            assert_eq!(pieces, whole);
        });
}

/// Uploads a file and reads it again. Returns the status of the upload, and the file.
async fn upload(kind: &HeaderValue, form: &[u8], length: usize) -> (StatusCode, Bytes) {
    let store = EmbeddedStore::in_memory(StoreConfig::default()).expect("the default is valid");
    let store: Arc<dyn Store> = Arc::new(store);
    let inner =
        service_fn(async |_: Request<_>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let api = BatchApi::new(store).layer(inner);
    let pieces: Vec<_> = form
        .chunks(length)
        .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let request = Request::post("/v1/files")
        .header(CONTENT_TYPE, kind)
        .body(StreamBody::new(stream::iter(pieces)))
        .expect("a request");
    let answer = timeout(SOON, api.clone().oneshot(request)).await;
    let answer = answer
        .expect("an upload ends")
        .expect("its errors are answers");
    let status = answer.status();
    assert!(!status.is_server_error(), "{status}");
    let answer = answer
        .into_body()
        .collect()
        .await
        .expect("an answer")
        .to_bytes();
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    let Some(id) = answer["id"].as_str() else {
        assert!(answer["error"]["code"].is_string(), "{answer}");
        return (status, Bytes::new());
    };
    let request = Request::get(format!("/v1/files/{id}/content"))
        .body(StreamBody::new(stream::iter(Vec::new())))
        .expect("a request");
    let file = api.oneshot(request).await.expect("its errors are answers");
    let file = file.into_body().collect().await.expect("a file").to_bytes();
    assert_eq!(answer["bytes"], file.len());
    (status, file)
}

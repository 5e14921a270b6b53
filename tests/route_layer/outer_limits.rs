//! Layers of tower-http around a router, which end the bodies of requests.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_triage::RouteLayer;
use tower_triage::endpoints::Registry;
use tower_triage::route::RouteBody;

use crate::support::endpoint;

fn layer() -> RouteLayer {
    RouteLayer::builder(Registry::new(vec![endpoint("a", 1, &["m"])]).unwrap()).build()
}

async fn answer<B>(_: Request<RouteBody<B>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// A body of unknown length that begins like this.
fn beginning(
    start: &'static str,
) -> impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static {
    let pieces = std::iter::once(start).chain([" word"; 40]);
    let frames = pieces.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
    StreamBody::new(stream::iter(frames))
}

async fn told<R>(response: Response<R>) -> (StatusCode, String)
where
    R: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let code = error["error"]["code"].as_str().unwrap();
    (status, code.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_body_over_an_outer_limit_is_too_large() {
    let part = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
    for (kind, start) in [
        ("application/json", "{\"model\":\""),
        ("multipart/form-data; boundary=b", part),
    ] {
        let service = ServiceBuilder::new()
            .layer(RequestBodyLimitLayer::new(100))
            .layer(layer())
            .service(service_fn(answer));
        let mut request = Request::new(beginning(start));
        let content_type = kind.parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        let response = service.oneshot(request).await.unwrap();
        let expected = (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large".to_owned());
        assert_eq!(told(response).await, expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_an_outer_layer_times_out_is_a_request_timeout() {
    let service = ServiceBuilder::new()
        .layer(RequestBodyTimeoutLayer::new(Duration::from_secs(5)))
        .layer(layer())
        .service(service_fn(answer));
    let first = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"{")))]);
    let stalled = StreamBody::new(Box::pin(first.chain(stream::pending())));
    let response = service.oneshot(Request::new(stalled)).await.unwrap();
    let expected = (
        StatusCode::REQUEST_TIMEOUT,
        "request_body_timeout".to_owned(),
    );
    assert_eq!(told(response).await, expected);
}

//! Sources of the demand other than the model in the body.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::RouteLayer;
use tower_triage::endpoints::{Decision, Registry, Requirements};
use tower_triage::route::{RouteBody, RouteLayerBuilder};

use super::support::endpoint;

fn router() -> RouteLayerBuilder {
    let endpoints = vec![endpoint("a", 1, &["users"]), endpoint("b", 1, &["orders"])];
    RouteLayer::builder(Registry::new(endpoints).unwrap())
}

async fn goes_to(router: RouteLayerBuilder, request: Request<Full<Bytes>>) -> (u16, String) {
    let inner = service_fn(|request: Request<RouteBody<Full<Bytes>>>| async move {
        let decision = request.extensions().get::<Decision>().unwrap().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "no JSON at all");
        let name = decision.endpoint.name().to_owned();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(name))))
    });
    let route = router.build().layer(inner);
    let (head, body) = route.oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        head.status.as_u16(),
        String::from_utf8(body.to_vec()).unwrap(),
    )
}

fn request(uri: &str) -> http::request::Builder {
    Request::put(uri)
}

fn body() -> Full<Bytes> {
    Full::from("no JSON at all")
}

#[tokio::test]
async fn demands_come_from_header_path_extension_or_closure() {
    let header = || router().demand_from_header("x-service".parse().unwrap());
    let named = request("/").header("x-service", "orders").body(body());
    assert_eq!(goes_to(header(), named.unwrap()).await, (200, "b".into()));
    let (status, why) = goes_to(header(), request("/").body(body()).unwrap()).await;
    assert_eq!(status, 400);
    assert!(why.contains("header `x-service`"), "{why}");

    let by_path = request("/orders/7").body(body()).unwrap();
    let path = router().demand_from_path_segment(0);
    assert_eq!(goes_to(path, by_path).await, (200, "b".into()));
    let by_path = request("/orders/7").body(body()).unwrap();
    let no_such = router().demand_from_path_segment(usize::MAX);
    assert_eq!(goes_to(no_such, by_path).await.0, 400);

    let extended = request("/").extension(Requirements::new("users"));
    let extension = router().demand_from_extension();
    let got = goes_to(extension, extended.body(body()).unwrap()).await;
    assert_eq!(got, (200, "a".into()));

    let by_method = router().demand_from(|head| {
        let model = if head.method == "PUT" {
            "users"
        } else {
            "orders"
        };
        Ok(Requirements::new(model))
    });
    let put = request("/").body(body()).unwrap();
    assert_eq!(goes_to(by_method, put).await, (200, "a".into()));
}

#[tokio::test(start_paused = true)]
async fn an_unread_body_is_streamed() {
    let inner = service_fn(|request: Request<RouteBody<_>>| async move {
        let mut body = Box::pin(request.into_body());
        let first: Frame<Bytes> = body.frame().await.unwrap().unwrap();
        let first = first.into_data().unwrap();
        Ok::<_, Infallible>(Response::new(Full::new(first)))
    });
    let route = router().demand_from_path_segment(0).build().layer(inner);
    let frames = stream::unfold(0, async |n| {
        if n > 0 {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        let frame = Frame::data(Bytes::from("first"));
        Some((Ok::<_, Infallible>(frame), n + 1))
    });
    let request = Request::post("/users")
        .body(StreamBody::new(frames))
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(1), route.oneshot(request));
    let answer = answer
        .await
        .expect("an answer before the body ends")
        .unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "first");
}

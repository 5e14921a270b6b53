//! Which requests are answered as gRPC, and in which of its forms.

use super::*;
use std::convert::Infallible;

const UNAVAILABLE: Option<&str> = Some("14");

/// The content type of a request; that of its rejection, and the gRPC status in it.
const CASES: [(&str, &str, Option<&str>); 12] = [
    ("application/grpc", "application/grpc", UNAVAILABLE),
    ("application/grpc+proto", "application/grpc", UNAVAILABLE),
    (
        "Application/gRPC; charset=utf-8",
        "application/grpc",
        UNAVAILABLE,
    ),
    ("application/grpc-web", "application/grpc-web", UNAVAILABLE),
    (
        "application/grpc-web+proto",
        "application/grpc-web",
        UNAVAILABLE,
    ),
    (
        "application/grpc-web-text",
        "application/grpc-web-text",
        UNAVAILABLE,
    ),
    (
        "application/grpc-web-text+proto; x=y",
        "application/grpc-web-text",
        UNAVAILABLE,
    ),
    ("application/grpcfoo", "application/json", None),
    ("application/grpc-webby", "application/json", None),
    ("application/grpc-foo", "application/json", None),
    ("application/grp", "application/json", None),
    ("application/json", "application/json", None),
];

#[tokio::test(start_paused = true)]
async fn a_rejection_is_in_the_protocol_of_its_request() {
    let never = service_fn(|_: Request<Full<Bytes>>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(1));
    let queue = layer.layer(never);
    let busy = [(), ()].map(|()| tokio::spawn(queue.clone().oneshot(request(&[]))));
    settle().await;
    assert_eq!(layer.handle().status().depth, 1);
    for is_closed in [false, true] {
        if is_closed {
            layer.handle().close();
        }
        for (asked, answered, grpc_status) in CASES {
            let request = request(&[("content-type", asked)]);
            let response = queue.clone().oneshot(request).await.unwrap();
            let headers = response.headers();
            let status = headers
                .get("grpc-status")
                .map(|value| value.to_str().unwrap());
            assert_eq!(headers["content-type"], answered, "{asked}");
            assert_eq!(status, grpc_status, "{asked}");
            let is_grpc = grpc_status.is_some();
            assert_eq!(
                response.status(),
                if is_grpc { 200 } else { 503 },
                "{asked}"
            );
            assert_eq!(text(response).await.is_empty(), is_grpc, "{asked}");
        }
    }
    drop(busy);
}

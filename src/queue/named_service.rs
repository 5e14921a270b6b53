//! tonic's `NamedService` for a queue: the name of the inner service.

use tonic::server::NamedService;

use super::Queue;

/// A gRPC service keeps its name, so that a queue can be put around a single service of a server:
///
/// ```
/// # use std::convert::Infallible;
/// # use tonic::body::Body;
/// use tonic::server::NamedService;
/// use tower::Layer;
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// #[derive(Clone)]
/// struct Greeter; // as `tonic-prost-build` makes it
///
/// impl NamedService for Greeter {
///     const NAME: &'static str = "demo.Greeter";
/// }
/// # impl tower::Service<http::Request<Body>> for Greeter {
/// #     type Response = http::Response<Body>;
/// #     type Error = Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: http::Request<Body>) -> Self::Future {
/// #         std::future::ready(Ok(http::Response::default()))
/// #     }
/// # }
///
/// let limited = QueueLayer::new(QueueConfig::new(4)).layer(Greeter);
/// let server = tonic::transport::Server::builder().add_service(limited);
/// ```
impl<S: NamedService, P> NamedService for Queue<S, P> {
    const NAME: &'static str = S::NAME;
}

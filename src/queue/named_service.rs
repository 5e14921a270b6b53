//! tonic's `NamedService` for a queue: the name of the inner service.

use tonic::server::NamedService;

use super::Queue;

/// A gRPC service keeps its name, so that a queue can be put around a single service of a server:
/// `Server::builder().add_service(queue_layer.layer(greeter))`.
impl<S: NamedService, P> NamedService for Queue<S, P> {
    const NAME: &'static str = S::NAME;
}

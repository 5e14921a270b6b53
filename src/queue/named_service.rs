//! The name of the inner gRPC service for a queue, by tonic's `NamedService`.

use tonic::server::NamedService;

use super::Queue;

/// Keeps the name of the gRPC service, so that a queue can be put around a single service of a server:
/// `Server::builder().add_service(queue_layer.layer(greeter))`.
impl<S: NamedService, P> NamedService for Queue<S, P> {
    const NAME: &'static str = S::NAME;
}

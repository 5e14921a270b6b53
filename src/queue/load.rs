//! The load of a queue, for Tower's load balancers.

use tower::load::Load;

use super::Queue;

/// The requests that run and those that wait, together.
///
/// Each service of a load balancer needs a layer of its own: those of one layer share their slots, and so their load.
///
/// ```
/// use tower::load::Load;
/// use tower::{Layer, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// let service = QueueLayer::plain(QueueConfig::new(4)).layer(service_fn(|n: u32| async move {
///     Ok::<_, std::io::Error>(n + 1)
/// }));
/// assert_eq!(service.load(), 0);
/// ```
impl<S, P> Load for Queue<S, P> {
    type Metric = usize;

    fn load(&self) -> usize {
        self.handle().0.gate.load()
    }
}

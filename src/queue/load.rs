//! The load of a queue, for Tower's load balancers.

use tower::load::Load;

use super::Queue;

/// Returns the number of requests that run or wait as the load.
///
/// Each service of a load balancer needs a layer of its own, because services of one layer share their slots, and so
/// their load.
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

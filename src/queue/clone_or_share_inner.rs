//! The bound on an inner service, with an error message that suggests a fix.

/// An inner service that can be cloned, so that each waiting request takes a clone of it along.
///
/// Every `Clone` type implements this trait. The trait exists for the compiler's message about all other types, such as
/// a rate limit. An inner service of such a type [can be shared](super::SharedQueueLayer) by all clones of the queue.
///
/// Without [`share_inner`](super::QueueLayer::share_inner) this does not compile:
///
/// ```compile_fail,E0277
/// # use std::time::Duration;
/// # use tower::{ServiceBuilder, ServiceExt, service_fn};
/// # use tower_triage::{QueueConfig, QueueLayer};
/// # async fn send() {
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::inner()))
///     .rate_limit(100, Duration::from_secs(1))
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
/// let response = service.oneshot(1).await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "the inner service `{Self}` of a `Queue` can't be cloned",
    label = "`{Self}` is not `Clone`",
    note = "to use it as it is, make the layer with `QueueConfig::inner()` and `QueueLayer::share_inner`",
    note = "or put `tower::buffer::BufferLayer` between the two"
)]
pub trait CloneOrShareInner: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> CloneOrShareInner for S {}

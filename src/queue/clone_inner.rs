//! The bound on an inner service, with an error message that says what to do.

/// An inner service that can be cloned: each request that waits takes a clone of it along.
///
/// Every `Clone` type is one. The trait is there for the compiler's message about all others:
///
/// ```compile_fail
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # async fn fails() {
/// let mut service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::inner()))
///     .rate_limit(100, Duration::from_secs(1)) // can't be cloned: needs `share_inner`
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
/// service.ready().await.unwrap().call(1).await.unwrap();
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "the inner service `{Self}` of a `Queue` can't be cloned",
    label = "`{Self}` is not `Clone`",
    note = "to use it as it is, make the layer with `QueueConfig::inner()` and `QueueLayer::share_inner`",
    note = "or put a layer between the two of which the service can be cloned, such as `tower::buffer::BufferLayer`"
)]
pub trait CloneInner: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> CloneInner for S {}

//! The error of a queue in front of a service that is not HTTP.

use std::error::Error;
use std::fmt;

use crate::admit::RejectReason;

/// The reason for which a request got an error instead of a response.
///
/// Implements [`Error`] if `E` does; `source()` is the inner error or the reason of the rejection. Boxed inner errors,
/// such as the errors of Tower's own layers, need a [`BoxedError`] around them for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError<E> {
    /// The request was rejected before it got a slot.
    Rejected(#[source] RejectReason),
    /// The inner service failed in `poll_ready` or in the call.
    Inner(#[source] E),
}

impl<E: fmt::Display> fmt::Display for QueueError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(why) => why.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

/// A boxed error that implements [`Error`], which the box itself does not. Use it between a layer of this crate and an
/// inner service with boxed errors.
///
/// ```
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::queue::BoxedError;
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let mut service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::new(4)))
///     .map_err(BoxedError)
///     .timeout(Duration::from_secs(10))
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
/// assert_eq!(service.ready().await?.call(1).await?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
pub struct BoxedError(#[source] pub Box<dyn Error + Send + Sync>);

impl From<Box<dyn Error + Send + Sync>> for BoxedError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(error)
    }
}

impl fmt::Display for BoxedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

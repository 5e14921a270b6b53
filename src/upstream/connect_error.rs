//! Why there is no connection to an endpoint.

use std::error::Error;
use std::time::Duration;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("not connected within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("{0}")]
    NoTls(&'static str),
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl ConnectError {
    pub(super) fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

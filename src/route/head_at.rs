//! The time at which the head of an answer came, if the answer was passed on later.

use std::time::Instant;

use http::Response;

/// The time at which the head of an answer came, as a response extension. It is there if the inner service has held the
/// head back, so that the endpoint's latency ends with the head itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadAt(pub(crate) Instant);

impl HeadAt {
    /// Returns the time at which the head of the answer came, or `None` if it has come just now.
    #[inline]
    pub(super) fn of<R, E>(result: &Result<Response<R>, E>) -> Option<Instant> {
        let response = result.as_ref().ok()?;
        response.extensions().get().map(|&Self(at)| at)
    }
}

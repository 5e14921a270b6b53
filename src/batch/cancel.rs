//! Requests that leave when their token is cancelled.
//!
//! A queue that looks at the token when the request's turn comes keeps cancelled requests waiting until then, and
//! their places taken. Here the token itself takes the request out, at the instant at which it is cancelled.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::admit::WaiterId;
use crate::on_cancel::OnCancel;

/// Dropping it takes it back from the token.
pub(super) type Registration = OnCancel;

/// Takes the request out of the queue when `token` is cancelled. Does not keep the queue alive.
///
/// `None` if the token has been cancelled already.
pub(super) fn remove_on_cancel<T: Send + 'static>(
    shared: &Arc<Shared<T>>,
    key: WaiterId,
    token: CancellationToken,
) -> Option<Registration> {
    let shared = Arc::downgrade(shared);
    OnCancel::new(token, move || {
        if let Some(shared) = shared.upgrade() {
            drop(shared.remove(key));
        }
    })
}

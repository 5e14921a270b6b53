//! Removal of a request at the moment its cancellation token is cancelled.
//!
//! A queue that checks a token only when its request is next would keep cancelled requests waiting until then, and
//! their places taken. Here the token itself removes the request, inside its `cancel`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::admit::WaiterId;
use crate::on_cancel::OnCancel;

/// The action that a token takes when it is cancelled. Dropping the registration takes the action back.
pub(super) type Registration = OnCancel;

/// Registers the removal of the request from the queue when `token` is cancelled. The registration does not keep the
/// queue alive.
///
/// Returns `None` if the token was cancelled before the call.
pub(super) fn remove_on_cancel<T: Send + 'static>(
    shared: &Arc<Shared<T>>,
    id: WaiterId,
    token: CancellationToken,
) -> Option<Registration> {
    let shared = Arc::downgrade(shared); // weak, because the token may outlive the queue
    OnCancel::new(token, move || {
        if let Some(shared) = shared.upgrade() {
            // The item is dropped without the lock, because its destructor is the caller's code.
            drop(shared.remove(id));
        }
    })
}

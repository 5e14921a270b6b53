//! Removal of a request at the moment its cancellation token is cancelled.
//!
//! A queue that checks the token only when the request is next keeps cancelled requests waiting until then, and their
//! places taken. Here the token itself removes the request, inside its `cancel`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::admit::WaiterId;
use crate::on_cancel::OnCancel;

/// What a token is to do when it is cancelled. Dropping it takes that back.
pub(super) type Registration = OnCancel;

/// Removes the request from the queue when `token` is cancelled. Does not keep the queue alive.
///
/// `None` if the token was cancelled before.
pub(super) fn remove_on_cancel<T: Send + 'static>(
    shared: &Arc<Shared<T>>,
    id: WaiterId,
    token: CancellationToken,
) -> Option<Registration> {
    let shared = Arc::downgrade(shared); // weak: the token may outlive the queue
    OnCancel::new(token, move || {
        if let Some(shared) = shared.upgrade() {
            // Dropped without the lock: the item's destructor is the caller's code.
            drop(shared.remove(id));
        }
    })
}

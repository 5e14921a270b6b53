//! A request on its way through a batch.

use tokio::sync::oneshot;

use super::{BatchError, RequestQueue};

/// A request, and where its answer goes.
pub(super) struct Member<Req, A, E, I> {
    pub(super) request: Req,
    pub(super) reply: Reply<A, E, I>,
}

/// Where an answer goes. If it is dropped, the caller learns that its batch is lost.
pub(super) type Reply<A, E, I> = oneshot::Sender<Result<A, BatchError<E, I>>>;

/// Those who wait for their batch.
pub(super) type Members<Req, A, E, I> = RequestQueue<Member<Req, A, E, I>>;

//! The bounds on the requests of a queue.

use tower_service::Service;

use super::clone_or_share_inner::CloneOrShareInner;
use super::protocol::Protocol;
use crate::implies::Implies;

/// A request that a [`Queue<S, P>`](super::Queue) serves.
///
/// This trait is implemented for every request that `S` takes, if `S` is [`Clone`](CloneOrShareInner) and `P` is a
/// [`Protocol`] for both.
pub trait QueueRequest<S, P>:
    Sized + Implies<S, Is: Service<Self> + CloneOrShareInner> + Implies<P, Is: Protocol<Self, S>>
{
}

impl<Req, S, P> QueueRequest<S, P> for Req
where
    S: Service<Req> + CloneOrShareInner,
    P: Protocol<Req, S>,
{
}

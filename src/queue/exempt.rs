//! The rule for requests that pass the queue without a slot.

/// A rule for the requests that pass a queue without a slot.
///
/// Implemented by [`NoExemptions`], and by every closure `Fn(&Req) -> bool`, which
/// [`QueueLayer::exempt`](super::QueueLayer::exempt) takes.
pub trait Exempt<Req> {
    /// Returns `true` if `request` passes without a slot.
    fn is_exempt(&self, request: &Req) -> bool;
}

/// The rule of a queue without exemptions, where every request needs a slot.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExemptions;

impl<Req> Exempt<Req> for NoExemptions {
    #[inline(always)]
    fn is_exempt(&self, _: &Req) -> bool {
        false
    }
}

impl<Req, F> Exempt<Req> for F
where
    F: Fn(&Req) -> bool,
{
    fn is_exempt(&self, request: &Req) -> bool {
        self(request)
    }
}

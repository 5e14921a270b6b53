//! What demands share that the same endpoints can serve.

use std::sync::Arc;

use crate::Pool;
use crate::route::capabilities::Capabilities;

/// What demands share that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest context of the endpoints on its way that is long enough, so that equal lanes are served
    /// by equal endpoints although their tokens differ.
    pub(super) context_length: u32,
    /// Where it has failed before.
    pub(super) avoid: Option<(Arc<[Pool]>, Avoid)>,
}

/// How much an endpoint is avoided at which a request has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::route) enum Avoid {
    /// As long as there is another one.
    IfPossible,
    /// It said that it wants to be left alone.
    Always,
}

/// A look at a [`Lane`], for a walk over many endpoints.
#[derive(Debug, Clone, Copy)]
pub(in crate::route) struct Asks<'a> {
    pub(super) needs: Capabilities,
    pub(super) context_length: u32,
    /// Who avoids some of them, on this walk.
    pub(super) avoids: Option<&'a Lane>,
}

impl Lane {
    pub(in crate::route) fn asks(&self, avoiding: bool) -> Asks<'_> {
        Asks {
            needs: self.needs,
            context_length: self.context_length,
            avoids: avoiding.then_some(self),
        }
    }

    pub(super) fn avoids(&self, pool: Pool) -> bool {
        let avoided = self.avoid.as_ref();
        avoided.is_some_and(|(pools, _)| pools.contains(&pool))
    }

    /// Whether to look at those only that are not avoided: first, and then.
    pub(super) fn passes(&self) -> impl Iterator<Item = bool> + use<> {
        let passes: &[bool] = match self.avoid {
            None => &[false],
            Some((_, Avoid::IfPossible)) => &[true, false],
            Some((_, Avoid::Always)) => &[true],
        };
        passes.iter().copied()
    }

    /// The same lane without `pool`.
    pub(super) fn avoiding(mut self, pool: Pool, avoid: Avoid) -> Self {
        let (pools, before) = match &self.avoid {
            Some((pools, before)) => (&pools[..], *before),
            None => (&[][..], Avoid::IfPossible),
        };
        let others = pools.iter().copied().filter(|&other| other != pool);
        let pools = others.chain([pool]).collect();
        // Who said so once is not asked again, whatever the next one says.
        let avoid = match before {
            Avoid::Always => before,
            Avoid::IfPossible => avoid,
        };
        self.avoid = Some((pools, avoid));
        self
    }
}

//! Which answer belongs to which request.

use std::convert::Infallible;

/// Takes the answer to a batch apart: [`InOrder`] or [`PerItem`].
pub trait Answers<R>: sealed::Sealed {
    /// The answer to one request.
    type Answer;
    /// What one request can fail with while others of its batch do not.
    type ItemError;

    #[doc(hidden)]
    fn split(response: R) -> Vec<Result<Self::Answer, Self::ItemError>>;
}

mod sealed {
    /// Keeps the ways to those that are here.
    pub trait Sealed {}
}

/// The inner service answers with a `Vec` of answers, in the order of the requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct InOrder;

/// The inner service answers with a `Vec` of results, in the order of the requests: each fails for itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct PerItem;

impl sealed::Sealed for InOrder {}
impl sealed::Sealed for PerItem {}

impl<A> Answers<Vec<A>> for InOrder {
    type Answer = A;
    type ItemError = Infallible;

    fn split(response: Vec<A>) -> Vec<Result<A, Infallible>> {
        response.into_iter().map(Ok).collect()
    }
}

impl<A, I> Answers<Vec<Result<A, I>>> for PerItem {
    type Answer = A;
    type ItemError = I;

    fn split(response: Vec<Result<A, I>>) -> Vec<Result<A, I>> {
        response
    }
}

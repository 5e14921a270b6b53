//! Matching of answers to the requests of a batch.

use std::convert::Infallible;

/// A way to split the answer to a batch into answers to its requests, which is [`InOrder`] or [`PerItem`].
pub trait Answers<R>: sealed::Sealed {
    /// The answer to one request.
    type Answer;
    /// The error of one request that fails while others of its batch succeed.
    type ItemError;

    #[doc(hidden)]
    fn split(response: R) -> Vec<Result<Self::Answer, Self::ItemError>>;
}

mod sealed {
    /// A supertrait that limits the implementations to those of this crate.
    pub trait Sealed {}
}

/// The way to split a `Vec` of answers, which the inner service returns in the order of the requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct InOrder;

/// The way to split a `Vec` of results, which the inner service returns in the order of the requests. Each request
/// fails for itself.
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

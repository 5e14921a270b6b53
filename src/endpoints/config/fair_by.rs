//! The measure of a tenant's share under the discipline `fair`.

/// The cost of a request to its tenant's share, with the discipline [`Fair`](crate::Discipline::Fair).
///
/// A configuration file names it `"tokens"` or `"requests"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FairBy {
    /// Charges the tokens of the prompt, as they are estimated, and twice the tokens of the answer when that ends.
    ///
    /// The answer's `usage` gives the number of its tokens. If an answer lacks `usage`, each event of a stream counts
    /// as a token, and so do four bytes of other text, while audio and embeddings count as 0 tokens. If `usage` reports
    /// more prompt tokens than were estimated, the difference is charged, too.
    ///
    /// A request costs at least 1. Its prompt costs at most the model's `context_length`, and each choice of its answer
    /// costs at most the smaller of that and the request's `max_tokens`. A `usage` that reports more than this, or 0,
    /// is ignored. The router has to read answers to count their tokens, so it asks the endpoint for
    /// `accept-encoding: identity`.
    #[default]
    Tokens,
    /// Charges 1 for each request, whatever its length.
    Requests,
}

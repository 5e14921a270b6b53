//! What a request uses of its tenant's share.

/// What a request uses of its tenant's share, with the discipline [`Fair`](crate::Discipline::Fair).
///
/// In a configuration file: `"tokens"` or `"requests"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FairBy {
    /// The tokens of its prompt, as they are estimated, and twice those of its answer, when that ends.
    ///
    /// The answer's `usage` says how many it has. Without that, each event of a stream counts as a token, and so do four
    /// bytes of another text; audio and embeddings have none. If `usage` says that the prompt had more tokens than were
    /// estimated, those count, too.
    ///
    /// A request costs at least 1. Its prompt costs at most the model's `context_length`, and each choice of its answer
    /// at most that and the request's `max_tokens`: a `usage` that says more, or 0, is ignored. To be counted, answers
    /// have to be readable, so the endpoint is asked for `accept-encoding: identity`.
    #[default]
    Tokens,
    /// One, as any other.
    Requests,
}

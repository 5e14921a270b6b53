//! The cost of a request, in the units of a batch's budget.
//!
//! An engine that counts requests runs out of memory on ten long prompts, or runs half empty on ten short ones. Its
//! scarce resource is the memory for their keys and values, which can be estimated before a request is started.

/// A function that computes the cost of an item in the units of the budget, such as bytes, tokens or seconds. It is
/// independent of the [cost on its ticket](crate::Ticket::cost), which is charged to the item's tenant under fair
/// shares.
///
/// The queue calls it once, when the item is enqueued, outside any lock. An engine that accounts for running items
/// calls it again, or keeps the cost in the item. Every closure `Fn(&T) -> u64` implements this trait, and [`KvCache`]
/// does for items that implement [`Tokens`]. If the function panics, the item is not enqueued.
pub trait Cost<T>: Send + Sync + 'static {
    /// Returns the cost of `item`.
    fn cost(&self, item: &T) -> u64;
}

impl<T, F> Cost<T> for F
where
    F: Fn(&T) -> u64 + Send + Sync + 'static,
{
    fn cost(&self, item: &T) -> u64 {
        self(item)
    }
}

/// An estimate of the bytes that a transformer keeps as keys and values for a request. It multiplies the bytes per
/// token by the tokens of the prompt and of the longest answer.
///
/// ```
/// use tower_triage::batch::KvCache;
///
/// // 32 layers, 8 heads for keys and values, 128 elements each, 2 bytes per element.
/// let cache = KvCache::new(32, 8, 128, 2);
/// assert_eq!(cache.bytes_per_token(), 131_072);
/// assert_eq!(cache.bytes(1_000, 200), 1_200 * 131_072);
///
/// let expects_less = cache.expect_at_most(64);
/// assert_eq!(expects_less.bytes(1_000, 200), 1_064 * 131_072);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvCache {
    /// The number of layers.
    pub layers: u32,
    /// The number of heads that keep keys and values, which is less than the number of all heads if queries are
    /// grouped.
    pub heads: u32,
    /// The number of elements of a key, per token and head. A value has as many.
    pub head_size: u32,
    /// The size of an element in bytes, which is 2 at half precision.
    pub bytes_per_element: u32,
    /// The longest answer that is assumed, in tokens, if a request allows a longer one. `None` assumes the length that
    /// the request allows.
    pub longest_answer: Option<u32>,
}

impl KvCache {
    /// An estimate of 4 bytes per token, with answers of at most 256 tokens. It ranks requests by their length, without
    /// any knowledge of the model.
    pub const SIMPLE: Self = Self::new(1, 1, 1, 2).expect_at_most(256);

    /// Creates an estimate that assumes answers to be as long as requests allow.
    #[must_use]
    pub const fn new(layers: u32, heads: u32, head_size: u32, bytes_per_element: u32) -> Self {
        Self {
            layers,
            heads,
            head_size,
            bytes_per_element,
            longest_answer: None,
        }
    }

    /// Assumes that answers have at most this number of tokens, because most are much shorter than requests allow.
    #[must_use]
    pub const fn expect_at_most(mut self, tokens: u32) -> Self {
        self.longest_answer = Some(tokens);
        self
    }

    /// Returns the bytes of one token's keys and values, at most `u64::MAX`.
    #[must_use]
    pub fn bytes_per_token(&self) -> u64 {
        let factors = [
            self.layers,
            self.heads,
            self.head_size,
            self.bytes_per_element,
        ];
        let product = |bytes: u64, factor: u32| bytes.saturating_mul(factor.into());
        factors.into_iter().fold(2, product) // the 2 stands for a key and a value
    }

    /// Returns the bytes of a request's keys and values, from the first token of its prompt to the last of its longest
    /// answer. The result is at most `u64::MAX`.
    #[must_use]
    pub fn bytes(&self, prompt_tokens: u32, max_tokens: u32) -> u64 {
        let answer = self
            .longest_answer
            .map_or(max_tokens, |most| most.min(max_tokens));
        let tokens = u64::from(prompt_tokens) + u64::from(answer); // the sum of two `u32` fits
        tokens.saturating_mul(self.bytes_per_token())
    }
}

/// An item that knows the length of its prompt, and the longest answer that it allows.
pub trait Tokens {
    /// Returns the number of tokens in the prompt.
    fn prompt_tokens(&self) -> u32;
    /// Returns the number of tokens that the answer may have.
    fn max_tokens(&self) -> u32;
}

impl<T: Tokens> Cost<T> for KvCache {
    fn cost(&self, item: &T) -> u64 {
        self.bytes(item.prompt_tokens(), item.max_tokens())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn simple_estimate_is_four_bytes_per_token() {
        let simple = |prompt, answer| KvCache::SIMPLE.bytes(prompt, answer);
        for (prompt, answer, bytes) in [(0, 0, 0), (10, 5, 60), (100, 256, 1424), (100, 5000, 1424)]
        {
            assert_eq!(simple(prompt, answer), bytes, "{prompt} + {answer}");
        }
    }

    #[test]
    fn estimates_saturate_instead_of_overflowing() {
        let absurd = KvCache::new(u32::MAX, u32::MAX, u32::MAX, 2);
        assert_eq!(absurd.bytes_per_token(), u64::MAX);
        assert_eq!(absurd.bytes(1, 0), u64::MAX);
        assert_eq!(absurd.bytes(0, 0), 0);
    }
}

//! What a request costs of a batch's budget.
//!
//! An engine that counts requests runs out of memory on ten long prompts, or runs half empty on ten short ones.
//! What it is short of is room for their keys and values, and that can be told before a request is started.

/// Tells what an item costs, in the units of the budget: bytes, tokens, seconds. What its tenant pays for it where
/// tenants take turns is another matter: that is its [ticket's](crate::Ticket::cost).
///
/// Asked once, when the item is enqueued, outside any lock. An engine that keeps books of what runs asks it again, or
/// lets items carry their cost. Every closure `Fn(&T) -> u64` is one, and so is
/// [`KvCache`] for items that know their [`Tokens`]. If it panics, the item was not enqueued.
pub trait Cost<T>: Send + Sync + 'static {
    /// What `item` costs.
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

/// Estimates the bytes of a transformer's keys and values for a request: what they take for each token, times the
/// tokens of its prompt and of its longest answer.
///
/// ```
/// use tower_triage::batch::KvCache;
///
/// // 32 layers, 8 heads for keys and values, of 128 numbers, of 2 bytes.
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
    /// How many layers keep keys and values.
    pub layers: u32,
    /// How many heads keep them: with grouped queries, fewer than there are heads.
    pub heads: u32,
    /// How many numbers a head keeps of a token, for its key; and as many for its value.
    pub head_size: u32,
    /// The size of such a number.
    pub bytes_per_element: u32,
    /// The longest answer that is reckoned with, whatever a request allows. `None`: as long as it allows.
    pub longest_answer: Option<u32>,
}

impl KvCache {
    /// Half-precision numbers and answers of up to 256 tokens: 4 bytes a token, which ranks requests by length
    /// and knows nothing of the model.
    pub const SIMPLE: Self = Self::new(1, 1, 1, 2).expect_at_most(256);

    /// Reckons with answers as long as requests allow.
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

    /// Reckons with answers of at most so many tokens. Most end long before they must.
    #[must_use]
    pub const fn expect_at_most(mut self, tokens: u32) -> Self {
        self.longest_answer = Some(tokens);
        self
    }

    /// What one token takes, key and value. `u64::MAX` if that is more.
    #[must_use]
    pub fn bytes_per_token(&self) -> u64 {
        let factors = [
            self.layers,
            self.heads,
            self.head_size,
            self.bytes_per_element,
        ];
        let product = |bytes: u64, factor: u32| bytes.saturating_mul(factor.into());
        factors.into_iter().fold(2, product)
    }

    /// What a request takes, from the first token of its prompt to the last of its longest answer. `u64::MAX` if
    /// that is more.
    #[must_use]
    pub fn bytes(&self, prompt_tokens: u32, max_tokens: u32) -> u64 {
        let answer = self
            .longest_answer
            .map_or(max_tokens, |most| most.min(max_tokens));
        let tokens = u64::from(prompt_tokens) + u64::from(answer);
        tokens.saturating_mul(self.bytes_per_token())
    }
}

/// An item that knows how long its prompt is, and how long its answer may be.
pub trait Tokens {
    /// How many tokens its prompt has.
    fn prompt_tokens(&self) -> u32;
    /// How many its answer may have.
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
    fn the_simple_estimate_is_four_bytes_a_token() {
        let simple = |prompt, answer| KvCache::SIMPLE.bytes(prompt, answer);
        for (prompt, answer, bytes) in [(0, 0, 0), (10, 5, 60), (100, 256, 1424), (100, 5000, 1424)]
        {
            assert_eq!(simple(prompt, answer), bytes, "{prompt} + {answer}");
        }
    }

    #[test]
    fn what_is_too_large_to_count_is_as_large_as_can_be() {
        let absurd = KvCache::new(u32::MAX, u32::MAX, u32::MAX, 2);
        assert_eq!(absurd.bytes_per_token(), u64::MAX);
        assert_eq!(absurd.bytes(1, 0), u64::MAX);
        assert_eq!(absurd.bytes(0, 0), 0);
    }
}

//! A hash of the beginning of a prompt. It is equal for all requests of a conversation, and for all conversations under
//! one long system prompt: an endpoint with the beginning in its cache answers them sooner.

use std::hash::{DefaultHasher, Hasher};

/// The hash of the beginning of a prompt, the same in every process.
///
/// The beginning ends with the first message of a user, which does not change while the conversation grows, and differs
/// between conversations under the same short system prompt. In any case it ends after 1,024 bytes. Where the system
/// prompt is in a field of its own and shorter than that, it and what follows it have 1,024 bytes each: they may come in
/// either order.
#[derive(Debug, Clone)]
pub(super) struct Prefix {
    /// Not seeded, and much faster than hashing a byte at a time.
    hasher: DefaultHasher,
    taken: usize,
    end: usize,
}

impl Default for Prefix {
    fn default() -> Self {
        Self {
            hasher: DefaultHasher::new(),
            taken: 0,
            end: 1_024, // about 250 tokens
        }
    }
}

impl Prefix {
    /// Takes in a text as it is written: a client writes the same text the same way each time.
    pub(super) fn add(&mut self, written: &str) {
        let room = written.len().min(self.end - self.taken);
        let bytes = &written.as_bytes()[..room];
        self.taken += bytes.len();
        self.hasher.write(bytes);
    }

    /// Takes in nothing more.
    pub(super) fn close(&mut self) {
        self.end = self.taken;
    }

    /// The hash of this beginning, if that is all that counts, or of `next` after it.
    pub(super) fn then(mut self, next: Self) -> Self {
        if self.taken == 0 {
            return next;
        }
        if let Some(hash) = next.hash()
            && self.taken < self.end
        {
            self.hasher.write_u64(hash);
        }
        self
    }

    /// `None` if there was no text.
    pub(super) fn hash(&self) -> Option<u64> {
        (self.taken > 0).then(|| self.hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(texts: &[&str]) -> Prefix {
        let mut prefix = Prefix::default();
        for text in texts {
            prefix.add(text);
        }
        prefix
    }

    #[test]
    fn it_is_the_same_in_every_process() {
        assert_eq!(prefix(&["foobar"]).hash(), Some(0x7738_ae0a_5df0_9b34));
    }

    #[test]
    fn the_first_kilobyte_counts_however_it_is_cut() {
        let (long, longer) = ("é".repeat(512), "é".repeat(600));
        let hash = prefix(&[&long]).hash();
        assert_eq!(prefix(&[&longer]).hash(), hash);
        assert_eq!(prefix(&[&long[..8], "", &longer[8..]]).hash(), hash);
        assert_eq!(prefix(&[&long, "x"]).hash(), hash);
        assert_ne!(prefix(&[&long[..1_022], "x"]).hash(), hash);
    }

    #[test]
    fn nothing_counts_after_the_end() {
        let mut closed = prefix(&["a"]);
        closed.close();
        closed.add("b");
        assert_eq!(closed.hash(), prefix(&["a"]).hash());
        assert_eq!(closed.then(prefix(&["b"])).hash(), prefix(&["a"]).hash());
    }

    #[test]
    fn what_follows_counts_while_there_is_room() {
        let (none, a, b) = (prefix(&[]), prefix(&["a"]), prefix(&["b"]));
        assert_eq!(none.hash(), None);
        assert_eq!(none.clone().then(none.clone()).hash(), None);
        assert_eq!(none.clone().then(a.clone()).hash(), a.hash());
        assert_eq!(a.clone().then(none).hash(), a.hash());
        assert_ne!(a.clone().then(b.clone()).hash(), a.hash());
        assert_ne!(a.clone().then(b.clone()).hash(), b.clone().then(a).hash());
        let full = prefix(&[&"a".repeat(1_024)]);
        assert_eq!(full.clone().then(b).hash(), full.hash());
    }
}

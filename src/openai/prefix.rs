//! A hash of the beginning of a prompt. It is equal for all requests of a conversation, and for all conversations under
//! one long system prompt. An endpoint with the beginning in its cache answers such requests sooner.

use std::hash::{DefaultHasher, Hasher};

/// The hash of the beginning of a prompt, which is the same in every process.
///
/// The beginning ends with the first message of a user. That message stays the same while the conversation grows, and
/// it differs between conversations under the same short system prompt. In any case the beginning ends after 1,024
/// bytes. If the system prompt is in a field of its own and is shorter than that, the system prompt and the text after
/// it have 1,024 bytes each, because they may come in either order.
#[derive(Debug, Clone)]
pub(super) struct Prefix {
    /// The hasher has a fixed seed, and it is much faster than hashing a byte at a time.
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
    /// Creates a beginning that stays empty, for a prompt whose beginning is not asked for.
    pub(super) fn ignored() -> Self {
        Self {
            end: 0,
            ..Self::default()
        }
    }

    /// Adds a text as it is written, because a client writes the same text in the same way each time.
    pub(super) fn add(&mut self, written: &str) {
        let room = written.len().min(self.end - self.taken);
        let bytes = &written.as_bytes()[..room];
        self.taken += bytes.len();
        self.hasher.write(bytes);
    }

    /// Ends the beginning here, so that later text is ignored.
    pub(super) fn close(&mut self) {
        self.end = self.taken;
    }

    /// Returns this beginning if it has used up its bytes, or else this beginning followed by the hash of `next`. An
    /// empty beginning is replaced by `next`.
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

    /// Returns the hash of the beginning, or `None` if all texts were empty.
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

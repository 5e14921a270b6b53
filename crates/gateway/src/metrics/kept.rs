//! Handles of metrics that are kept between requests, because finding a handle hashes its name and its labels.

use arc_swap::ArcSwap;

/// Handles of one metric, by the values of its labels. A key must have few values.
pub(super) struct Kept<K, H>(ArcSwap<Vec<(K, H)>>);

impl<K, H> Default for Kept<K, H> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<K: Ord + Clone, H: Clone> Kept<K, H> {
    /// Passes the handle of `key` to `act`. It comes from `find` the first time.
    pub(super) fn with(&self, key: &K, find: impl FnOnce() -> H, act: impl FnOnce(&H)) {
        let kept = self.0.load();
        if let Ok(at) = position(&kept, key) {
            return act(&kept[at].1);
        }
        let handle = find();
        act(&handle);
        // Another thread may have added the same key, with a handle of the same series.
        self.0.rcu(|kept| {
            let mut kept = Vec::clone(kept);
            if let Err(at) = position(&kept, key) {
                kept.insert(at, (key.clone(), handle.clone()));
            }
            kept
        });
    }
}

fn position<K: Ord, H>(kept: &[(K, H)], key: &K) -> Result<usize, usize> {
    kept.binary_search_by(|(it, _)| it.cmp(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_is_found_once() {
        let kept = Kept::default();
        let mut found = Vec::new();
        for key in [2, 1, 2, 3, 1, 3] {
            let mut acted = None;
            kept.with(
                &key,
                || {
                    found.push(key);
                    key * 10
                },
                |handle| acted = Some(*handle),
            );
            assert_eq!(acted, Some(key * 10));
        }
        assert_eq!(found, [2, 1, 3]);
    }
}

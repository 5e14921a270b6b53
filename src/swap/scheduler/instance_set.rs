//! A set of instances, as one flag for each.

use super::InstanceId;

/// A set of instances, with one flag for each number.
#[derive(Debug, Clone, Default)]
pub(super) struct InstanceSet(Vec<bool>);

impl InstanceSet {
    /// Returns an empty set with capacity for `count` instances.
    pub(super) fn new(count: usize) -> Self {
        Self(vec![false; count])
    }

    pub(super) fn insert(&mut self, InstanceId(id): InstanceId) {
        let nth = id as usize;
        if self.0.len() <= nth {
            self.0.resize(nth + 1, false);
        }
        self.0[nth] = true;
    }

    pub(super) fn contains(&self, InstanceId(id): InstanceId) -> bool {
        self.0.get(id as usize).is_some_and(|&is_in| is_in)
    }
}

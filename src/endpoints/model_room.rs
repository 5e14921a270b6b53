//! The partition of the waiting room for one model, with its order and a size that may grow with the model's slots.

use crate::Discipline;

/// The settings of the part of the waiting room that belongs to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct ModelRoom {
    /// The number of requests that may wait. Default 0.
    pub max_size: usize,
    /// The number of requests that may wait per slot of the model's endpoints. Default 0.
    ///
    /// The larger of the two bounds applies. If both are 0, only the size of the whole room counts.
    pub max_size_per_slot: usize,
    /// The order among requests of equal priority. Default `None`, which takes the order of the whole room.
    pub discipline: Option<Discipline>,
}

impl ModelRoom {
    /// Sets the number of requests that may wait.
    #[must_use]
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = max_size;
        self
    }

    /// Sets the number of requests that may wait per slot.
    #[must_use]
    pub fn max_size_per_slot(mut self, max_size: usize) -> Self {
        self.max_size_per_slot = max_size;
        self
    }

    /// Sets the order among requests of equal priority.
    #[must_use]
    pub fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = Some(discipline);
        self
    }

    /// Returns the number of requests that may wait for `slots` slots, or `None` if only the whole room bounds them.
    pub(crate) fn max_size_for(&self, slots: usize, ceiling: usize) -> Option<usize> {
        let size = self
            .max_size
            .max(self.max_size_per_slot.saturating_mul(slots));
        let is_limited = self.max_size > 0 || self.max_size_per_slot > 0;
        is_limited.then(|| size.min(ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_size_is_the_larger_one_under_the_ceiling() {
        for (max_size, per_slot, slots, expected) in [
            (0, 0, 8, None),
            (5, 0, 8, Some(5)),
            (0, 3, 8, Some(24)),
            (30, 3, 8, Some(30)),
            (10, 3, 8, Some(24)),
            (5_000, 0, 1, Some(1_000)),
            (0, usize::MAX, 2, Some(1_000)),
            (0, 3, 0, Some(0)),
        ] {
            let room = ModelRoom::default()
                .max_size(max_size)
                .max_size_per_slot(per_slot);
            assert_eq!(
                room.max_size_for(slots, 1_000),
                expected,
                "{room:?} {slots}"
            );
        }
    }
}

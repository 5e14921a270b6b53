//! Sets of models.

use super::ModelId;

/// A set of models.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks(Vec<bool>);

impl Marks {
    /// An empty set, with space for so many models.
    pub(super) fn new(models: usize) -> Self {
        Self(vec![false; models])
    }

    pub(super) fn set(&mut self, ModelId(model): ModelId) {
        let nth = model as usize;
        if self.0.len() <= nth {
            self.0.resize(nth + 1, false);
        }
        self.0[nth] = true;
    }

    pub(super) fn has(&self, ModelId(model): ModelId) -> bool {
        self.0.get(model as usize).is_some_and(|mark| *mark)
    }
}

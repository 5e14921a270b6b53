//! The selection of the waiting items that join a batch. They are considered in order.

/// The reaction to a next item that costs more than the rest of a batch's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnOversize {
    /// The batch ends before the item, so the order is strict, and the rest of the budget stays unused.
    #[default]
    Stop,
    /// Smaller items may overtake the item, at most `max_overtakes` over all batches, including items of lower levels.
    /// After that, batches end before the item until it is taken, so that it cannot starve. A batch looks past at most
    /// 64 items that do not fit.
    ///
    /// This uses more of the budget, and most items wait less. But items that overtake a large one use the budget that
    /// it waits for, so it waits longer, even if it is more urgent.
    Backfill {
        /// The number of items that may overtake one that did not fit, over all batches.
        max_overtakes: u32,
    },
}

/// The decision about the item that is next in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Take,
    /// The item keeps its position, and the one after it is considered.
    Skip,
    /// The batch is complete.
    End,
}

/// The state of one batch while its items are selected.
#[derive(Debug)]
pub(super) struct Selection {
    on_oversize: OnOversize,
    /// The number of items that may still be taken.
    count: usize,
    /// The rest of the budget.
    budget: u64,
    pub(super) taken: u32,
    skipped: usize,
    /// The number of items that may still overtake the skipped ones, which is the minimum over all of them.
    allowance: u32,
}

/// The number of items that a batch may skip. It is small, because a batch is selected under the lock.
const MAX_SKIPPED: usize = 64;

impl Selection {
    pub(super) fn new(on_oversize: OnOversize, count: usize, budget: u64) -> Self {
        Self {
            on_oversize,
            count,
            budget,
            taken: 0,
            skipped: 0,
            allowance: u32::MAX,
        }
    }

    /// Returns the number of items that may still be taken.
    pub(super) fn max_count(&self) -> usize {
        self.count
    }

    /// Decides about the next item in order, which `overtaken` others overtook in earlier batches.
    pub(super) fn choose(&mut self, cost: u64, overtaken: u32) -> Choice {
        if self.count == 0 {
            return Choice::End; // the batch is full by count
        }
        if cost <= self.budget {
            return self.take(cost); // an item of cost 0 fits an empty budget
        }
        match self.on_oversize {
            OnOversize::Stop => Choice::End,
            OnOversize::Backfill { max_overtakes } => {
                self.skip(max_overtakes.saturating_sub(overtaken))
            }
        }
    }

    fn take(&mut self, cost: u64) -> Choice {
        // The item overtakes every item that was skipped.
        if self.skipped > 0 {
            if self.allowance == 0 {
                return Choice::End; // one of them was overtaken often enough
            }
            self.allowance -= 1; // one overtake counts for all of them
        }
        self.count -= 1;
        self.budget -= cost;
        self.taken += 1;
        Choice::Take
    }

    /// Skips an item that `left` others may still overtake.
    fn skip(&mut self, left: u32) -> Choice {
        if left == 0 || self.skipped == MAX_SKIPPED {
            return Choice::End; // the item must be taken before any item behind it
        }
        self.skipped += 1;
        self.allowance = self.allowance.min(left);
        Choice::Skip
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The choices for items of these costs, none of which was overtaken before: `+` is taken, `-` is skipped.
    fn choices(mut selection: Selection, costs: &[u64]) -> String {
        let mut choices = String::new();
        for &cost in costs {
            match selection.choose(cost, 0) {
                Choice::Take => choices.push('+'),
                Choice::Skip => choices.push('-'),
                Choice::End => break,
            }
        }
        choices
    }

    #[test]
    fn items_that_fit_are_taken_in_order() {
        let backfill = |max_overtakes| OnOversize::Backfill { max_overtakes };
        for (on_oversize, count, budget, costs, taken) in [
            (OnOversize::Stop, 9, 10, &[4, 4, 4, 2][..], "++"),
            (OnOversize::Stop, 2, 10, &[1, 1, 1], "++"),
            (OnOversize::Stop, 9, 10, &[5, 5, 0, 1], "+++"),
            (OnOversize::Stop, 9, 0, &[1], ""),
            (backfill(8), 9, 10, &[4, 7, 4, 2, 1], "+-++-"),
            (backfill(1), 9, 10, &[7, 4, 2, 1], "+-+"),
            (backfill(0), 9, 10, &[7, 4, 2], "+"),
            (backfill(8), 2, 10, &[7, 4, 2, 1], "+-+"),
            (backfill(8), 9, 10, &[11, 12, 13], "---"),
        ] {
            let choices = choices(Selection::new(on_oversize, count, budget), costs);
            assert_eq!(choices, taken, "{on_oversize:?} {count} {budget} {costs:?}");
        }
    }

    #[test]
    fn an_item_overtaken_often_enough_ends_the_batch() {
        let mut selection = Selection::new(OnOversize::Backfill { max_overtakes: 3 }, 9, 10);
        assert_eq!(selection.choose(11, 3), Choice::End);
        assert_eq!(selection.choose(11, 2), Choice::Skip);
        assert_eq!(selection.choose(1, 0), Choice::Take);
        assert_eq!(selection.choose(1, 0), Choice::End);
    }

    #[test]
    fn the_number_of_skipped_items_is_bounded() {
        let costs = [11; 100];
        let selection = Selection::new(OnOversize::Backfill { max_overtakes: 8 }, 9, 10);
        assert_eq!(choices(selection, &costs).len(), MAX_SKIPPED);
    }
}

//! Which of the waiting items join a batch, considered in order.

/// What happens when the next item in order costs more than what is left of a batch's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnOversize {
    /// The batch ends before it: the order is strict, and the rest of the budget stays unused.
    #[default]
    Stop,
    /// Smaller items may overtake it, at most `max_overtakes` over all batches, lower levels included. Then batches end
    /// before it until it is taken, so that it cannot starve. A batch looks past at most 64 items that do not fit.
    ///
    /// More of the budget is used, and most items wait less. But items that overtake a large one use the budget that it
    /// waits for, so that it waits longer, even if it is more urgent.
    Backfill {
        /// How many items may overtake one that did not fit, over all batches.
        max_overtakes: u32,
    },
}

/// What to do with the item that is next in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Take,
    /// Look at the next one, and leave this one in its place.
    Skip,
    /// The batch is complete.
    End,
}

/// The state of one batch while its items are selected.
#[derive(Debug)]
pub(super) struct Selection {
    on_oversize: OnOversize,
    /// How many more items may be taken.
    count: usize,
    /// What is left of the budget.
    budget: u64,
    pub(super) taken: u32,
    skipped: usize,
    /// How many more items may overtake the skipped ones: the least of what each of them allows.
    allowance: u32,
}

/// A batch skips at most 64 items, because it is selected under the lock.
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

    /// How many more items it takes at most.
    pub(super) fn max_count(&self) -> usize {
        self.count
    }

    /// Decides about the next item in order, which `overtaken` others overtook in earlier batches.
    pub(super) fn choose(&mut self, cost: u64, overtaken: u32) -> Choice {
        if self.count == 0 {
            return Choice::End; // full by count
        }
        if cost <= self.budget {
            return self.take(cost); // a cost of 0 fits an empty budget
        }
        match self.on_oversize {
            OnOversize::Stop => Choice::End,
            OnOversize::Backfill { max_overtakes } => {
                self.skip(max_overtakes.saturating_sub(overtaken))
            }
        }
    }

    fn take(&mut self, cost: u64) -> Choice {
        // It overtakes every item that was skipped.
        if self.skipped > 0 {
            if self.allowance == 0 {
                return Choice::End; // one of them was overtaken often enough
            }
            self.allowance -= 1; // one overtake, of all of them
        }
        self.count -= 1;
        self.budget -= cost;
        self.taken += 1;
        Choice::Take
    }

    /// Skips an item that `left` others may still overtake.
    fn skip(&mut self, left: u32) -> Choice {
        if left == 0 || self.skipped == MAX_SKIPPED {
            return Choice::End; // it must be taken before any item behind it
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

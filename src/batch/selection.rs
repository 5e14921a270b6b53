//! Who joins the batch, of those who wait, looked at in order.

/// What happens when the next in order does not fit into what is left of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnOversize {
    /// The batch ends there: the order is strict, and what is left of the budget stays unused.
    #[default]
    Stop,
    /// Those behind it that do fit go before it, so many of them altogether, those of lower levels included. After
    /// that many the batch ends there until it has been taken, so that what is large is never starved. Of those that
    /// do not fit, a batch passes 64 and no more.
    ///
    /// More of the budget is used, and most wait less; but what goes before a large one takes from the room that it
    /// waits for, so that it waits longer, however urgent it is.
    Backfill {
        /// How many may overtake one that did not fit, over all batches.
        max_overtakes: u32,
    },
}

/// What becomes of the one that is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Take,
    Pass,
    End,
}

/// One batch in the making.
#[derive(Debug)]
pub(super) struct Selection {
    on_oversize: OnOversize,
    count: usize,
    budget: u64,
    /// How many were taken.
    pub(super) taken: u32,
    /// How many were passed.
    passed: usize,
    /// How many more may go before those that were passed.
    allowance: u32,
}

/// A batch does not look past more than these, however many do not fit: it is made under a lock.
const LONGEST_LOOK: usize = 64;

impl Selection {
    pub(super) fn new(on_oversize: OnOversize, count: usize, budget: u64) -> Self {
        Self {
            on_oversize,
            count,
            budget,
            taken: 0,
            passed: 0,
            allowance: u32::MAX,
        }
    }

    /// How many it takes at most.
    pub(super) fn most(&self) -> usize {
        self.count
    }

    /// Looks at the next in order, before whom `overtaken` others have gone already.
    pub(super) fn look(&mut self, cost: u64, overtaken: u32) -> Choice {
        if self.count == 0 {
            return Choice::End;
        }
        if cost <= self.budget {
            return self.take(cost);
        }
        match self.on_oversize {
            OnOversize::Stop => Choice::End,
            OnOversize::Backfill { max_overtakes } => {
                self.pass(max_overtakes.saturating_sub(overtaken))
            }
        }
    }

    fn take(&mut self, cost: u64) -> Choice {
        if self.passed > 0 {
            if self.allowance == 0 {
                return Choice::End;
            }
            self.allowance -= 1;
        }
        self.count -= 1;
        self.budget -= cost;
        self.taken += 1;
        Choice::Take
    }

    fn pass(&mut self, left: u32) -> Choice {
        if left == 0 || self.passed == LONGEST_LOOK {
            return Choice::End;
        }
        self.passed += 1;
        self.allowance = self.allowance.min(left);
        Choice::Pass
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What becomes of items of these costs, before none of which anybody has gone.
    fn choices(mut selection: Selection, costs: &[u64]) -> String {
        let mut looked = String::new();
        for &cost in costs {
            match selection.look(cost, 0) {
                Choice::Take => looked.push('+'),
                Choice::Pass => looked.push('-'),
                Choice::End => break,
            }
        }
        looked
    }

    #[test]
    fn those_who_fit_are_taken_in_order() {
        let skip = |max_overtakes| OnOversize::Backfill { max_overtakes };
        for (on_oversize, count, budget, costs, taken) in [
            (OnOversize::Stop, 9, 10, &[4, 4, 4, 2][..], "++"),
            (OnOversize::Stop, 2, 10, &[1, 1, 1], "++"),
            (OnOversize::Stop, 9, 10, &[5, 5, 0, 1], "+++"),
            (OnOversize::Stop, 9, 0, &[1], ""),
            (skip(8), 9, 10, &[4, 7, 4, 2, 1], "+-++-"),
            (skip(1), 9, 10, &[7, 4, 2, 1], "+-+"),
            (skip(0), 9, 10, &[7, 4, 2], "+"),
            (skip(8), 2, 10, &[7, 4, 2, 1], "+-+"),
            (skip(8), 9, 10, &[11, 12, 13], "---"),
        ] {
            let looked = choices(Selection::new(on_oversize, count, budget), costs);
            assert_eq!(looked, taken, "{on_oversize:?} {count} {budget} {costs:?}");
        }
    }

    #[test]
    fn one_before_whom_enough_have_gone_is_passed_no_more() {
        let mut selection = Selection::new(OnOversize::Backfill { max_overtakes: 3 }, 9, 10);
        assert_eq!(selection.look(11, 3), Choice::End);
        assert_eq!(selection.look(11, 2), Choice::Pass);
        assert_eq!(selection.look(1, 0), Choice::Take);
        assert_eq!(selection.look(1, 0), Choice::End);
    }

    #[test]
    fn a_look_has_an_end() {
        let costs = [11; 100];
        let selection = Selection::new(OnOversize::Backfill { max_overtakes: 8 }, 9, 10);
        assert_eq!(choices(selection, &costs).len(), LONGEST_LOOK);
    }
}

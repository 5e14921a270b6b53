//! Who sits where.
//!
//! In a long line it is memory that takes time, and memory is fast where it is gone through in order, by one thread
//! at a time. Those of a level come and go nearly in the same order. So they sit in rows, next to each other, and a
//! row is used again once half of those in it have left: there are never more than twice as many chairs as there
//! have been waiters, but for one row for each level.

use super::Levels;
use super::chairs::NONE;

/// Chairs in a row.
const ROW: u32 = 8;
/// A row in which so many sit at most is used again.
const THIN: u8 = 4;
/// So few rows are not worth to be put in order again.
const FEW: usize = 64;

/// Which chairs are taken.
#[derive(Debug)]
pub(crate) struct Rows {
    /// By level, the row that is being filled.
    open: [Open; Levels::MOST],
    rows: Vec<Row>,
    /// Rows to be used again, the last one first.
    thin: Vec<u32>,
    /// How many chairs are taken.
    taken: u32,
}

/// A row that is being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    row: u32,
    /// Those of its chairs, by bit, on which somebody will sit down before the next row is opened.
    vacant: u8,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// By bit.
    taken: u8,
    count: u8,
    /// Whether it is being filled, or will be.
    is_used: bool,
}

impl Rows {
    pub(crate) fn new() -> Self {
        let none = Open {
            row: NONE,
            vacant: 0,
        };
        Self {
            open: [none; Levels::MOST],
            rows: Vec::new(),
            thin: Vec::new(),
            taken: 0,
        }
    }

    /// How many chairs there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() * ROW as usize
    }

    /// Where the next one of that level sits down.
    #[inline(always)]
    pub(crate) fn next(&mut self, level: u8) -> u32 {
        let open = self.open[usize::from(level)];
        match open.vacant {
            0 => self.open_row(level, open.row),
            vacant => open.row * ROW + vacant.trailing_zeros(),
        }
    }

    /// Somebody of that level sits down where the next one of it does.
    #[inline(always)]
    pub(crate) fn take(&mut self, level: u8, at: u32) {
        let open = &mut self.open[usize::from(level)];
        open.vacant &= open.vacant.wrapping_sub(1);
        let row = &mut self.rows[(at / ROW) as usize];
        row.taken |= 1 << (at % ROW);
        row.count += 1;
        self.taken += 1;
    }

    /// Whoever sat there leaves.
    #[inline(always)]
    pub(crate) fn leave(&mut self, at: u32) {
        let row = &mut self.rows[(at / ROW) as usize];
        row.taken &= !(1 << (at % ROW));
        row.count -= 1;
        if row.count <= THIN && !row.is_used {
            row.is_used = true;
            self.thin.push(at / ROW);
        }
        self.taken -= 1;
        if self.taken == 0 && self.rows.len() > FEW {
            // Or the next to come would sit all over the place, in the order in which these left.
            *self = Self::new();
        }
    }

    /// Opens another row for a level that has filled one.
    #[inline(never)]
    fn open_row(&mut self, level: u8, filled: u32) -> u32 {
        if let Some(row) = self.rows.get_mut(filled as usize) {
            row.is_used = row.count <= THIN;
            if row.is_used {
                self.thin.push(filled);
            }
        }
        let row = self.thin.pop().unwrap_or_else(|| self.add());
        let vacant = !self.rows[row as usize].taken;
        self.open[usize::from(level)] = Open { row, vacant };
        row * ROW + vacant.trailing_zeros()
    }

    fn add(&mut self) -> u32 {
        let row = self.rows.len();
        self.rows.push(Row {
            taken: 0,
            count: 0,
            is_used: true,
        });
        row as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const LEVELS: u8 = 3;

    /// Levels come and go in waves, so that rows thin out, are used again, and the room is empty now and then.
    fn waves() -> impl Strategy<Value = Vec<(u8, bool, usize, bool)>> {
        prop::collection::vec(
            (0..LEVELS, any::<bool>(), 0usize..900, any::<bool>()),
            1..12,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_sits_on_anothers_chair_and_rows_that_thin_out_are_used_again(waves in waves()) {
            let mut rows = Rows::new();
            let (mut all, mut taken) = (Vec::new(), HashSet::new());
            let mut most = 0;
            for (level, come, count, in_order) in waves {
                for nth in 0..count {
                    if come {
                        let level = if in_order { level } else { (nth % usize::from(LEVELS)) as u8 };
                        let at = rows.next(level);
                        prop_assert_eq!(at, rows.next(level), "who asks twice is told the same");
                        prop_assert!(taken.insert(at), "somebody sits on {}", at);
                        prop_assert!((at as usize) < rows.len());
                        rows.take(level, at);
                        all.push(at);
                    } else if !all.is_empty() {
                        let who = if in_order { 0 } else { nth * 7919 % all.len() };
                        let at = all.remove(who);
                        taken.remove(&at);
                        rows.leave(at);
                    }
                    most = most.max(all.len());
                }
                prop_assert_eq!(rows.taken as usize, all.len());
                let rest = usize::from(LEVELS) * ROW as usize;
                prop_assert!(rows.len() <= 2 * most + rest, "{} chairs for {most}", rows.len());
            }
        }
    }
}

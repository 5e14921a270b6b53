//! Who sits where.
//!
//! In a long line it is memory that takes time, and memory is fast where it is gone through in order, by one thread
//! at a time. Those of a level come and go nearly in the same order. So they sit in rows, next to each other, and a
//! row is used again once half of those in it have left: there is never more than a row for every thirty-three of the
//! most who ever sat at once, one for each level, and one more.
//!
//! Whoever leaves out of turn leaves a chair in the middle of others, which is as good for the next to come as any,
//! and whose memory is at hand.

use super::PriorityLevels;
use super::chairs::NONE;

/// Chairs in a row. Those of a line of memory each fill a page, within which a processor reads ahead.
const ROW: u32 = 64;
/// A row in which so many sit at most is used again.
const THIN: u8 = 32;
/// So few rows are not worth to be put in order again.
const FEW: usize = 8;

/// Which chairs are taken. What is written for everyone who sits down stands first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Rows {
    /// How many chairs are taken.
    taken: u32,
    /// One that was left a moment ago: its memory is still at hand. RoomStats as taken in its row.
    warm: u32,
    /// By level, the row that is being filled.
    open: [Open; PriorityLevels::MOST],
    rows: Vec<Row>,
    /// Rows to be used again, the last one first.
    thin: Vec<u32>,
}

/// A row that is being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    row: u32,
    /// Those of its chairs, by bit, on which somebody will sit down before the next row is opened.
    vacant: u64,
}

impl Open {
    const NONE: Self = Self {
        row: NONE,
        vacant: 0,
    };
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// Those of its chairs, by bit, that are taken, or will be before the next row is opened.
    taken: u64,
    /// How many bits that is, for not every processor that this is built for counts them at once.
    count: u8,
    /// Whether it is being filled, or will be.
    is_used: bool,
}

impl Row {
    fn fill(&mut self) {
        self.taken = u64::MAX;
        self.count = ROW as u8;
    }
}

impl Rows {
    pub(crate) fn new() -> Self {
        Self {
            open: [Open::NONE; PriorityLevels::MOST],
            rows: Vec::new(),
            thin: Vec::new(),
            taken: 0,
            warm: NONE,
        }
    }

    /// How many are taken.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Drops the rows behind the last one in which a place is taken, and fills the first ones first from now on, so
    /// that more rows become empty at the end.
    pub(crate) fn trim(&mut self) {
        if self.warm != NONE {
            let cold = std::mem::replace(&mut self.warm, NONE);
            self.vacate(cold);
        }
        for open in &mut self.open {
            if let Some(row) = self.rows.get_mut(open.row as usize) {
                // Its vacant places were counted as taken while it was being filled.
                row.taken &= !open.vacant;
                row.count = row.taken.count_ones() as u8;
            }
            *open = Open::NONE;
        }
        let last = self.rows.iter().rposition(|row| row.count > 0);
        self.rows.truncate(last.map_or(0, |last| last + 1));
        self.rows.shrink_to_fit();
        self.thin.clear();
        self.thin.shrink_to_fit();
        for (number, row) in self.rows.iter_mut().enumerate().rev() {
            row.is_used = row.count <= THIN;
            if row.is_used {
                self.thin.push(number as u32);
            }
        }
    }

    /// How many chairs there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() * ROW as usize
    }

    /// A chair for the next one of that level.
    #[inline(always)]
    pub(crate) fn take(&mut self, level: u8) -> u32 {
        self.taken += 1;
        if self.warm != NONE {
            return std::mem::replace(&mut self.warm, NONE);
        }
        let open = &mut self.open[usize::from(level)];
        if open.vacant == 0 {
            self.open_row(level);
        }
        let open = &mut self.open[usize::from(level)];
        let nth = open.vacant.trailing_zeros();
        open.vacant &= open.vacant.wrapping_sub(1);
        open.row * ROW + nth
    }

    /// Whoever sat there leaves, in turn: those next to it will soon do so, too.
    #[inline(always)]
    pub(crate) fn leave(&mut self, at: u32) {
        self.vacate(at);
        self.count_out();
    }

    /// Whoever sat there leaves, out of turn. The next to come sits there, whatever its level.
    #[inline]
    pub(crate) fn leave_early(&mut self, at: u32) {
        match std::mem::replace(&mut self.warm, at) {
            NONE => {}
            cold => self.vacate(cold),
        }
        self.count_out();
    }

    #[inline(always)]
    fn vacate(&mut self, at: u32) {
        let row = &mut self.rows[(at / ROW) as usize];
        row.taken &= !(1 << (at % ROW));
        row.count -= 1;
        if row.count <= THIN && !row.is_used {
            row.is_used = true;
            self.thin.push(at / ROW);
        }
    }

    #[inline(always)]
    fn count_out(&mut self) {
        self.taken -= 1;
        if self.taken == 0 && self.rows.len() > FEW {
            // Or the next to come would sit in rows out of order, as these left them.
            *self = Self::new();
        }
    }

    /// Opens another row for a level that has filled one.
    #[inline(never)]
    fn open_row(&mut self, level: u8) {
        let filled = self.open[usize::from(level)].row;
        if let Some(row) = self.rows.get_mut(filled as usize) {
            row.is_used = row.count <= THIN;
            if row.is_used {
                self.thin.push(filled);
            }
        }
        let row = self.thin.pop().unwrap_or_else(|| self.add());
        let vacant = !self.rows[row as usize].taken;
        self.rows[row as usize].fill();
        self.open[usize::from(level)] = Open { row, vacant };
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
    use proptest::sample::Index;
    use std::collections::BTreeSet;

    /// A row in which so many sit is not used again.
    const KEPT: usize = THIN as usize + 1;

    fn most_chairs(most_at_once: usize, levels: usize) -> usize {
        (most_at_once.saturating_sub(1) / KEPT + levels) * ROW as usize
    }

    #[derive(Debug, Clone)]
    enum Event {
        /// So many of that level.
        Come(u8, usize),
        Leave(Vec<Index>),
        LeaveEarly(Vec<Index>),
        Trim,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0u8..4, 1usize..20).prop_map(|(level, count)| Event::Come(level, count)),
            1 => (0u8..4, 1usize..400).prop_map(|(level, count)| Event::Come(level, count)),
            4 => prop::collection::vec(any::<Index>(), 1..40).prop_map(Event::Leave),
            1 => prop::collection::vec(any::<Index>(), 1_000).prop_map(Event::Leave),
            2 => prop::collection::vec(any::<Index>(), 1..40).prop_map(Event::LeaveEarly),
            1 => Just(Event::Trim),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases / 4,
            ..ProptestConfig::default()
        })]

        #[test]
        fn nobody_gets_a_taken_chair_and_there_is_a_row_for_every_thirty_three_and_each_level_and_one_more(
            events in prop::collection::vec(event(), 1..40),
        ) {
            let mut rows = Rows::new();
            let mut taken = BTreeSet::new();
            let (mut most, mut levels) = (0, BTreeSet::new());
            for event in events {
                match event {
                    Event::Come(level, count) => for _ in 0..count {
                        let next = rows.take(level);
                        prop_assert!(taken.insert(next), "{} is taken", next);
                        most = most.max(taken.len());
                        levels.insert(level);
                        prop_assert!((next as usize) < rows.len());
                        prop_assert!(rows.len() <= most_chairs(most, levels.len()) + ROW as usize);
                    },
                    Event::Trim => {
                        rows.trim();
                        let last = taken.last().map_or(0, |&last| last + 1);
                        prop_assert_eq!(rows.len() as u32, last.next_multiple_of(ROW));
                    }
                    Event::Leave(ref who) | Event::LeaveEarly(ref who) => for who in who {
                        let Some(&at) = taken.iter().nth(who.index(taken.len().max(1))) else { break };
                        taken.remove(&at);
                        match event {
                            Event::LeaveEarly(_) => rows.leave_early(at),
                            _ => rows.leave(at),
                        }
                    },
                }
                if rows.len() == 0 {
                    prop_assert!(taken.is_empty());
                    (most, levels) = (0, BTreeSet::new());
                }
                let sits = (0..rows.len() as u32).filter(|&at| {
                    let (row, bit) = (at / ROW, 1 << (at % ROW));
                    let is_open = rows.open.iter().any(|open| open.row == row && open.vacant & bit != 0);
                    rows.rows[row as usize].taken & bit != 0 && !is_open && at != rows.warm
                });
                prop_assert!(sits.eq(taken.iter().copied()));
            }
        }
    }

    #[test]
    fn a_row_for_every_thirty_three_and_each_level_may_be_needed() {
        for levels in 1..4 {
            let mut rows = Rows::new();
            for level in 1..levels {
                let at = rows.take(level);
                rows.leave(at);
            }
            let mut most = 0;
            for _ in 0..50 {
                for _ in KEPT..ROW as usize {
                    let at = rows.take(0);
                    rows.leave(at);
                }
                (0..KEPT).for_each(|_| _ = rows.take(0));
                most += KEPT;
            }
            rows.take(0);
            assert_eq!(rows.len(), most_chairs(most + 1, levels.into()));
        }
    }

    #[test]
    fn those_of_a_level_who_come_to_an_empty_room_sit_next_to_each_other() {
        let mut rows = Rows::new();
        let mut by_level = [const { Vec::new() }; 3];
        for nth in 0..100 {
            let level = nth % 7 % 3;
            by_level[level].push(rows.take(level as u8));
        }
        for chairs in by_level {
            for row in chairs.chunks(ROW as usize) {
                assert!(
                    (row[0]..).zip(row).all(|(at, &chair)| at == chair),
                    "{row:?}"
                );
                assert_eq!(row[0] % ROW, 0);
            }
        }
    }

    #[test]
    fn after_everyone_has_left_a_large_room_the_next_sit_in_order_again() {
        const MANY: u32 = 1_009;
        let mut rows = Rows::new();
        for level in [0, 2, 1] {
            let all: Vec<u32> = (0..MANY).map(|_| rows.take(level)).collect();
            assert!(all.iter().copied().eq(0..MANY));
            // All over the place.
            (0..MANY).for_each(|nth| rows.leave(all[(nth * 500 % MANY) as usize]));
            assert_eq!(rows.len(), 0);
        }
    }

    #[test]
    fn the_next_sits_where_somebody_left_out_of_turn() {
        let mut rows = Rows::new();
        let [first, second, third] = [0, 0, 1].map(|level| rows.take(level));
        rows.leave_early(second);
        assert_eq!(rows.take(1), second);
        assert_eq!(rows.take(1), third + 1);
        for at in [first, third] {
            rows.leave_early(at);
        }
        assert_eq!(rows.take(0), third);
        assert_eq!(rows.take(0), second + 1);
    }

    #[test]
    fn a_row_that_thinned_out_while_it_was_filled_is_used_again() {
        let mut rows = Rows::new();
        let full: Vec<u32> = (0..ROW).map(|_| rows.take(0)).collect();
        (0..ROW - u32::from(THIN)).for_each(|nth| rows.leave(full[nth as usize]));
        assert_eq!(rows.take(0), full[0]);
        assert_eq!(rows.len(), ROW as usize);
    }

    #[test]
    fn a_row_that_thins_out_is_used_again() {
        let mut rows = Rows::new();
        let full: Vec<u32> = (0..ROW).map(|_| rows.take(0)).collect();
        rows.take(0);
        (0..ROW - u32::from(THIN)).for_each(|nth| rows.leave(full[nth as usize]));
        assert_eq!(rows.take(1), full[0]);
        assert_eq!(rows.len(), 2 * ROW as usize);
    }
}

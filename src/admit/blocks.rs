//! Lists of chairs, from which anyone can be taken at once.
//!
//! Were each waiter linked to its neighbours, whoever leaves from the middle of a long line would have to fetch
//! both, from wherever in memory they are. So those who came one after the other share a block, and who leaves
//! clears a bit of it. All the bits of a hundred thousand waiters fit in a core's cache.
//!
//! A block goes with the last of those who share it: a line that thins out takes up to a block for each.

use super::chairs::NONE;

/// As many numbers of chairs as fit in a cache line.
const SIZE: u32 = 16;
/// Where a waiter is found is one number: the block's, and in so many bits below it the chair's.
const BITS: u32 = 4;

/// The blocks of all lists.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Blocks {
    /// The first of those that nobody uses; each has the next.
    spare: u32,
    blocks: Vec<Block>,
    /// The numbers of each one's chairs. Apart, for whoever leaves from the middle looks at none of them.
    numbers: Vec<Numbers>,
}

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Numbers([u32; SIZE as usize]);

/// Waiters in a row.
#[derive(Debug, Clone, Copy)]
struct Block {
    prev: u32,
    next: u32,
    /// Which of its chairs are still in the list. Never none of them, as long as the block is in it.
    taken: u16,
    /// How many chairs were ever put in.
    filled: u16,
}

impl Block {
    const FULL: u16 = SIZE as u16;

    fn of_one(prev: u32) -> Self {
        Self {
            prev,
            next: NONE,
            taken: 1,
            filled: 1,
        }
    }

    /// Takes the next place. There is one.
    #[inline]
    fn fill(&mut self) -> u32 {
        let nth = u32::from(self.filled);
        self.filled += 1;
        self.taken |= 1 << nth;
        nth
    }
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self {
            spare: NONE,
            blocks: Vec::new(),
            numbers: Vec::new(),
        }
    }

    #[inline]
    fn block(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    /// A block after `prev`, with one chair in it.
    #[inline(always)]
    fn add(&mut self, prev: u32, at: u32) -> u32 {
        let index = self.spare;
        let Some(block) = self.blocks.get_mut(index as usize) else {
            return self.make(prev, at);
        };
        self.spare = block.next;
        *block = Block::of_one(prev);
        self.numbers[index as usize].0[0] = at;
        index
    }

    #[inline(never)]
    fn make(&mut self, prev: u32, at: u32) -> u32 {
        self.blocks.push(Block::of_one(prev));
        self.numbers.push(Numbers([at; SIZE as usize]));
        (self.blocks.len() - 1) as u32
    }

    /// The chair there, if there is one.
    #[inline]
    fn chair(&self, index: u32, nth: u32) -> Option<u32> {
        let chairs = self.numbers.get(index as usize)?;
        chairs.0.get(nth as usize).copied()
    }
}

/// A list of chairs, over blocks of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts a chair at the end, and says by which number it is found in the list again.
    #[inline(always)]
    pub(crate) fn push(&mut self, blocks: &mut Blocks, at: u32) -> u32 {
        match blocks.blocks.get_mut(self.last as usize) {
            Some(block) if block.filled < Block::FULL => {
                let nth = block.fill();
                blocks.numbers[self.last as usize].0[(nth % SIZE) as usize] = at;
                self.last << BITS | nth
            }
            _ => self.grow(blocks, at),
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, number: u32) {
        let index = number >> BITS;
        let block = blocks.block(index);
        let bit = 1 << (number % (1 << BITS));
        debug_assert_ne!(block.taken & bit, 0, "somebody leaves twice");
        block.taken &= !bit;
        if block.taken == 0 {
            self.shrink(blocks, index);
        }
    }

    /// Takes the first out.
    #[cfg(any(feature = "batch", test))]
    #[inline(always)]
    pub(crate) fn pop(&mut self, blocks: &mut Blocks) -> Option<u32> {
        let block = blocks.blocks.get_mut(self.first as usize)?;
        let nth = block.taken.trailing_zeros();
        block.taken &= block.taken - 1;
        let is_last = block.taken == 0;
        let at = blocks.chair(self.first, nth);
        if is_last {
            self.shrink(blocks, self.first);
        }
        at
    }

    #[inline]
    pub(crate) fn head(&self, blocks: &Blocks) -> Option<u32> {
        let first = blocks.blocks.get(self.first as usize)?;
        blocks.chair(self.first, first.taken.trailing_zeros())
    }

    #[inline]
    pub(crate) fn tail(&self, blocks: &Blocks) -> Option<u32> {
        let last = blocks.blocks.get(self.last as usize)?;
        blocks.chair(self.last, last.taken.checked_ilog2()?)
    }

    /// Everyone, in order.
    pub(crate) fn iter(self, blocks: &Blocks) -> impl Iterator<Item = u32> {
        let block = |index: u32| {
            let block = blocks.blocks.get(index as usize);
            block.map(|block| (index, block))
        };
        let all = std::iter::successors(block(self.first), move |(_, before)| block(before.next));
        all.flat_map(|(index, block)| {
            let chairs = (0..).zip(blocks.numbers[index as usize].0);
            let taken = chairs.filter(|(nth, _)| block.taken & (1 << nth) != 0);
            taken.map(|(_, at)| at)
        })
    }

    #[inline(always)]
    fn grow(&mut self, blocks: &mut Blocks, at: u32) -> u32 {
        let new = blocks.add(self.last, at);
        match self.last {
            NONE => self.first = new,
            last => blocks.block(last).next = new,
        }
        self.last = new;
        new << BITS
    }

    #[inline(always)]
    fn shrink(&mut self, blocks: &mut Blocks, index: u32) {
        let block = blocks.block(index);
        let (prev, next) = (block.prev, block.next);
        match prev {
            NONE => self.first = next,
            prev => blocks.block(prev).next = next,
        }
        match next {
            NONE => self.last = prev,
            next => blocks.block(next).prev = prev,
        }
        blocks.block(index).next = blocks.spare;
        blocks.spare = index;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_lists_keep_their_orders(ops in prop::collection::vec((any::<bool>(), prop::option::weighted(0.6, Just(())), any::<prop::sample::Index>()), 0..400)) {
            let mut blocks = Blocks::new();
            let mut lists = [List::EMPTY; 2];
            let mut models: [Vec<(u32, u32)>; 2] = Default::default();
            let mut most = 0;
            for (at, (which, push, who)) in (0..).zip(ops) {
                let (list, model) = (&mut lists[usize::from(which)], &mut models[usize::from(which)]);
                if push.is_some() {
                    model.push((at, list.push(&mut blocks, at)));
                } else if at % 3 == 0 {
                    let first = (!model.is_empty()).then(|| model.remove(0).0);
                    prop_assert_eq!(list.pop(&mut blocks), first);
                } else if !model.is_empty() {
                    list.remove(&mut blocks, model.remove(who.index(model.len())).1);
                }
                for (list, model) in lists.iter().zip(&models) {
                    prop_assert_eq!(list.head(&blocks), model.first().map(|one| one.0));
                    prop_assert_eq!(list.tail(&blocks), model.last().map(|one| one.0));
                    prop_assert!(list.iter(&blocks).eq(model.iter().map(|one| one.0)));
                }
                most = most.max(models.iter().map(Vec::len).sum());
                prop_assert!(blocks.blocks.len() <= most, "at worst a block for each");
            }
        }
    }

    #[test]
    fn blocks_are_used_again() {
        let mut blocks = Blocks::new();
        let mut list = List::EMPTY;
        for round in 0..10 {
            let numbers: Vec<u32> = (0..6 * SIZE).map(|at| list.push(&mut blocks, at)).collect();
            numbers
                .into_iter()
                .for_each(|number| list.remove(&mut blocks, number));
            assert_eq!(blocks.blocks.len(), 6, "{round}");
        }
    }
}

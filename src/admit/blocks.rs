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

/// The blocks of all lists.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    chairs: Vec<[u32; SIZE as usize]>,
    /// The first of those that nobody uses; each has the next.
    spare: u32,
}

/// Waiters in a row.
#[derive(Debug, Clone, Copy)]
struct Block {
    prev: u32,
    next: u32,
    /// Which of its chairs are still in the list. Never none of them, as long as the block is in it.
    taken: u32,
    /// How many chairs were ever put in.
    filled: u32,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Vec::new(),
            chairs: Vec::new(),
            spare: NONE,
        }
    }

    fn block(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    fn add(&mut self, prev: u32) -> u32 {
        let block = Block {
            prev,
            next: NONE,
            taken: 0,
            filled: 0,
        };
        if self.spare == NONE {
            self.blocks.push(block);
            self.chairs.push([NONE; SIZE as usize]);
            return (self.blocks.len() - 1) as u32;
        }
        let index = self.spare;
        let spare = self.block(index);
        let next = spare.next;
        *spare = block;
        self.spare = next;
        index
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

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts a chair at the end, and says by which number it is found in the list again.
    #[inline]
    pub(crate) fn push(&mut self, blocks: &mut Blocks, at: u32) -> u32 {
        let block = match blocks.blocks.get_mut(self.last as usize) {
            Some(block) if block.filled < SIZE => block,
            _ => self.grow(blocks),
        };
        let nth = block.filled;
        block.filled += 1;
        block.taken |= 1 << nth;
        blocks.chairs[self.last as usize][(nth % SIZE) as usize] = at;
        self.last * SIZE + nth
    }

    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, number: u32) {
        let index = number / SIZE;
        let block = blocks.block(index);
        let bit = 1 << (number % SIZE);
        debug_assert_ne!(block.taken & bit, 0, "somebody leaves twice");
        block.taken &= !bit;
        if block.taken == 0 {
            self.shrink(blocks, index);
        }
    }

    #[inline]
    pub(crate) fn head(&self, blocks: &Blocks) -> Option<u32> {
        let first = blocks.blocks.get(self.first as usize)?;
        let nth = first.taken.trailing_zeros();
        Some(blocks.chairs[self.first as usize][(nth % SIZE) as usize])
    }

    #[inline]
    pub(crate) fn tail(&self, blocks: &Blocks) -> Option<u32> {
        let last = blocks.blocks.get(self.last as usize)?;
        let nth = last.taken.ilog2();
        Some(blocks.chairs[self.last as usize][(nth % SIZE) as usize])
    }

    /// Everyone, in order.
    pub(crate) fn iter(self, blocks: &Blocks) -> impl Iterator<Item = u32> {
        let block = |index: u32| {
            blocks
                .blocks
                .get(index as usize)
                .map(|block| (index, block))
        };
        std::iter::successors(block(self.first), move |(_, before)| block(before.next)).flat_map(
            |(index, block)| {
                let chairs = (0..).zip(blocks.chairs[index as usize]);
                let taken = chairs.filter(|(nth, _)| block.taken & (1 << nth) != 0);
                taken.map(|(_, at)| at)
            },
        )
    }

    #[inline(never)]
    fn grow<'a>(&mut self, blocks: &'a mut Blocks) -> &'a mut Block {
        let new = blocks.add(self.last);
        match self.last {
            NONE => self.first = new,
            last => blocks.block(last).next = new,
        }
        self.last = new;
        blocks.block(new)
    }

    #[inline(never)]
    fn shrink(&mut self, blocks: &mut Blocks, index: u32) {
        let Block { prev, next, .. } = *blocks.block(index);
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
            let numbers: Vec<u32> = (0..100).map(|at| list.push(&mut blocks, at)).collect();
            numbers
                .into_iter()
                .for_each(|number| list.remove(&mut blocks, number));
            assert_eq!(
                blocks.blocks.len(),
                100_usize.div_ceil(SIZE as usize),
                "{round}"
            );
        }
    }
}

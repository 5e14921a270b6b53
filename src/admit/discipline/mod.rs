//! Who goes next among the waiters of one level in one lane.
//!
//! A [`Queue`] is one level of one lane. It names its head together with a [`Turn`], which is comparable
//! between lanes: where two lanes can use the same slot, the lower turn goes first.

mod deadline;
mod fair;
mod fifo;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::chairs::Chairs;
use super::{Discipline, WaitingRoomConfig};
use deadline::Deadline;
use fair::Fair;
pub(crate) use fifo::Fifo;

/// When it is a head's turn: the discipline's key, then who came to it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// The key, in two words: one of 128 bits would take two words more.
    key: (u64, u64),
    first: u64,
}

impl Turn {
    /// Nobody's.
    const LAST: Self = Self {
        key: (u64::MAX, u64::MAX),
        first: u64::MAX,
    };

    #[inline]
    fn new(high: u64, low: u64, first: u64) -> Self {
        let key = (high, low);
        Self { key, first }
    }

    fn of_tag(tag: u128, first: u64) -> Self {
        Self::new((tag >> 64) as u64, tag as u64, first)
    }

    fn tag(self) -> u128 {
        u128::from(self.key.0) << 64 | u128::from(self.key.1)
    }
}

/// How far a tenant has come in its round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The virtual time at which its head's service begins.
    pub(crate) start: u128,
    /// Since when its head has its turn.
    pub(crate) turn: u64,
}

/// One level of one lane, in the order of the discipline.
#[derive(Debug)]
pub(crate) enum Queue {
    Fifo(Fifo),
    Fair(Box<Fair>),
    Deadline(Deadline),
}

impl Queue {
    pub(crate) fn new(discipline: Discipline) -> Self {
        match discipline {
            Discipline::Fifo => Self::Fifo(Fifo::new()),
            Discipline::Fair => Self::Fair(Box::default()),
            Discipline::Deadline => Self::Deadline(Deadline::new()),
        }
    }

    /// Lines up `at`, and says whether somebody else may be next now.
    #[inline]
    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        standing: Standing,
        config: &WaitingRoomConfig,
    ) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(chairs, at),
            Self::Fair(queue) => queue.push(chairs, at, standing, &config.weights),
            Self::Deadline(queue) => queue.push(chairs, at),
        }
    }

    /// Takes `at` out because it got a slot, and says at which virtual time it was due. Whoever is next of
    /// its tenant has the turn `turn`.
    #[inline]
    pub(crate) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32, turn: u64) -> u128 {
        match self {
            Self::Fair(queue) => queue.serve(chairs, at, turn),
            _ => {
                self.remove(chairs, at);
                0
            }
        }
    }

    /// How far the tenant of a waiter of this queue has come, if tenants take turns.
    pub(crate) fn standing<T>(&self, chairs: &Chairs<T>, at: u32) -> Option<Standing> {
        match self {
            Self::Fair(queue) => Some(queue.standing(chairs, at)),
            _ => None,
        }
    }

    /// Whether somebody else may be next if one who is not leaves.
    #[inline]
    pub(crate) fn depends_on_others(&self) -> bool {
        // A cheaper one of the same tenant.
        matches!(self, Self::Fair(_))
    }

    /// Takes `at` out for any other reason.
    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match self {
            Self::Fifo(queue) => queue.remove(chairs, at),
            Self::Fair(queue) => queue.remove(chairs, at),
            Self::Deadline(queue) => queue.remove(chairs, at),
        }
    }

    /// Takes `at` out until it is put back. Its tenant keeps its standing.
    pub(crate) fn skip<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match self {
            Self::Fair(queue) => queue.skip(chairs, at),
            _ => self.remove(chairs, at),
        }
    }

    /// Puts `at` back, and says whether somebody else may be next now.
    pub(crate) fn restore<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(chairs, at),
            Self::Fair(queue) => queue.restore(chairs, at),
            Self::Deadline(queue) => queue.push(chairs, at),
        }
    }

    /// Who goes next.
    #[inline]
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        match self {
            Self::Fifo(queue) => queue.head(chairs),
            Self::Fair(queue) => queue.head(chairs),
            Self::Deadline(queue) => queue.head(chairs),
        }
    }

    /// When it is the turn of who goes next.
    #[inline]
    pub(crate) fn turn<T>(&self, chairs: &Chairs<T>, head: u32) -> Turn {
        match self {
            Self::Fifo(_) => fifo::turn(chairs, head),
            Self::Fair(queue) => queue.turn(),
            Self::Deadline(_) => deadline::turn(chairs, head),
        }
    }

    /// Gives back memory that the waiters of now do not need.
    pub(crate) fn trim<T>(&mut self, chairs: &mut Chairs<T>) {
        if let Self::Fair(queue) = self {
            queue.trim(chairs);
        }
    }

    /// Everyone, for a [`forecast`].
    pub(crate) fn strands<T>(&self, chairs: &Chairs<T>, strands: &mut Vec<Strand>) {
        match self {
            Self::Fifo(queue) => strands.extend(queue.strands(chairs)),
            Self::Fair(queue) => strands.extend(queue.strands(chairs)),
            Self::Deadline(queue) => strands.extend(queue.strands(chairs)),
        }
    }
}

/// Waiters who go one after the other, whoever else goes in between.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Strand {
    /// The turn of its head.
    turn: Turn,
    weight: u128,
    /// The head is last.
    line: Vec<u32>,
}

impl Strand {
    fn one(turn: Turn, at: u32) -> Self {
        Self::new(turn, 1, vec![at])
    }

    fn new(turn: Turn, weight: u128, mut line: Vec<u32>) -> Self {
        line.reverse();
        Self { turn, weight, line }
    }
}

/// The order in which all of one level would be served if nobody else came. `turns` have been given out.
pub(crate) fn forecast<T>(chairs: &Chairs<T>, strands: Vec<Strand>, mut turns: u64) -> Vec<u32> {
    let mut strands: BinaryHeap<Reverse<Strand>> = strands.into_iter().map(Reverse).collect();
    let mut order = Vec::new();
    while let Some(Reverse(mut strand)) = strands.pop() {
        order.extend(strand.line.pop());
        if let Some(&next) = strand.line.last() {
            turns += 1;
            let price = fair::price(chairs.cost(next), strand.weight);
            strand.turn = Turn::of_tag(strand.turn.tag() + price, turns);
            strands.push(Reverse(strand));
        }
    }
    order
}

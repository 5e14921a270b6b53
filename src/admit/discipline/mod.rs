//! Who goes next among the waiters of one level in one lane.
//!
//! A [`Queue`] is one level of one lane. It names its head together with a [`Turn`], which is comparable
//! between lanes: where two lanes can use the same slot, the lower turn goes first.

mod deadline;
mod fair;
mod fifo;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::chairs::{Chairs, Place};
use super::{Discipline, RoomConfig};
use deadline::Deadline;
use fair::Fair;
use fifo::Fifo;

/// When it is a head's turn: the discipline's key, then who came to it first.
pub(crate) type Turn = (u128, u64);

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
    pub(crate) fn new(discipline: Discipline, epoch: Instant) -> Self {
        match discipline {
            Discipline::Fifo => Self::Fifo(Fifo::new()),
            Discipline::Fair => Self::Fair(Box::default()),
            Discipline::Deadline => Self::Deadline(Deadline::new(epoch)),
        }
    }

    /// Lines up `at`, and says whether somebody else may be next now.
    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        standing: Standing,
        config: &RoomConfig,
    ) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(chairs, at),
            Self::Fair(queue) => queue.push(chairs, at, standing, &config.weights),
            Self::Deadline(queue) => queue.push(chairs, at),
        }
    }

    /// Takes `at` out because it got a slot, and says at which virtual time it was due. Whoever is next of
    /// its tenant has the turn `turn`.
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
    pub(crate) fn standing(&self, place: &Place) -> Option<Standing> {
        match self {
            Self::Fair(queue) => Some(queue.standing(place)),
            _ => None,
        }
    }

    /// Takes `at` out for any other reason.
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match self {
            Self::Fifo(queue) => queue.remove(chairs, at),
            Self::Fair(queue) => queue.remove(chairs, at),
            Self::Deadline(queue) => queue.remove(chairs, at),
        }
    }

    /// Takes `at` out for a moment.
    pub(crate) fn set_aside<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match self {
            Self::Fair(queue) => queue.set_aside(chairs, at),
            _ => self.remove(chairs, at),
        }
    }

    /// Puts `at` back where it stood, and says whether somebody else may be next now.
    pub(crate) fn put_back<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        match self {
            Self::Fifo(queue) => queue.push(chairs, at),
            Self::Fair(queue) => queue.put_back(chairs, at),
            Self::Deadline(queue) => queue.push(chairs, at),
        }
    }

    /// Who goes next, and when it is their turn.
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<(u32, Turn)> {
        match self {
            Self::Fifo(queue) => queue.head(chairs),
            Self::Fair(queue) => queue.head(chairs),
            Self::Deadline(queue) => queue.head(),
        }
    }

    /// Everyone, for a [`forecast`].
    pub(crate) fn strands<T>(&self, chairs: &Chairs<T>, strands: &mut Vec<Strand>) {
        match self {
            Self::Fifo(queue) => strands.extend(queue.strands(chairs)),
            Self::Fair(queue) => strands.extend(queue.strands(chairs)),
            Self::Deadline(queue) => strands.extend(queue.strands()),
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
            let price = fair::price(chairs.place(next).cost(), strand.weight);
            strand.turn = (strand.turn.0 + price, turns);
            strands.push(Reverse(strand));
        }
    }
    order
}

//! Who goes next among the waiters of one level in one lane.
//!
//! A [`Queue`] is one level of one lane. It names its head together with a [`Turn`], which is comparable
//! between lanes: where two lanes can use the same slot, the lower turn goes first.

mod deadline;
mod fair;
mod fifo;

use std::time::Instant;

use super::chairs::Chairs;
use super::{Discipline, RoomConfig};
use deadline::Deadline;
use fair::Fair;
use fifo::Fifo;

/// When it is a head's turn: the discipline's key, then who came to it first.
pub(crate) type Turn = (u128, u64);

/// The virtual time of one level, over all lanes: how much service a tenant that never stopped waiting has
/// had, and how many turns were given out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VirtualTime {
    served: u128,
    turns: u64,
}

impl VirtualTime {
    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }
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

    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        time: &mut VirtualTime,
        config: &RoomConfig,
    ) {
        match self {
            Self::Fifo(queue) => queue.push(chairs, at),
            Self::Fair(queue) => queue.push(chairs, at, time, &config.weights),
            Self::Deadline(queue) => queue.push(chairs, at),
        }
    }

    /// Takes `at` out because it got a slot.
    pub(crate) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32, time: &mut VirtualTime) {
        match self {
            Self::Fair(queue) => queue.serve(chairs, at, time),
            _ => self.remove(chairs, at),
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

    /// Who goes next, and when it is their turn.
    pub(crate) fn head<T>(&self, chairs: &Chairs<T>) -> Option<(u32, Turn)> {
        match self {
            Self::Fifo(queue) => queue.head(chairs),
            Self::Fair(queue) => queue.head(chairs),
            Self::Deadline(queue) => queue.head(),
        }
    }

    /// Everyone with the turn that they would have if nobody else came.
    pub(crate) fn forecast<T>(&self, chairs: &Chairs<T>) -> Vec<(Turn, u32)> {
        match self {
            Self::Fifo(queue) => queue.forecast(chairs),
            Self::Fair(queue) => queue.forecast(chairs),
            Self::Deadline(queue) => queue.forecast(),
        }
    }
}

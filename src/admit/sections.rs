//! Who waits in which section of the room.
//!
//! In a room without sections, requests for the one model that everybody wants take every chair, and those for
//! all others are turned away. A section has chairs of its own, and where one may have to get up for another, an
//! order of arrival of its own, so that whoever has to go when it is full is found at once.
//!
//! Nothing is kept of a section whose chairs are not limited, or in which nobody waits.

use std::collections::HashMap;

use super::Partition;
use super::chairs::{Chairs, SECTION};
use super::line::ByLevel;

/// The sections that have chairs of their own, and in which somebody waits.
#[derive(Debug)]
pub(crate) struct Sections {
    by_id: HashMap<u32, Taken>,
    levels: usize,
}

/// The chairs of one section.
#[derive(Debug)]
struct Taken {
    max_size: Option<usize>,
    waiting: usize,
    arrivals: ByLevel<SECTION>,
}

impl Sections {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            by_id: HashMap::new(),
            levels,
        }
    }

    /// The waiter on chair `at` waits in `section` from now on; `in_order`, if the order matters.
    pub(crate) fn enter<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        section: Partition,
        in_order: bool,
        at: u32,
    ) {
        let taken = self.by_id.entry(section.id).or_insert_with(|| Taken {
            max_size: None,
            waiting: 0,
            arrivals: ByLevel::new(self.levels),
        });
        taken.max_size = section.max_size;
        taken.waiting += 1;
        if in_order {
            taken.arrivals.push(chairs, at);
        }
    }

    /// It waits there no longer.
    pub(crate) fn leave<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        section: u32,
        in_order: bool,
        at: u32,
    ) {
        if let Some(taken) = self.by_id.get_mut(&section) {
            if in_order {
                taken.arrivals.remove(chairs, at);
            }
            taken.waiting -= 1;
            if taken.waiting == 0 {
                self.by_id.remove(&section);
            }
        }
    }

    /// Whether more wait there than it has chairs.
    pub(crate) fn is_overfull(&self, section: Partition) -> bool {
        section.max_size.is_some() && self.by_id.get(&section.id).is_some_and(Taken::is_overfull)
    }

    /// Whether this is so anywhere.
    pub(crate) fn any_overfull(&self) -> bool {
        self.by_id.values().any(Taken::is_overfull)
    }

    /// Who has to go first if somebody must.
    pub(crate) fn lowest_and_latest<T>(&self, chairs: &Chairs<T>, section: u32) -> Option<u32> {
        let taken = self.by_id.get(&section)?;
        taken.arrivals.lowest_and_latest(chairs)
    }
}

impl Taken {
    fn is_overfull(&self) -> bool {
        self.max_size.is_some_and(|max| self.waiting > max)
    }
}

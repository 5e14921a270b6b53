//! Segments of time: requests that were stored in the same one are dropped from the disk together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::time::Time;
use super::super::write::Write;

/// The segments, by the time at which they begin, in seconds since 1970.
pub(super) struct Segments {
    /// The length of new ones, in seconds.
    length: u32,
    all: BTreeMap<u32, Segment>,
}

#[derive(Debug)]
struct Segment {
    /// The number of its requests that are in memory.
    held: u64,
    /// The time at which the last of the ended ones is forgotten.
    until: Time,
    /// `true` if it is written down that all have ended.
    is_sealed: bool,
}

impl Segments {
    /// The shortest length in seconds, so that a short retention does not make many of them.
    const SHORTEST: u32 = 60;

    pub(super) fn new(retention: Duration) -> Self {
        let length = u32::try_from((retention / 8).as_secs()).unwrap_or(u32::MAX);
        Self {
            length: length.max(Self::SHORTEST),
            all: BTreeMap::new(),
        }
    }

    /// Returns the segment of a request that is stored now. It is never before one that there is, also where the clock was
    /// set back, or the length was changed: requests of later segments are newer.
    pub(super) fn current(&self, now: Time) -> u32 {
        let latest = self.all.last_key_value();
        self.at(now).max(latest.map_or(0, |(segment, _)| *segment))
    }

    fn at(&self, time: Time) -> u32 {
        let seconds = u32::try_from(time.micros() / 1_000_000).unwrap_or(u32::MAX);
        seconds - seconds % self.length
    }

    /// Returns the time from which no new request is in a segment.
    fn end(&self, segment: u32) -> Time {
        let end = u64::from(segment - segment % self.length) + u64::from(self.length);
        Time::from_micros(1_000_000 * end)
    }

    fn entry(&mut self, segment: u32) -> &mut Segment {
        self.all.entry(segment).or_insert(Segment {
            held: 0,
            until: Time::from_micros(0),
            is_sealed: false,
        })
    }

    /// Notes a segment that was written down.
    pub(super) fn recover(&mut self, segment: u32) {
        self.entry(segment);
    }

    /// Notes a segment of which it is written down that all its requests have ended.
    pub(super) fn recover_sealed(&mut self, segment: u32, until: Time) {
        let entry = self.entry(segment);
        (entry.until, entry.is_sealed) = (until, true);
    }

    /// Notes that an ended request of a segment is kept until then.
    pub(super) fn keep(&mut self, segment: u32, until: Time) {
        let entry = self.entry(segment);
        entry.until = entry.until.max(until);
    }

    /// Notes one more request of a segment in memory. Returns `true` if it is written down that all had ended.
    pub(super) fn enter(&mut self, segment: u32) -> bool {
        let entry = self.entry(segment);
        entry.held += 1;
        std::mem::take(&mut entry.is_sealed)
    }

    /// Notes one request less of a segment in memory.
    pub(super) fn leave(&mut self, segment: u32) {
        self.entry(segment).held -= 1;
    }

    /// Seals segments of which no request is in memory, and drops those whose last request is forgotten. `latest`: the number
    /// of the latest request of all.
    pub(super) fn advance(&mut self, now: Time, latest: u64, writes: &mut Vec<Write>) {
        let current = self.at(now);
        let mut dropped = Vec::new();
        for (&number, segment) in self.all.range_mut(..current) {
            if segment.held > 0 {
                continue;
            }
            if segment.until <= now {
                dropped.push(number);
            } else if !segment.is_sealed {
                segment.is_sealed = true;
                writes.push(Write::Sealed {
                    segment: number,
                    until: segment.until,
                    latest,
                });
            }
        }
        for number in dropped {
            self.all.remove(&number);
            writes.push(Write::DropSegment(number));
        }
    }

    /// Returns the time at which to call [`advance`](Self::advance) next.
    pub(super) fn next_event(&self) -> Option<Time> {
        let empty = self.all.iter().filter(|(_, segment)| segment.held == 0);
        let due = empty.map(|(&number, segment)| match segment.is_sealed {
            true => segment.until.max(self.end(number)),
            false => self.end(number),
        });
        due.min()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

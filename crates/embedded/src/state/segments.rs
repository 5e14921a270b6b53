//! Segments of time. Requests that were stored in the same segment are dropped from the disk together.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::super::time::Time;
use super::super::write::Write;

/// The segments, by the time at which they begin, in seconds since 1970.
pub(super) struct Segments {
    /// The length of new segments, in seconds.
    length: u32,
    all: BTreeMap<u32, Segment>,
    /// The bytes of all segments, by tenant.
    bytes: HashMap<Vec<u8>, u64>,
}

#[derive(Debug)]
struct Segment {
    /// The number of the segment's requests that are in memory.
    held: u64,
    /// The time at which the last ended request of the segment is forgotten.
    until: Time,
    /// `true` if the disk says that all requests of the segment have ended.
    is_sealed: bool,
    /// The time from which the bytes of its forgotten requests may be dropped, although others are in memory. `None` if
    /// there are none.
    drops_bytes: Option<Time>,
    /// The bytes of the requests of each tenant and of their responses.
    bytes: HashMap<Vec<u8>, u64>,
}

impl Segments {
    /// The shortest length of a segment in seconds, so that a short retention does not create many of them.
    const SHORTEST: u32 = 60;

    /// Returns an empty set of segments. New ones last an eighth of the retention.
    pub(super) fn new(retention: Duration) -> Self {
        let length = u32::try_from((retention / 8).as_secs()).unwrap_or(u32::MAX);
        Self {
            length: length.max(Self::SHORTEST),
            all: BTreeMap::new(),
            bytes: HashMap::new(),
        }
    }

    /// Returns the segment for a request that is stored now. It is never earlier than an existing one, even if the
    /// clock was set back or the length was changed. So requests of later segments are always newer.
    pub(super) fn current(&self, now: Time) -> u32 {
        let latest = self.all.last_key_value();
        self.at(now).max(latest.map_or(0, |(segment, _)| *segment))
    }

    fn at(&self, time: Time) -> u32 {
        let seconds = u32::try_from(time.micros() / 1_000_000).unwrap_or(u32::MAX);
        seconds - seconds % self.length
    }

    /// Returns the time from which a segment gets no further requests.
    fn end(&self, segment: u32) -> Time {
        let end = u64::from(segment - segment % self.length) + u64::from(self.length);
        Time::from_micros(1_000_000 * end)
    }

    fn entry(&mut self, segment: u32) -> &mut Segment {
        self.all.entry(segment).or_insert(Segment {
            held: 0,
            until: Time::from_micros(0),
            is_sealed: false,
            drops_bytes: None,
            bytes: HashMap::new(),
        })
    }

    /// Adds a segment that is on the disk.
    pub(super) fn recover(&mut self, segment: u32) {
        self.entry(segment);
    }

    /// Adds a sealed segment. The last of its requests is forgotten at `until`.
    pub(super) fn recover_sealed(&mut self, segment: u32, until: Time) {
        let entry = self.entry(segment);
        (entry.until, entry.is_sealed) = (until, true);
    }

    /// Records that an ended request of a segment is kept until the given time.
    pub(super) fn keep(&mut self, segment: u32, until: Time) {
        let entry = self.entry(segment);
        entry.until = entry.until.max(until);
        entry.drops_bytes = Some(entry.until);
    }

    /// Counts one more request of a segment in memory. Returns `true` if the segment was sealed, which it is no longer.
    pub(super) fn enter(&mut self, segment: u32) -> bool {
        let entry = self.entry(segment);
        entry.held += 1;
        std::mem::take(&mut entry.is_sealed)
    }

    /// Counts one request less of a segment in memory.
    pub(super) fn leave(&mut self, segment: u32) {
        self.entry(segment).held -= 1;
    }

    /// Counts bytes that a tenant has stored in a segment, until the segment is dropped.
    pub(super) fn add_bytes(&mut self, segment: u32, tenant: &[u8], bytes: u64) {
        add_to(&mut self.entry(segment).bytes, tenant, bytes);
        add_to(&mut self.bytes, tenant, bytes);
    }

    /// Returns the bytes that a tenant has stored in all segments.
    pub(super) fn bytes_of(&self, tenant: &[u8]) -> u64 {
        self.bytes.get(tenant).copied().unwrap_or(0)
    }

    /// Takes back bytes that were [added](Self::add_bytes).
    pub(super) fn undo_bytes(&mut self, segment: u32, tenant: &[u8], bytes: u64) {
        take_from(&mut self.entry(segment).bytes, tenant, bytes);
        take_from(&mut self.bytes, tenant, bytes);
    }

    /// Counts only these bytes of a segment, by tenant, because the others were dropped.
    pub(super) fn keep_bytes<'a>(
        &mut self,
        segment: u32,
        kept: impl Iterator<Item = (&'a [u8], u64)>,
    ) {
        let dropped = std::mem::take(&mut self.entry(segment).bytes);
        self.forget_bytes(dropped);
        kept.for_each(|(tenant, bytes)| self.add_bytes(segment, tenant, bytes));
    }

    fn forget_bytes(&mut self, dropped: HashMap<Vec<u8>, u64>) {
        for (tenant, bytes) in dropped {
            take_from(&mut self.bytes, &tenant, bytes);
        }
    }

    /// Seals segments that have all their requests on the disk only, and drops segments once their last request is
    /// forgotten. `latest` is the number of the latest request of the store.
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
                    bytes: segment.bytes.clone().into_iter().collect(),
                });
            }
        }
        for number in dropped {
            if let Some(segment) = self.all.remove(&number) {
                self.forget_bytes(segment.bytes);
            }
            writes.push(Write::DropSegment(number));
        }
    }

    /// Returns the segments in which all ended requests are forgotten, while others are in memory. They are returned once,
    /// until another request ends.
    pub(super) fn take_held_up(&mut self, now: Time) -> Vec<u32> {
        let current = self.at(now);
        let mut held_up = Vec::new();
        for (&number, segment) in self.all.range_mut(..current) {
            if segment.held > 0 && segment.drops_bytes.is_some_and(|time| time <= now) {
                segment.drops_bytes = None;
                held_up.push(number);
            }
        }
        held_up
    }

    /// Lets a segment be returned by [`take_held_up`](Self::take_held_up) again at a later time.
    pub(super) fn hold_up_until(&mut self, segment: u32, time: Time) {
        self.entry(segment).drops_bytes = Some(time);
    }

    /// Returns the time at which to call [`advance`](Self::advance) next.
    pub(super) fn next_event(&self) -> Option<Time> {
        let due = self.all.iter().filter_map(|(&number, segment)| {
            let end = self.end(number);
            match (segment.held, segment.is_sealed) {
                (0, true) => Some(segment.until.max(end)),
                (0, false) => Some(end),
                (_, _) => segment.drops_bytes.map(|time| time.max(end)),
            }
        });
        due.min()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

fn add_to(counts: &mut HashMap<Vec<u8>, u64>, tenant: &[u8], bytes: u64) {
    match counts.get_mut(tenant) {
        Some(count) => *count += bytes,
        None => drop(counts.insert(tenant.to_vec(), bytes)),
    }
}

fn take_from(counts: &mut HashMap<Vec<u8>, u64>, tenant: &[u8], bytes: u64) {
    if let Some(count) = counts.get_mut(tenant) {
        *count -= bytes;
        if *count == 0 {
            counts.remove(tenant);
        }
    }
}

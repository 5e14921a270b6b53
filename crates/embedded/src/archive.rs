//! The requests in the database. Once a request has ended, the database holds its only copy.

use std::collections::HashMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use bytes::{Bytes, BytesMut};

use super::clock::ClockRow;
use super::keys::{self, Kind, Name};
use super::rows::{PauseRow, RequestRow, Retention, StateRow, Stored, decode};
use super::state::Recovery;
use super::storage::{Order, Storage, Table};
use super::time::Time;
use super::write::{CLOCK, PAUSES, RESPONSE_PART, sealed};
use tower_triage::PriorityLevels;
use tower_triage_durable::{Chunk, Page, RequestId, RequestStatus, ResponsePart, StoreError};

/// A reader of the requests in a database, which have these levels now.
#[derive(Clone, Copy)]
pub(crate) struct Archive<'a>(pub(crate) &'a dyn Storage, pub(crate) &'a PriorityLevels);

/// The number of bytes from which on a reader of pieces gets no more of them at a time.
const CHUNKS_AT_ONCE: usize = 16 << 10;

/// The number of bytes from which on a reader of values gets no more of them at a time.
const VALUES_AT_ONCE: usize = 64 << 10;

/// The selection of requests for one page of a list.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) tenant: Option<Vec<u8>>,
    /// The final status to select, or `None` for requests of any status.
    pub(crate) ended: Option<RequestStatus>,
    pub(crate) limit: usize,
    /// The upper bound: only requests with smaller numbers are selected.
    pub(crate) before: u64,
    pub(crate) retention: Retention,
}

impl Archive<'_> {
    /// Returns a request by its id.
    pub(crate) fn by_id(self, id: RequestId) -> Result<Option<Stored>, StoreError> {
        self.find(&keys::id(id), |row| row.id() == id)
    }

    /// Returns a request by its idempotency key.
    pub(crate) fn by_key(self, key: &Name) -> Result<Option<Stored>, StoreError> {
        self.find(&keys::idempotency(key), |row| {
            row.key.as_ref().is_some_and(|found| found.name == *key)
        })
    }

    /// Returns the newest request that is stored under a key. `is_meant` checks the request itself, because keys may be
    /// hashes.
    fn find(
        self,
        key: &[u8],
        is_meant: impl Fn(&RequestRow) -> bool,
    ) -> Result<Option<Stored>, StoreError> {
        for segment in self.0.segments()?.into_iter().rev() {
            if let Some(number) = self.0.get(Table::Rows(segment), key)? {
                let found = self.by_seq(segment, seq(&number)?)?;
                return Ok(found.filter(|found| is_meant(&found.row)));
            }
        }
        Ok(None)
    }

    fn by_seq(self, segment: u32, seq: u64) -> Result<Option<Stored>, StoreError> {
        let get = |kind| self.0.get(Table::Rows(segment), &keys::row(kind, seq));
        let row = match get(Kind::Listed)? {
            Some(row) => row,
            None => match get(Kind::Unlisted)? {
                Some(row) => row,
                None => return Ok(None),
            },
        };
        let row = RequestRow::read(&row, self.1)?;
        let state = get(Kind::State)?;
        let state = state.map(|state| decode(&state, "the state of a request"));
        Ok(Some(Stored {
            segment,
            row,
            state: state.transpose()?,
        }))
    }

    /// Returns the body of a request.
    pub(crate) fn body(self, segment: u32, seq: u64) -> Result<Option<Bytes>, StoreError> {
        match self.0.get(Table::Bytes(segment), &keys::body(seq))? {
            Some(body) => Ok(Some(body)),
            None => self.0.get(Table::Rows(segment), &keys::kept_body(seq)),
        }
    }

    /// Returns the response to a request.
    pub(crate) fn response(self, segment: u32, seq: u64) -> Result<Option<Bytes>, StoreError> {
        let Some(first) = self.response_part(segment, seq, 0, usize::MAX)? else {
            return Ok(None);
        };
        if first.data.len() as u64 >= first.length {
            return Ok(Some(first.data));
        }
        let mut whole = BytesMut::from(&first.data[..]);
        while (whole.len() as u64) < first.length {
            let part = self.response_part(segment, seq, whole.len() as u64, usize::MAX)?;
            let part = part.filter(|part| !part.data.is_empty());
            let part = part.ok_or_else(|| unreadable("a part of a response"))?;
            whole.extend_from_slice(&part.data);
        }
        Ok(Some(whole.freeze()))
    }

    /// Returns at most `max` bytes of the response to a request, beginning at byte `offset`. A part ends with its row.
    pub(crate) fn response_part(
        self,
        segment: u32,
        seq: u64,
        offset: u64,
        max: usize,
    ) -> Result<Option<ResponsePart>, StoreError> {
        let table = Table::Bytes(segment);
        if let Some(whole) = self.0.get(table, &keys::response(seq))? {
            return Ok(Some(ResponsePart::of(&whole, offset, max)));
        }
        let Some(length) = self.0.get(table, &keys::response_length(seq))? else {
            return Ok(None);
        };
        let length = number(&length)?;
        let (index, within) = (offset / RESPONSE_PART as u64, offset % RESPONSE_PART as u64);
        let part = self.0.get(table, &keys::response_part(seq, index))?;
        let part = match part {
            Some(part) => ResponsePart::of(&part, within, max).data,
            None if offset >= length => Bytes::new(),
            None => return Err(unreadable("a part of a response")),
        };
        Ok(Some(ResponsePart { data: part, length }))
    }

    /// Returns the pieces of a response from number `first` to number `last`. Of many pieces, it returns only the first
    /// [`CHUNKS_AT_ONCE`] bytes.
    pub(crate) fn chunks(
        self,
        segment: u32,
        seq: u64,
        first: u64,
        last: u64,
    ) -> Result<Vec<Chunk>, StoreError> {
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        if first > last {
            return Ok(chunks);
        }
        let (from, to) = (keys::chunk(seq, first), keys::chunk(seq, last));
        let keys = (Included(&from[..]), Included(&to[..]));
        let table = Table::Bytes(segment);
        self.0
            .scan(table, keys, Order::Ascending, &mut |key, data| {
                let number = number(key)?;
                let data = Bytes::copy_from_slice(data);
                bytes += data.len();
                chunks.push(Chunk { number, data });
                Ok(bytes < CHUNKS_AT_ONCE)
            })?;
        Ok(chunks)
    }

    /// Returns the number of the last piece of a response, or 0 if there are no pieces.
    fn last_chunk(self, segment: u32, seq: u64) -> Result<u64, StoreError> {
        let (from, to) = (keys::chunk(seq, 0), keys::chunk(seq, u64::MAX));
        let keys = (Included(&from[..]), Included(&to[..]));
        let mut last = 0;
        let table = Table::Bytes(segment);
        self.0.scan(table, keys, Order::Descending, &mut |key, _| {
            last = number(key)?;
            Ok(false)
        })?;
        Ok(last)
    }

    /// Returns listed requests, the newest first.
    pub(crate) fn list(self, part: &Part) -> Result<Page, StoreError> {
        let tenant = part.tenant.as_deref().map(keys::tenant);
        let list = keys::list(tenant.as_ref(), part.ended);
        let mut page = Page::default();
        for segment in self.0.segments()?.into_iter().rev() {
            let mut before = part.before;
            loop {
                let seqs = self.entries(segment, &list, before)?;
                for &seq in &seqs {
                    let Some(stored) = self.by_seq(segment, seq)? else {
                        continue;
                    };
                    if !part.has(&stored) {
                        continue;
                    }
                    if page.requests.len() == part.limit {
                        page.has_more = true;
                        return Ok(page);
                    }
                    page.requests.push(stored.info());
                }
                match seqs.last() {
                    Some(&last) if seqs.len() == STEP => before = last,
                    _ => break,
                }
            }
        }
        Ok(page)
    }

    /// Returns the numbers in a list that are below `before`, the newest first, at most [`STEP`] of them.
    fn entries(self, segment: u32, list: &[u8], before: u64) -> Result<Vec<u64>, StoreError> {
        let (from, to) = (keys::entry(list, 0), keys::entry(list, before));
        let keys = (Included(&from[..]), Excluded(&to[..]));
        let mut seqs = Vec::new();
        let table = Table::Rows(segment);
        self.0.scan(table, keys, Order::Descending, &mut |key, _| {
            seqs.push(seq(key)?);
            Ok(seqs.len() < STEP)
        })?;
        Ok(seqs)
    }

    /// Returns the bytes that the database has left for new data, or `None` if it does not know.
    pub(crate) fn free_bytes(self) -> Result<Option<u64>, StoreError> {
        self.0.free_bytes()
    }

    /// Returns the value that is stored under a key.
    pub(crate) fn value(self, key: &str) -> Result<Option<Bytes>, StoreError> {
        match check_key(key) {
            Ok(()) => self.0.get(Table::Values, key.as_bytes()),
            Err(_) => Ok(None),
        }
    }

    /// Returns up to `max` keys with their values, and no more after [`VALUES_AT_ONCE`] bytes. The keys begin with
    /// `prefix`, come after `after`, and are sorted.
    pub(crate) fn values(
        self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let from = match after {
            Some(after) if after >= prefix => Excluded(after.as_bytes()),
            _ => Included(prefix.as_bytes()),
        };
        let keys = (from, Unbounded);
        let (mut values, mut bytes) = (Vec::new(), 0);
        let visit = &mut |key: &[u8], value: &[u8]| {
            let has_more = values.len() < max && key.starts_with(prefix.as_bytes());
            let has_more = has_more && bytes < VALUES_AT_ONCE;
            if has_more {
                bytes += value.len();
                let key = String::from_utf8(key.to_vec()).map_err(|_| unreadable("a key"))?;
                values.push((key, Bytes::copy_from_slice(value)));
            }
            Ok(has_more)
        };
        self.0.scan(Table::Values, keys, Order::Ascending, visit)?;
        Ok(values)
    }

    /// Returns the row of the store's clock.
    pub(crate) fn clock(self) -> Result<Option<ClockRow>, StoreError> {
        let row = self.0.get(Table::Meta, CLOCK)?;
        row.map(|row| decode(&row, "the clock")).transpose()
    }

    /// Returns the time at which the latest request was stored.
    pub(crate) fn latest(self) -> Result<Option<Time>, StoreError> {
        let mut latest = None;
        let Some(segment) = self.0.segments()?.pop() else {
            return Ok(latest);
        };
        for kind in [Kind::Listed, Kind::Unlisted] {
            let (from, to) = (keys::row(kind, 0), keys::row(kind, u64::MAX));
            let keys = (Included(&from[..]), Included(&to[..]));
            let table = Table::Rows(segment);
            self.0.scan(table, keys, Order::Descending, &mut |key, _| {
                latest = latest.max(Some(Time::of_seq(seq(key)?)));
                Ok(false)
            })?;
        }
        Ok(latest)
    }

    /// Loads the rows that the state needs in memory: the pauses, and the requests that have not ended.
    pub(crate) fn recover(self, recovery: &mut Recovery<'_>) -> Result<(), StoreError> {
        if let Some(pauses) = self.0.get(Table::Meta, PAUSES)? {
            let pauses: Vec<PauseRow> = decode(&pauses, "the pauses")?;
            recovery.pauses(pauses);
        }
        for segment in self.0.segments()? {
            match self.0.get(Table::Meta, &sealed(segment))? {
                Some(row) => recovery.sealed(segment, &decode(&row, "a segment")?),
                None => self.recover_segment(segment, recovery)?,
            }
        }
        Ok(())
    }

    fn recover_segment(self, segment: u32, recovery: &mut Recovery<'_>) -> Result<(), StoreError> {
        recovery.segment(segment);
        // Most requests have ended, and the recovery needs only their numbers, and their bytes until they are forgotten.
        let mut ended = Vec::new();
        let mut states: HashMap<u64, StateRow> = HashMap::new();
        self.rows(segment, Kind::State, |seq, row| {
            let row: StateRow = decode(row, "the state of a request")?;
            match row.ended {
                Some(end) if row.webhook_due.is_none() => {
                    let is_kept = recovery.ended(segment, seq, end);
                    ended.push((seq, is_kept.then_some(row.response_bytes)));
                }
                _ => {
                    states.insert(seq, row);
                }
            }
            Ok(())
        })?;
        let mut ran = Vec::new();
        for kind in [Kind::Listed, Kind::Unlisted] {
            let mut ended = ended.iter().copied().peekable();
            self.rows(segment, kind, |seq, row| {
                // Both sequences are sorted by number, so one pass finds the requests that have ended.
                while ended.next_if(|(other, _)| *other < seq).is_some() {}
                if let Some((_, bytes)) = ended.next_if(|(other, _)| *other == seq) {
                    if let Some(bytes) = bytes
                        && let Ok(row) = RequestRow::read(row, self.1)
                    {
                        recovery.bytes(segment, &row.tenant, row.body_bytes + bytes);
                    }
                    return Ok(());
                }
                let state = states.remove(&seq);
                let row = RequestRow::read(row, self.1)?;
                let stored = Stored {
                    segment,
                    row,
                    state,
                };
                match stored.status() {
                    RequestStatus::Starting | RequestStatus::Processing => ran.push(stored),
                    _ => recovery.add(stored, 0),
                }
                Ok(())
            })?;
        }
        for stored in ran {
            // An attempt writes the number of its pieces when it ends. For an attempt that was lost, the pieces are
            // counted here.
            let chunks = self.last_chunk(segment, stored.row.seq)?;
            recovery.add(stored, chunks);
        }
        Ok(())
    }

    /// Visits all rows of a kind in the order of their numbers.
    fn rows(
        self,
        segment: u32,
        kind: Kind,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (from, to) = (keys::row(kind, 0), keys::row(kind, u64::MAX));
        let keys = (Included(&from[..]), Included(&to[..]));
        let table = Table::Rows(segment);
        self.0.scan(table, keys, Order::Ascending, &mut |key, row| {
            visit(seq(key)?, row)?;
            Ok(true)
        })
    }
}

/// The number of list entries that are read at once. They are collected first, because a scan can't read other rows.
const STEP: usize = 128;

impl Part {
    fn has(&self, stored: &Stored) -> bool {
        let tenant = self.tenant.as_ref();
        tenant.is_none_or(|tenant| *tenant == stored.row.tenant)
            && self.ended.is_none_or(|status| status == stored.status())
            && (stored.ended().is_none() || stored.is_kept(self.retention))
    }
}

/// Checks that a key for a value has a valid length, from 1 to 65,535 bytes.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    match key.len() {
        1..=0xffff => Ok(()),
        length => Err(StoreError::Unavailable(format!(
            "a key of {length} bytes: it has 1 to 65,535"
        ))),
    }
}

/// Returns the number of a request, from the end of a key or from a row.
fn seq(key: &[u8]) -> Result<u64, StoreError> {
    keys::seq(key).ok_or_else(|| unreadable("the number of a request"))
}

/// Returns the number of a piece, from the end of its key.
fn number(key: &[u8]) -> Result<u64, StoreError> {
    keys::seq(key).ok_or_else(|| unreadable("the number of a piece"))
}

fn unreadable(what: &str) -> StoreError {
    StoreError::Unavailable(format!("can't read {what}"))
}

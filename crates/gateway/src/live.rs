//! The live requests and the last refusals, for operators to look at and to cancel.
//!
//! Each request has one record, which the router and the response's body update. Records are in shards, so that the threads
//! that serve requests do not wait for each other. A page that looks at them copies only pointers under the locks.

mod key;
mod record;
mod refusals;
mod shards;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::text::truncated;
use key::Key;
pub(crate) use record::{Facts, Record};
use refusals::Refusals;
pub(crate) use shards::Place;
use shards::Shards;

/// Bytes of a name that are shown. Clients choose the length of models and tenants.
pub(crate) const LONGEST_NAME: usize = 256;

/// The live requests and the last refusals. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Inner>);

#[derive(Default)]
struct Inner {
    records: Shards,
    refusals: Refusals,
}

/// One request that has not ended.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LiveRequest {
    /// The name of the request alone. Clients choose the `x-request-id`, so several requests may have the same one.
    pub(crate) key: String,
    /// The `x-request-id`.
    pub(crate) id: String,
    /// The time since the router began with the request.
    pub(crate) age_ms: u64,
    /// The level; null while it is not known. Without a log line, only requests that had to wait have one.
    pub(crate) level: Option<String>,
    /// The tenant; null for the empty one, or while it is not known.
    pub(crate) tenant: Option<String>,
    /// The model that serves the request; until it is known, the one that the request asks for.
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// `reading` the body, `waiting` for a slot, `running` at the endpoint, or `streaming` the answer.
    pub(crate) phase: &'static str,
    /// The time that the request has waited for slots so far.
    pub(crate) wait_ms: u64,
    /// The time from the last call of an endpoint to the head of its answer.
    pub(crate) first_byte_ms: Option<u64>,
    /// The bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// The tokens of the answer so far, where they are counted.
    pub(crate) tokens: Option<u64>,
    /// The number of calls of an endpoint.
    pub(crate) tries: u32,
}

/// The requests that an operator may mean.
#[derive(Debug, PartialEq)]
pub(crate) enum Named {
    /// The only one, with its `x-request-id`. It is cancelled.
    Cancelled { id: String },
    /// Several requests have the `x-request-id`. None of them is cancelled.
    Several { keys: Vec<String> },
    /// The router works on none.
    Nobody,
}

/// A request that was refused, or failed at its endpoint.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Refusal {
    /// The time in seconds since 1970.
    pub(crate) at: u64,
    /// The `x-request-id`.
    pub(crate) id: String,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) level: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Live {
    /// Returns the requests that the router works on, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<LiveRequest> {
        let now = Instant::now();
        let records = self.0.records.all();
        let requests = records.iter().filter_map(|record| live(record, now));
        let mut requests: Vec<_> = requests.collect();
        requests.sort_by_key(|(since, _)| *since);
        requests.into_iter().map(|(_, request)| request).collect()
    }

    /// Returns the last 50 refusals, newest first.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.0.refusals.list()
    }

    /// Cancels the request with this key.
    pub(crate) fn cancel_by_key(&self, key: &str) -> Named {
        self.cancel(|record| record.key.to_string() == key)
    }

    /// Cancels the request with this `x-request-id`, if there is only one.
    pub(crate) fn cancel_by_id(&self, id: &str) -> Named {
        self.cancel(|record| record.id.as_bytes() == id.as_bytes())
    }

    fn cancel(&self, is_meant: impl Fn(&Record) -> bool) -> Named {
        let mut records = self.0.records.all();
        records.retain(|record| is_meant(record) && record.is_routed());
        match &*records {
            [] => Named::Nobody,
            [one] => {
                one.cancel();
                let id = one.id().to_owned();
                Named::Cancelled { id }
            }
            several => {
                let keys = several.iter().map(|record| record.key.to_string());
                let keys = keys.collect();
                Named::Several { keys }
            }
        }
    }

    pub(crate) fn insert(&self, record: &Arc<Record>) -> Place {
        self.0.records.insert(record)
    }

    pub(crate) fn remove(&self, place: Place) {
        self.0.records.remove(place);
    }

    /// Adds a refusal to the last ones.
    pub(crate) fn refused(&self, record: Arc<Record>, status: u16, code: &'static str) {
        self.0.refusals.push(record, status, code);
    }
}

/// Returns the beginning of a request, and the request as pages show it. `None` if the router has not seen it.
fn live(record: &Record, now: Instant) -> Option<(Instant, LiveRequest)> {
    let facts = record.facts();
    let since = facts.since?;
    let request = LiveRequest {
        key: record.key.to_string(),
        id: record.id().to_owned(),
        age_ms: ms(now.saturating_duration_since(since)),
        level: facts.level().map(str::to_owned),
        tenant: facts.tenant(),
        model: facts.model().map(str::to_owned),
        endpoint: facts.endpoint().map(str::to_owned),
        phase: facts.phase.name(),
        wait_ms: ms(facts.waited(now)),
        first_byte_ms: facts.first_byte().map(ms),
        bytes: record.bytes(),
        tokens: facts.tokens,
        tries: facts.tries,
    };
    Some((since, request))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Facts {
    pub(crate) fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// Returns the tenant's name; `None` for the empty one.
    pub(crate) fn tenant(&self) -> Option<String> {
        let name = String::from_utf8_lossy(self.tenant.as_bytes());
        (!name.is_empty()).then(|| truncated(&name, LONGEST_NAME).to_owned())
    }

    /// Returns the model that serves the request, or else the name that it asks for.
    pub(crate) fn model(&self) -> Option<&str> {
        let served = self.decision.as_ref().map(|to| &to.model);
        let name = served.or(self.asked.as_ref())?;
        Some(truncated(name, LONGEST_NAME))
    }

    pub(crate) fn endpoint(&self) -> Option<&str> {
        Some(self.decision.as_ref()?.endpoint.name())
    }
}

#[cfg(test)]
mod tests;

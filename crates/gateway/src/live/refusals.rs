//! The last refusals.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Record, Refusal};

/// The number of refusals that are kept.
const KEPT: usize = 50;

/// The last refusals. The text of each one is made only when a page asks, because a full room refuses many requests.
#[derive(Default)]
pub(super) struct Refusals(Mutex<VecDeque<Refused>>);

struct Refused {
    at: SystemTime,
    record: Arc<Record>,
    status: u16,
    code: &'static str,
}

impl Refusals {
    pub(super) fn push(&self, record: Arc<Record>, status: u16, code: &'static str) {
        let refused = Refused {
            at: SystemTime::now(),
            record,
            status,
            code,
        };
        let mut kept = self.lock();
        let oldest = match kept.len() < KEPT {
            true => None,
            false => kept.pop_front(),
        };
        kept.push_back(refused);
        drop(kept);
        drop(oldest); // once the lock is free
    }

    /// Returns the refusals, newest first.
    pub(super) fn list(&self) -> Vec<Refusal> {
        self.lock().iter().rev().map(Refused::shown).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refused {
    fn shown(&self) -> Refusal {
        let facts = self.record.facts();
        let at = self.at.duration_since(UNIX_EPOCH);
        Refusal {
            at: at.map_or(0, |at| at.as_secs()),
            id: self.record.id().to_owned(),
            status: self.status,
            code: self.code,
            level: facts.level().map(str::to_owned),
            tenant: facts.tenant(),
            model: facts.model().map(str::to_owned),
            endpoint: facts.endpoint().map(str::to_owned),
        }
    }
}

//! The operations for operators and for layers above the store: pauses, depths, totals, webhooks and values.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::reply::{self, Unexpected};
use super::scripts;
use super::shared::Shared;
use tower_triage_durable::{
    DueWebhook, Pause, PauseScope, QueueDepth, QueueEvent, QueueTotal, RequestStatus, StoreError,
};

pub(super) fn scope_name(scope: &PauseScope) -> Vec<u8> {
    match scope {
        PauseScope::All => b"a".to_vec(),
        PauseScope::Queue(queue) => [b"q", queue.as_bytes()].concat(),
        PauseScope::Tenant(tenant) => [b"t", tenant.as_slice()].concat(),
    }
}

/// Returns the total in a field that the function `tally` of the scripts has written.
fn total(field: &str, count: u64) -> Result<QueueTotal, Unexpected> {
    let mut parts = field.splitn(3, ' ');
    let (Some(kind), Some(reason), Some(queue)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Unexpected);
    };
    let event = match kind {
        "lost" => QueueEvent::WorkerLost,
        status => QueueEvent::Ended {
            status: RequestStatus::from_name(status).ok_or(Unexpected)?,
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
        },
    };
    Ok(QueueTotal::new(queue.to_owned(), event, count))
}

impl Shared {
    pub(super) async fn pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let mut pauses = Vec::new();
        let fields = self.link.run(&self.call(&scripts::PAUSES)).await?;
        let mut fields = self.items(fields)?.into_iter();
        while let (Some(scope), Some(pause)) = (fields.next(), fields.next()) {
            let scope = self.read(reply::bytes(scope))?;
            let pause = self.read(reply::text(pause))?;
            let scope = match scope.split_first() {
                Some((b'q', queue)) => {
                    PauseScope::Queue(String::from_utf8_lossy(queue).into_owned())
                }
                Some((b't', tenant)) => PauseScope::Tenant(tenant.to_vec()),
                _ => PauseScope::All,
            };
            let (until, reason) = pause.split_once(' ').unwrap_or(("", ""));
            let until = until.parse().ok().map(Duration::from_millis);
            pauses.push(Pause {
                scope,
                reason: reason.to_owned(),
                until: until.and_then(|until| SystemTime::UNIX_EPOCH.checked_add(until)),
            });
        }
        Ok(pauses)
    }

    pub(super) async fn depths(&self) -> Result<Vec<QueueDepth>, StoreError> {
        let value = self.link.run(&self.call(&scripts::DEPTHS)).await?;
        let [now, levels] = self.read(reply::parts(value))?;
        let now = self.read(reply::time(now))?;
        let mut depths: Vec<QueueDepth> = Vec::new();
        for level in self.items(levels)? {
            let [queue, level, queued, running, oldest] = self.read(reply::parts(level))?;
            let queue = self.read(reply::text(queue))?;
            let mut depth = QueueDepth::empty(queue, self.read(reply::number(level))?);
            depth.queued = self.read(reply::number(queued))?;
            depth.running = self.read(reply::number(running))?;
            let oldest = self.read(reply::maybe(oldest, reply::time))?;
            depth.oldest = oldest.map(|oldest| now.duration_since(oldest).unwrap_or_default());
            // Two stored levels are one here if this process does not know one of them.
            let is_same =
                |other: &&mut QueueDepth| other.queue == depth.queue && other.level == depth.level;
            match depths.iter_mut().find(is_same) {
                None => depths.push(depth),
                Some(same) => {
                    same.queued += depth.queued;
                    same.running += depth.running;
                    same.oldest = same.oldest.max(depth.oldest);
                }
            }
        }
        Ok(depths)
    }

    pub(super) async fn totals(&self) -> Result<Vec<QueueTotal>, StoreError> {
        let key = format!("{}:totals", self.namespace);
        let counts = self.link.command(redis::cmd("HGETALL").arg(key)).await?;
        let mut counts = self.items(counts)?.into_iter();
        let mut totals = Vec::new();
        while let (Some(field), Some(count)) = (counts.next(), counts.next()) {
            let field = self.read(reply::text(field))?;
            let count = self.read(reply::number(count))?;
            totals.push(self.read(total(&field, count))?);
        }
        Ok(totals)
    }

    pub(super) async fn due_webhooks(&self, max: usize) -> Result<Vec<DueWebhook>, StoreError> {
        let call = self.call(&scripts::DUE_WEBHOOKS).arg(max);
        let mut due = Vec::new();
        for webhook in self.items(self.link.run(&call).await?)? {
            let [info, url, tries, retries] = self.read(reply::parts(webhook))?;
            due.push(DueWebhook {
                info: self.read(reply::info(info, self.levels()))?,
                url: self.read(reply::text(url))?,
                tries: self.read(reply::number(tries))?,
                retries: self.read(reply::number(retries))?,
            });
        }
        Ok(due)
    }

    pub(super) async fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let begin = match after {
            Some(after) if after >= prefix => [b"(", after.as_bytes()].concat(),
            _ => [b"[", prefix.as_bytes()].concat(),
        };
        // Keys are text, which never contains this byte, so the range covers all keys with the prefix.
        let end = [b"(", prefix.as_bytes(), b"\xff"].concat();
        let call = self.call(&scripts::VALUES).arg(begin).arg(end).arg(max);
        let mut values = Vec::new();
        for pair in self.items(self.link.run(&call).await?)? {
            let [key, value] = self.read(reply::parts(pair))?;
            values.push((self.read(reply::text(key))?, self.read(reply::data(value))?));
        }
        Ok(values)
    }
}

//! Reads that combine the contents of both stores.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::DrainStore;
use crate::{DueWebhook, Listing, Page, Pause, QueueDepth, QueueEvent, QueueTotal, StoreError};

impl DrainStore {
    /// Returns the requests of the new store and then those of the old one, because the old store's requests came
    /// earlier.
    pub(super) async fn both_lists(&self, mut listing: Listing) -> Result<Page, StoreError> {
        let is_in_new = match listing.after {
            Some(after) => self.new.get(after).await?.is_some(),
            None => true,
        };
        if !is_in_new {
            return self.old.list(listing).await;
        }
        let mut page = self.new.list(listing.clone()).await?;
        if page.has_more {
            return Ok(page);
        }
        let left = listing.limit.saturating_sub(page.requests.len());
        listing.after = None;
        // The limit is at least 1, so that the answer shows whether the old store has further requests.
        listing.limit = left.max(1);
        let older = self.old.list(listing).await?;
        page.has_more = older.has_more || older.requests.len() > left;
        page.requests.extend(older.requests.into_iter().take(left));
        Ok(page)
    }

    /// Returns the depths of all queues, each as the sum of both stores.
    pub(super) async fn both_depths(&self) -> Result<Vec<QueueDepth>, StoreError> {
        let (new, old) = tokio::join!(self.new.depths(), self.old.depths());
        let mut depths: BTreeMap<(String, u8), QueueDepth> = BTreeMap::new();
        for depth in new?.into_iter().chain(old?) {
            let key = (depth.queue.clone(), depth.level);
            let sum = depths.entry(key);
            let sum = sum.or_insert_with(|| QueueDepth::empty(depth.queue, depth.level));
            sum.queued += depth.queued;
            sum.running += depth.running;
            sum.oldest = sum.oldest.max(depth.oldest);
        }
        Ok(depths.into_values().collect())
    }

    /// Returns the totals of all queues, each as the sum of both stores.
    pub(super) async fn both_totals(&self) -> Result<Vec<QueueTotal>, StoreError> {
        let (new, old) = tokio::join!(self.new.totals(), self.old.totals());
        let mut totals: HashMap<(String, QueueEvent), u64> = HashMap::new();
        for total in new?.into_iter().chain(old?) {
            *totals.entry((total.queue, total.event)).or_default() += total.count;
        }
        let totals = totals.into_iter();
        Ok(totals
            .map(|((queue, event), count)| QueueTotal::new(queue, event, count))
            .collect())
    }

    /// Returns the pauses of the new store, followed by those that only the old store has.
    pub(super) async fn both_pauses(&self) -> Result<Vec<Pause>, StoreError> {
        let (new, old) = tokio::join!(self.new.pauses(), self.old.pauses());
        let mut pauses = new?;
        for pause in old? {
            if pauses.iter().all(|known| known.scope != pause.scope) {
                pauses.push(pause);
            }
        }
        Ok(pauses)
    }

    /// Takes webhooks from the new store, and fills the rest of `max` from the old one.
    pub(super) async fn webhooks_of_both(&self, max: usize) -> Result<Vec<DueWebhook>, StoreError> {
        let new = self.new.due_webhooks(max).await;
        let taken = new.as_ref().map_or(0, Vec::len);
        if taken >= max {
            return new;
        }
        match (new, self.old.due_webhooks(max - taken).await) {
            (Ok(mut webhooks), Ok(old)) => {
                webhooks.extend(old);
                Ok(webhooks)
            }
            (Ok(webhooks), Err(_)) | (Err(_), Ok(webhooks)) if !webhooks.is_empty() => Ok(webhooks),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Returns values in the order of their keys. A value of the new store hides one of the old store with the same
    /// key.
    pub(super) async fn both_values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let (new, old) = tokio::join!(
            self.new.values(prefix, after, max),
            self.old.values(prefix, after, max)
        );
        let (new, old) = (new?, old?);
        // A store may have left out values behind the last one that it returned, so nothing behind that is known yet.
        let lasts = [new.last(), old.last()].into_iter().flatten();
        let end = lasts.map(|(key, _)| key.clone()).min();
        let mut values: BTreeMap<_, _> = old.into_iter().collect();
        values.extend(new);
        let known = values
            .into_iter()
            .take_while(|(key, _)| end.as_ref().is_none_or(|end| key <= end));
        Ok(known.take(max).collect())
    }
}

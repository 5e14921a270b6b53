//! Webhooks of requests that have ended.

use std::time::Duration;

use super::super::time::Time;
use super::State;
use tower_triage_durable::{DueWebhook, RequestId};

/// The time after which a webhook that was taken becomes due again, in case its sender was lost.
const AGAIN: Duration = Duration::from_secs(60);

impl State {
    /// Takes webhooks that are due, at most `max` of them. Each one becomes due again after [`AGAIN`], unless it is
    /// settled.
    pub(crate) fn due_webhooks(&mut self, max: usize, now: Time) -> Vec<DueWebhook> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(&(due, slot)) = self.webhooks.first()
            && due <= now
        {
            let tries = self.set_webhook(slot, Some(now.after(AGAIN)));
            let extra = self.record_mut(slot).extra_mut();
            extra.tries += 1;
            let url = extra.webhook.clone().unwrap_or_default();
            let retries = extra.retries;
            let info = self.info(slot);
            taken.push(DueWebhook {
                info,
                url,
                tries,
                retries,
            });
            self.write_state(slot);
        }
        taken
    }

    /// Settles a webhook: for good, or until `again` has passed.
    pub(crate) fn settle_webhook(
        &mut self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
        now: Time,
    ) {
        let Some(slot) = self.slot(id) else { return };
        // The webhook may be settled for good already, or the request may have been retried meanwhile, and even have ended
        // again. Then it stays as it is.
        let extra = self.record(slot).extra();
        if extra.webhook_due.is_none() || extra.retries != retries {
            return;
        }
        self.set_webhook(slot, again.map(|again| now.after(again)));
        self.ended.push(id);
        self.write_state(slot);
    }

    /// Sets the time at which a webhook is due, and returns the number of calls so far.
    fn set_webhook(&mut self, slot: u32, due: Option<Time>) -> u32 {
        if let Some(until) = self.forgotten_at(slot) {
            self.forgets.remove(&(until, slot));
        }
        let extra = self.requests[slot as usize].extra_mut();
        let before = std::mem::replace(&mut extra.webhook_due, due);
        let tries = extra.tries;
        if let Some(before) = before {
            self.webhooks.remove(&(before, slot));
        }
        if let Some(due) = due {
            self.webhooks.insert((due, slot));
        }
        if let Some(until) = self.forgotten_at(slot) {
            self.forgets.insert((until, slot));
        }
        tries
    }
}

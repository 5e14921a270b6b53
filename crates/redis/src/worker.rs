//! The operations of workers, which take requests and report their outcomes.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use tokio::sync::oneshot;

use super::batch::Item;
use super::reply::{self, Unexpected};
use super::scripts;
use super::shared::{Shared, ms};
use tower_triage_durable::{Backlog, Fetched, Lease, Outcome, StoreError};

impl Shared {
    pub(super) async fn backlog(&self) -> Result<Backlog, StoreError> {
        let version = self.version.borrow().number;
        let call = self.call(&scripts::BACKLOG).arg(&self.weights);
        let value = self.link.run(&call).await?;
        let [next, heads] = self.read(reply::parts(value))?;
        let mut queues = Vec::new();
        for head in self.items(heads)? {
            queues.push(self.read(reply::head(head, self.levels()))?);
        }
        Ok(Backlog {
            version,
            queues,
            next: self.read(reply::maybe(next, reply::time))?,
        })
    }

    /// Takes requests and sends them to the caller. If the caller has left, they are put back into their queue.
    pub(super) async fn fetch(
        self: Arc<Self>,
        queue: String,
        max: usize,
        caller: oneshot::Sender<Result<Handover, StoreError>>,
    ) {
        let number = self.leases.begin_fetch();
        let result = self.fetch_once(&queue, max).await;
        let fetched = result.as_deref().unwrap_or_default();
        self.leases
            .add(fetched.iter().map(|fetched| &fetched.lease));
        self.leases.end_fetch(number);
        if result.is_err() {
            // Redis may have handed out requests although the reply failed. The renewal task finds these leases as
            // strays.
            self.claim.notify_one();
        }
        // If the caller has left, the handover comes back here, and its drop gives the requests back.
        let _ = caller.send(result.map(|fetched| Handover {
            fetched,
            shared: self,
        }));
    }

    pub(super) async fn fetch_once(
        &self,
        queue: &str,
        max: usize,
    ) -> Result<Vec<Fetched>, StoreError> {
        let mut call = self
            .call(&scripts::FETCH)
            .arg(queue)
            .arg(max)
            .arg(&self.weights);
        for (tenant, weight) in &self.config.store.order.weights {
            call = call.arg(tenant.as_bytes()).arg((*weight).max(1));
        }
        let value = self.link.run(&call).await?;
        let [next, requests] = self.read(reply::parts(value))?;
        let mut parts = self.items(requests)?.into_iter();
        let mut taken = Vec::new();
        while let Some(id) = parts.next() {
            let mut next = || self.read(parts.next().ok_or(Unexpected));
            let info = Value::Array(vec![id, next()?, next()?]);
            let (fence, request) = (next()?, next()?);
            let info = self.read(reply::info(info, self.levels()))?;
            let lease = Lease::new(info.id, info.attempts, self.read(reply::text(fence))?);
            taken.push(Fetched::new(lease, info, self.read(reply::data(request))?));
        }
        if let Some(last) = taken.last_mut() {
            last.is_last = next == Value::Int(0);
            if let Value::Array(_) = &next {
                last.next = Some(Box::new(self.read(reply::head(next, self.levels()))?));
            }
        }
        Ok(taken)
    }

    pub(super) async fn called(self: Arc<Self>, lease: Lease) -> Result<(), StoreError> {
        let item = item(&lease);
        let reply = self
            .run_batched(|batches| &batches.called, item, None)
            .await;
        reply.map(drop)
    }

    pub(super) async fn finish(
        self: Arc<Self>,
        lease: Lease,
        outcome: Outcome,
    ) -> Result<bool, StoreError> {
        let (kind, detail, more) = match &outcome {
            Outcome::Responded { status, response } => {
                ("responded", status.to_string(), response.to_vec())
            }
            // A zero byte would end the reason in the packed state of the request.
            Outcome::Failed { reason } => ("failed", reason.replace('\0', " "), Vec::new()),
            Outcome::Retry { after, counts } => {
                let counts = u8::from(*counts).to_string();
                ("retry", ms(*after).to_string(), counts.into_bytes())
            }
        };
        let mut item = item(&lease);
        item.extend([kind.as_bytes().to_vec(), detail.into_bytes(), more]);
        let reply = self
            .run_batched(|batches| &batches.finish, item, None)
            .await?;
        let has_effect = reply == Value::Int(1);
        self.leases.remove(&lease);
        Ok(has_effect)
    }

    pub(super) async fn append(&self, lease: &Lease, data: Bytes) -> Result<(), StoreError> {
        let call = self
            .call(&scripts::APPEND)
            .arg(lease.id().to_string())
            .arg(lease.fence())
            .arg(self.leases.number_piece(lease, &data))
            .arg(data.as_ref());
        self.link.run(&call).await?;
        self.leases.on_piece_sent(lease);
        Ok(())
    }
}

fn item(lease: &Lease) -> Item {
    vec![lease.id().to_string().into(), lease.fence().into()]
}

/// Fetched requests on their way to the caller. If they do not arrive, they are given back on drop.
pub(super) struct Handover {
    pub(super) fetched: Vec<Fetched>,
    shared: Arc<Shared>,
}

impl Drop for Handover {
    fn drop(&mut self) {
        if self.fetched.is_empty() {
            return;
        }
        let fetched = self.fetched.drain(..).map(|fetched| fetched.lease);
        let leases: Vec<_> = fetched
            .inspect(|lease| self.shared.leases.remove(lease))
            .map(|lease| (lease.id(), lease.fence().to_owned()))
            .collect();
        // A failure is harmless, because leases that are not given back here are found as strays later.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(&self.shared);
            runtime.spawn(async move { shared.give_back(&leases).await });
        }
    }
}

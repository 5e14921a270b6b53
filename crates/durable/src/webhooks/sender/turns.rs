//! The webhooks that a sender has taken from its store, and the places in which it sends them.
//!
//! A receiver that never responds holds each of its places until the timeout. So the places of one receiver are few, and
//! tenants take turns for all others: one dead receiver holds up neither other receivers nor other tenants.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use http::Uri;
use tokio::time::Instant;

use super::message::Message;

/// The number of places, which is the largest number of webhooks that are sent at the same time.
const PLACES: usize = 256;
/// The number of places that one tenant may have.
const PLACES_OF_TENANT: usize = 64;
/// The number of places that one tenant may have for one receiver.
const PLACES_OF_RECEIVER: usize = 16;
/// The largest number of webhooks of one tenant that wait here. Further ones are postponed, so that the store hands out those
/// of other tenants.
const MOST_WAITING: usize = 512;
/// The largest number of webhooks that wait here.
const MOST_IN_ALL: usize = 8 * MOST_WAITING;
/// The time after which a webhook that waits here is forgotten, because the store hands it out again after a minute.
const STALE: Duration = Duration::from_secs(40);
/// The longest time for which a webhook is postponed.
const LONGEST_POSTPONED: Duration = Duration::from_secs(60);

/// The authority of a webhook's address.
type Receiver = String;

/// The webhooks of a sender by tenant and receiver.
#[derive(Debug, Default)]
pub(super) struct Turns {
    tenants: BTreeMap<Vec<u8>, Tenant>,
    /// The webhooks that wait or are being sent. A store may hand them out again meanwhile.
    ids: HashSet<String>,
    waiting: usize,
    sending: usize,
    /// The tenant that had the last turn.
    last: Vec<u8>,
}

#[derive(Debug, Default)]
struct Tenant {
    receivers: BTreeMap<Receiver, Line>,
    waiting: usize,
    sending: usize,
    /// The receiver that had the last turn.
    last: Receiver,
}

/// The webhooks of one tenant for one receiver.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<(Message, Instant)>,
    /// The times at which those that are being sent began.
    sending: VecDeque<Instant>,
    /// The time that the last one took.
    took: Duration,
}

/// A webhook that is being sent.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) message: Message,
    tenant: Vec<u8>,
    receiver: Receiver,
    began: Instant,
}

impl Turns {
    /// Returns the number of webhooks to take from the store.
    pub(super) fn room(&self) -> usize {
        MOST_IN_ALL.saturating_sub(self.waiting).min(PLACES)
    }

    /// Adds a message that is due. Returns it with a pause if too many of its tenant wait, or nothing at all if it is here
    /// already.
    pub(super) fn add(&mut self, message: Message, now: Instant) -> Option<(Message, Duration)> {
        if self.ids.contains(&message.id) {
            return None;
        }
        let tenant = self.tenants.entry(message.tenant.clone()).or_default();
        let line = tenant.receivers.entry(receiver(&message.url)).or_default();
        if tenant.waiting >= MOST_WAITING {
            return Some((message, line.wait_for_all(now)));
        }
        self.ids.insert(message.id.clone());
        line.waiting.push_back((message, now));
        tenant.waiting += 1;
        self.waiting += 1;
        None
    }

    /// Returns the next webhook to send, if there is a place for one. Tenants take turns, and so do a tenant's receivers.
    pub(super) fn next(&mut self, now: Instant) -> Option<Turn> {
        if self.sending >= PLACES {
            return None;
        }
        let behind = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(self.last.clone()));
        let in_turn = self.tenants.range(behind).chain(self.tenants.range(up_to));
        let has_turn = |(_, tenant): &(&Vec<u8>, &Tenant)| tenant.next_receiver().is_some();
        let (name, _) = in_turn.into_iter().find(has_turn)?;
        let name = name.clone();
        let tenant = self.tenants.get_mut(&name)?;
        let receiver = tenant.next_receiver()?;
        let line = tenant.receivers.get_mut(&receiver)?;
        let (message, _) = line.waiting.pop_front()?;
        line.sending.push_back(now);
        tenant.last.clone_from(&receiver);
        tenant.waiting -= 1;
        tenant.sending += 1;
        self.last.clone_from(&name);
        self.waiting -= 1;
        self.sending += 1;
        Some(Turn {
            message,
            tenant: name,
            receiver,
            began: now,
        })
    }

    /// Gives the place of a webhook back.
    pub(super) fn end(&mut self, turn: &Turn, now: Instant) {
        self.ids.remove(&turn.message.id);
        self.sending -= 1;
        let Some(tenant) = self.tenants.get_mut(&turn.tenant) else {
            return; // it is there while it sends
        };
        tenant.sending -= 1;
        if let Some(line) = tenant.receivers.get_mut(&turn.receiver) {
            line.took = now.saturating_duration_since(turn.began);
            let at = line.sending.iter().position(|began| *began == turn.began);
            at.and_then(|at| line.sending.remove(at));
            if line.waiting.is_empty() && line.sending.is_empty() {
                tenant.receivers.remove(&turn.receiver);
            }
        }
        if tenant.receivers.is_empty() {
            self.tenants.remove(&turn.tenant);
        }
    }

    /// Forgets webhooks that have waited for so long that the store is about to hand them out again.
    pub(super) fn forget_stale(&mut self, now: Instant) {
        for tenant in self.tenants.values_mut() {
            for line in tenant.receivers.values_mut() {
                let is_stale = |(_, since): &(Message, Instant)| {
                    now.saturating_duration_since(*since) >= STALE
                };
                while line.waiting.front().is_some_and(is_stale)
                    && let Some((message, _)) = line.waiting.pop_front()
                {
                    self.ids.remove(&message.id);
                    tenant.waiting -= 1;
                    self.waiting -= 1;
                }
            }
            let is_used = |line: &Line| !(line.waiting.is_empty() && line.sending.is_empty());
            tenant.receivers.retain(|_, line| is_used(line));
        }
        self.tenants
            .retain(|_, tenant| !tenant.receivers.is_empty());
    }
}

impl Tenant {
    /// Returns the receiver whose turn is next, among those that have a webhook and a place for it.
    fn next_receiver(&self) -> Option<Receiver> {
        if self.waiting == 0 || self.sending >= PLACES_OF_TENANT {
            return None;
        }
        let behind = (Bound::Excluded(&self.last), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(&self.last));
        let receivers = &self.receivers;
        let mut in_turn = receivers
            .range::<Receiver, _>(behind)
            .chain(receivers.range::<Receiver, _>(up_to));
        let has_turn =
            |line: &Line| !line.waiting.is_empty() && line.sending.len() < PLACES_OF_RECEIVER;
        let found = in_turn.find(|(_, line)| has_turn(line));
        found.map(|(receiver, _)| receiver.clone())
    }
}

impl Line {
    /// Returns the time that the webhooks which wait here will take.
    fn wait_for_all(&self, now: Instant) -> Duration {
        let oldest = self.sending.front();
        let oldest = oldest.map(|began| now.saturating_duration_since(*began));
        let took = self.took.max(oldest.unwrap_or_default());
        let rounds = 1 + self.waiting.len() / PLACES_OF_RECEIVER;
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        let wait = took.saturating_mul(rounds);
        wait.clamp(Duration::from_secs(1), LONGEST_POSTPONED)
    }
}

/// Returns the receiver at an address. Addresses that cannot be read share one, because they fail at once.
fn receiver(url: &str) -> Receiver {
    let url: Option<Uri> = url.parse().ok();
    let authority = url.as_ref().and_then(Uri::authority);
    authority.map_or_else(String::new, |it| it.as_str().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{DueWebhook, RequestId, RequestInfo};

    fn due(nth: u128, tenant: &str, url: &str) -> Message {
        let mut info = RequestInfo::queued(RequestId::from_bits(nth), SystemTime::UNIX_EPOCH);
        info.tenant = tenant.into();
        let webhook = DueWebhook {
            info,
            url: url.to_owned(),
            tries: 0,
            retries: 0,
        };
        Message::of_request(webhook, SystemTime::UNIX_EPOCH)
    }

    fn turns(turns: &mut Turns, now: Instant) -> Vec<Turn> {
        std::iter::from_fn(|| turns.next(now)).collect()
    }

    #[test]
    fn a_dead_receiver_holds_few_places() {
        let (mut all, now) = (Turns::default(), Instant::now());
        for nth in 0..500 {
            assert!(all.add(due(nth, "a", "http://dead/x"), now).is_none());
        }
        assert_eq!(turns(&mut all, now).len(), PLACES_OF_RECEIVER);
        all.add(due(1_000, "a", "http://good/"), now);
        all.add(due(1_001, "b", "http://dead/y"), now);
        let next = turns(&mut all, now);
        let urls: Vec<_> = next.iter().map(|turn| &*turn.message.url).collect();
        assert_eq!(urls, ["http://dead/y", "http://good/"]);
    }

    #[test]
    fn tenants_take_turns_and_none_has_all_places() {
        let (mut all, now) = (Turns::default(), Instant::now());
        for nth in 0..400 {
            all.add(due(nth, "a", &format!("http://dead-{nth}/")), now);
        }
        assert_eq!(turns(&mut all, now).len(), PLACES_OF_TENANT);
        for nth in 500..503 {
            all.add(due(nth, "b", "http://good/"), now);
            all.add(due(nth + 100, "c", "http://good/"), now);
        }
        let order: Vec<_> = turns(&mut all, now)
            .into_iter()
            .map(|turn| turn.tenant)
            .collect();
        assert_eq!(order, ["b", "c", "b", "c", "b", "c"].map(Vec::from));
    }

    #[test]
    fn too_many_of_a_tenant_are_postponed() {
        let (mut all, now) = (Turns::default(), Instant::now());
        for nth in 0..MOST_WAITING as u128 {
            assert!(all.add(due(nth, "a", "http://dead/"), now).is_none());
        }
        let later = now + Duration::from_secs(10);
        let more = || due(9_999, "a", "http://dead/");
        let (_, pause) = all.add(more(), now).unwrap();
        assert_eq!(pause, Duration::from_secs(1));
        turns(&mut all, now);
        for nth in 0..PLACES_OF_RECEIVER as u128 {
            all.add(due(10_000 + nth, "a", "http://dead/"), now);
        }
        let (_, pause) = all.add(more(), later).unwrap();
        assert_eq!(pause, LONGEST_POSTPONED);
        assert!(all.add(due(7_777, "b", "http://dead/"), now).is_none());
        assert!(all.room() > 0);
    }

    #[test]
    fn a_webhook_is_here_once_and_leaves_nothing_behind() {
        let (mut all, now) = (Turns::default(), Instant::now());
        all.add(due(1, "a", "http://r/"), now);
        assert!(all.add(due(1, "a", "http://r/"), now).is_none());
        let sent = turns(&mut all, now);
        assert_eq!(sent.len(), 1);
        all.add(due(2, "a", "http://r/"), now);
        all.end(&sent[0], now + Duration::from_secs(1));
        all.forget_stale(now + STALE - Duration::from_millis(1));
        assert_eq!(all.waiting, 1);
        all.forget_stale(now + STALE);
        assert!(all.tenants.is_empty() && all.ids.is_empty());
        assert_eq!((all.waiting, all.sending), (0, 0));
    }
}

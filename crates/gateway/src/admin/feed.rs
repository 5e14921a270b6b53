//! The stream `/admin/stream`: a snapshot of the gateway, then what changes, as server-sent events.
//!
//! One task makes an event a second for all watchers, and only while there are any. A watcher that reads too slowly gets a
//! new snapshot in place of the events that it has missed.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::stream;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::overview::Overview;
use super::patch;

/// The interval of the events.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of events that a watcher may be behind.
const BEHIND: usize = 16;

/// The source of the streams of all watchers.
#[derive(Clone)]
pub(crate) struct Feed(Arc<Shared>);

struct Shared {
    overview: Overview,
    current: Mutex<Current>,
    deltas: Sender<Delta>,
}

/// The present state, to which the next delta will apply.
#[derive(Default)]
struct Current {
    sequence: u64,
    /// `None` while there is no producer, and until it has made the first state.
    state: Option<Value>,
    history: History,
    is_produced: bool,
}

impl Current {
    /// Records that there is no producer any more.
    fn end(&mut self) {
        (self.state, self.is_produced) = (None, false);
    }
}

#[derive(Clone)]
struct Delta {
    sequence: u64,
    text: Arc<str>,
}

impl Feed {
    pub(crate) fn new(overview: Overview) -> Self {
        Self(Arc::new(Shared {
            overview,
            current: Mutex::default(),
            deltas: Sender::new(BEHIND),
        }))
    }

    /// Returns a stream that ends at `closing`. `can_act` is `true` if the address of the stream takes actions.
    pub(crate) fn page(&self, can_act: bool, closing: CancellationToken) -> Response<Body> {
        let watcher = Watcher {
            deltas: self.subscribe(),
            shared: Arc::clone(&self.0),
            has_snapshot: false,
            can_act,
        };
        let events = stream::unfold((watcher, closing), async |(mut watcher, closing)| {
            let event = closing.run_until_cancelled(watcher.next()).await??;
            Some((Ok::<_, Infallible>(event), (watcher, closing)))
        });
        Sse::new(events).into_response()
    }

    /// Returns a receiver of the deltas, and starts the producer if there is none.
    fn subscribe(&self) -> Receiver<Delta> {
        let mut current = self.0.current();
        let deltas = self.0.deltas.subscribe();
        if !current.is_produced {
            current.is_produced = true;
            tokio::spawn(produce(Producing {
                shared: Arc::clone(&self.0),
                has_ended: false,
            }));
        }
        deltas
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of one watcher.
struct Watcher {
    shared: Arc<Shared>,
    deltas: Receiver<Delta>,
    has_snapshot: bool,
    can_act: bool,
}

impl Watcher {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.has_snapshot
                && let Some(snapshot) = self.snapshot()
            {
                self.has_snapshot = true;
                return Some(snapshot);
            }
            match self.deltas.recv().await {
                Ok(delta) if self.has_snapshot => {
                    let event = Event::default().event("delta");
                    return Some(event.id(delta.sequence.to_string()).data(&*delta.text));
                }
                Ok(_) => {} // there is a state now
                Err(RecvError::Lagged(_)) => self.has_snapshot = false,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns the whole state, to which the next delta applies.
    fn snapshot(&mut self) -> Option<Event> {
        let current = self.shared.current();
        let state = current.state.as_ref()?;
        let text = json!({
            "actions": self.can_act,
            "history": current.history.samples,
            "state": state,
        });
        // Under the lock, so that the first delta is the next one.
        self.deltas = self.shared.deltas.subscribe();
        let event = Event::default().event("snapshot");
        Some(
            event
                .id(current.sequence.to_string())
                .data(text.to_string()),
        )
    }
}

/// A guard of the producer. Without it, a producer that panicked would leave watchers without events.
struct Producing {
    shared: Arc<Shared>,
    /// `true` once the producer has ended by itself, so that the next one may be at work already.
    has_ended: bool,
}

impl Drop for Producing {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.current().end();
        }
    }
}

/// Makes states until there is no watcher.
async fn produce(mut producing: Producing) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stored = None;
    for nth in 0_u64.. {
        ticks.tick().await;
        let shared = &producing.shared;
        // The store of requests is asked less often, because it may be another machine.
        if nth.is_multiple_of(5) {
            stored = shared.overview.stored_requests().await;
        }
        let mut current = shared.current();
        if shared.deltas.receiver_count() == 0 {
            // Under the lock, so that a new watcher either is counted here or starts a producer.
            current.end();
            drop(current);
            producing.has_ended = true;
            return;
        }
        let mut state = shared.overview.state(&mut current.history, stored.clone());
        patch::without_nulls(&mut state);
        current.sequence += 1;
        let delta = Delta {
            sequence: current.sequence,
            text: match &current.state {
                Some(old) => patch::between(old, &state).to_string().into(),
                None => "".into(),
            },
        };
        current.state = Some(state);
        // Under the lock, so that each watcher gets the deltas after its snapshot. Fails if the last one has left.
        _ = shared.deltas.send(delta);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::sleep;
    use tower_triage::endpoints::Registry;

    use super::*;
    use crate::answer_memory::AnswerMemory;
    use crate::config::Config;
    use crate::live::Live;
    use crate::pages::Pages;
    use crate::{demo, reload, service};

    fn feed() -> Feed {
        let registry = Registry::new(Vec::new()).unwrap();
        let config = Config::without_file(registry, demo::routing(), |_| None).unwrap();
        let handle = service::services(&config).unwrap().handle;
        let memory = AnswerMemory::new(64 << 20);
        Pages::new(
            handle,
            None,
            reload::channel(false).0,
            Live::default(),
            memory,
        )
        .feed
    }

    /// The name and the number of the next event. `None` at the end.
    async fn next(page: &mut Response<Body>) -> Option<(String, u64)> {
        let frame = page.body_mut().frame().await?.unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
        let name = field("event: ").unwrap().to_owned();
        Some((name, field("id: ").unwrap().parse().unwrap()))
    }

    fn event(name: &str, sequence: u64) -> Option<(String, u64)> {
        Some((name.to_owned(), sequence))
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_made_only_while_somebody_watches() {
        let feed = feed();
        let mut page = feed.page(true, CancellationToken::new());
        assert_eq!(next(&mut page).await, event("snapshot", 1));
        assert_eq!(next(&mut page).await, event("delta", 2));
        drop(page);
        sleep(60 * INTERVAL).await;
        let mut page = feed.page(true, CancellationToken::new());
        assert_eq!(next(&mut page).await, event("snapshot", 3));
        assert_eq!(next(&mut page).await, event("delta", 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_falls_behind_gets_a_new_snapshot() {
        let feed = feed();
        let mut page = feed.page(true, CancellationToken::new());
        assert_eq!(next(&mut page).await, event("snapshot", 1));
        sleep(60 * INTERVAL).await;
        let (name, sequence) = next(&mut page).await.unwrap();
        assert_eq!((name.as_str(), sequence > 50), ("snapshot", true));
        assert_eq!(next(&mut page).await, event("delta", sequence + 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_address_closes() {
        let (feed, closing) = (feed(), CancellationToken::new());
        let mut page = feed.page(true, closing.clone());
        assert_eq!(next(&mut page).await, event("snapshot", 1));
        closing.cancel();
        assert_eq!(next(&mut page).await, None);
    }
}

//! The waiting rooms of a layer by key. Their number is bounded, because clients may be able to invent keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::admit::SlotPool;
use crate::clock;
use crate::gate::GateStatus;
use crate::on_cancel::OnCancel;
use crate::queue::layer::new_state;
use crate::queue::{InvalidQueueConfig, QueueConfig, QueueHandle};
use crate::service::LayerState;

/// The number of keys that have rooms of their own at a time.
const MAX_KEYS: usize = 1_000;
/// The length of the longest key in bytes that may have a room of its own.
const MAX_KEY_BYTES: usize = 256;
/// The shortest time between two searches for idle rooms, because a search looks at all of them.
const SEARCH: Duration = Duration::from_millis(100);

type Room = Arc<LayerState<SlotPool>>;

#[derive(Default)]
struct ByKey {
    rooms: HashMap<Box<str>, Room>,
    /// The time of the last search for idle rooms.
    searched: Option<Instant>,
}

impl ByKey {
    /// Drops the rooms that no request uses, unless that was tried a moment ago.
    fn drop_idle(&mut self) {
        let now = clock::now();
        if self
            .searched
            .is_none_or(|searched| now >= searched + SEARCH)
        {
            self.searched = Some(now);
            self.rooms.retain(|_, room| !is_idle(room));
        }
    }
}

/// The waiting rooms of a layer by key, all of one configuration.
pub(super) struct Rooms {
    /// The room of keys without a room of their own. It exists from the beginning, so it also keeps the configuration
    /// and is closed first.
    shared: Room,
    by_key: RwLock<ByKey>,
    /// A lock that is held while the configuration is changed, so that all rooms end up with the same one.
    changing: Mutex<()>,
    /// The registration that closes the rooms when the layer's token is cancelled.
    shutdown: OnceLock<OnCancel>,
}

impl Rooms {
    /// Creates rooms that are configured like `shared`, which no other layer uses.
    pub(super) fn new(shared: Room) -> Self {
        Self {
            shared,
            by_key: RwLock::default(),
            changing: Mutex::default(),
            shutdown: OnceLock::new(),
        }
    }

    /// Returns the room of this key, or the shared room if too many other keys are in use.
    #[inline]
    pub(super) fn of(&self, key: &str) -> Room {
        if let Some(room) = self.read().rooms.get(key) {
            return Arc::clone(room);
        }
        match key.len() <= MAX_KEY_BYTES {
            true => self.open(key),
            false => self.shared(),
        }
    }

    /// Returns the room of keys without a room of their own.
    pub(super) fn shared(&self) -> Room {
        Arc::clone(&self.shared)
    }

    #[cold]
    fn open(&self, key: &str) -> Room {
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        // Another request may have opened the room since it was not found.
        if let Some(room) = by_key.rooms.get(key) {
            return Arc::clone(room);
        }
        if by_key.rooms.len() >= MAX_KEYS {
            by_key.drop_idle();
        }
        // The configuration was accepted before, so a new room can only be missing because there are too many.
        let room = (by_key.rooms.len() < MAX_KEYS).then(|| new_state(self.config()).ok());
        let Some(room) = room.flatten() else {
            return Arc::clone(&self.shared);
        };
        // `close` closes the shared room before it takes the lock. So it either finds the new room, or is seen here.
        if self.shared.gate.is_closed() {
            room.gate.close();
        }
        by_key.rooms.insert(key.into(), Arc::clone(&room));
        room
    }

    pub(super) fn config(&self) -> QueueConfig {
        self.shared.settings().config.clone()
    }

    /// Returns the status of each room, the shared one first.
    pub(super) fn status(&self) -> Vec<(Option<String>, GateStatus)> {
        let by_key = self.read();
        let keyed = by_key.rooms.iter();
        let mut rooms: Vec<_> = keyed
            .map(|(key, room)| (Some(key.to_string()), Arc::clone(room)))
            .collect();
        drop(by_key);
        rooms.push((None, Arc::clone(&self.shared)));
        rooms.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let status = |(key, room): (_, Room)| (key, room.gate.status());
        rooms.into_iter().map(status).collect()
    }

    pub(super) fn reconfigure(&self, config: &QueueConfig) -> Result<(), InvalidQueueConfig> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // The shared room comes first. It refuses what any of the others would, and rooms that are opened from then on
        // have the new configuration.
        let change = |room| QueueHandle(room).reconfigure(config.clone());
        change(Arc::clone(&self.shared))?;
        self.keyed().into_iter().try_for_each(change)
    }

    pub(super) fn close(&self) {
        self.shared.gate.close();
        // Closed without the lock, because closing wakes the callers' code.
        self.keyed().iter().for_each(|room| room.gate.close());
    }

    /// Closes the rooms inside the token's `cancel`, or at once if the token has been cancelled already. The token does
    /// not keep the rooms alive.
    pub(super) fn close_on(self: &Arc<Self>, token: CancellationToken) {
        let rooms = Arc::downgrade(self);
        let registration = OnCancel::new(token, move || {
            if let Some(rooms) = rooms.upgrade() {
                rooms.close();
            }
        });
        match registration {
            // Called once per layer, so the cell is empty.
            Some(registration) => _ = self.shutdown.set(registration),
            // The token was cancelled before, so the action has not run.
            None => self.close(),
        }
    }

    pub(super) async fn closed(&self) {
        // Once the shared room is closed, rooms are closed before their first request.
        self.shared.gate.closed().await;
        for room in self.keyed() {
            room.gate.closed().await;
        }
    }

    fn keyed(&self) -> Vec<Room> {
        self.read().rooms.values().map(Arc::clone).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, ByKey> {
        self.by_key.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if no request uses the room, and none has found it to use it. `by_key` must be locked for writing.
fn is_idle(room: &mut Room) -> bool {
    // A request keeps a reference until it has a slot or is answered.
    Arc::get_mut(room).is_some_and(|room| room.gate.load() == 0)
}

//! The state behind its lock, and the effects of its changes: writes to the disk, answers, and wakeups.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use super::archive::Archive;
use super::clock::Clock;
use super::commits::{Answer, Command, Commits, Kind};
use super::driver::Driver;
use super::state::{Recovery, State};
use super::storage::Storage;
use super::time::Time;
use super::waits::Waits;
use super::write::{Write, ops};
use tower_triage::PriorityLevels;
use tower_triage_durable::{RequestId, StoreConfig, StoreError};

/// The state that all operations of a store share.
pub(crate) struct Shared {
    locked: Mutex<Locked>,
    pub(crate) levels: PriorityLevels,
    pub(crate) storage: Arc<dyn Storage>,
    /// The thread that makes all changes. `None` for a store in memory, in which each operation makes its own changes.
    pub(crate) commits: Option<Commits>,
    pub(crate) clock: Clock,
    waits: Waits,
    /// The number of changes of the backlog so far.
    pub(crate) version: watch::Sender<u64>,
    progress: watch::Sender<Progress>,
    /// The signal that wakes the driver when an event is due earlier than the driver knows.
    pub(crate) earlier: Notify,
    driver: Driver,
}

/// The part of the store that is under the lock.
pub(crate) struct Locked {
    pub(crate) state: State,
    /// The number of batches that were applied to the state.
    pub(crate) applied: u64,
    /// The time until which the driver sleeps. `None` if it sleeps until it is woken.
    driver_until: Option<Time>,
    is_closed: bool,
}

/// The progress of writing to the disk.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// The number of the last batch that is on the disk.
    committed: u64,
    /// The number of batches that were undone in part.
    failures: u64,
}

/// The arguments of a function that changes the state.
pub(crate) struct Change<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) archive: Archive<'a>,
    pub(crate) now: Time,
}

impl Shared {
    pub(crate) fn new(
        config: StoreConfig,
        opening: u64,
        clock: Clock,
        storage: Arc<dyn Storage>,
        commits: Option<Commits>,
    ) -> Self {
        Self {
            levels: config.order.levels.clone(),
            locked: Mutex::new(Locked {
                state: State::new(config, opening),
                applied: 0,
                driver_until: None,
                is_closed: false,
            }),
            storage,
            commits,
            clock,
            waits: Waits::default(),
            version: watch::Sender::new(0),
            progress: watch::Sender::new(Progress::default()),
            earlier: Notify::new(),
            driver: Driver::default(),
        }
    }

    /// Rebuilds the state from the storage. The resulting changes are written together with the first change of a
    /// caller.
    pub(crate) fn recover(&self) -> Result<(), StoreError> {
        let state = &mut self.lock().state;
        let mut recovery = Recovery::new(state, self.clock.now());
        Archive(&*self.storage, &self.levels).recover(&mut recovery)?;
        recovery.finish();
        state.write(Write::Clock(self.clock.row()));
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and returns once the change is on the disk.
    pub(crate) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.make(Kind::Settles, change).await
    }

    /// Changes the state by new data. The change is refused while the disk has no space for it.
    pub(crate) async fn grow<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.make(Kind::Grows, change).await
    }

    async fn make<T: Send + 'static>(
        self: &Arc<Self>,
        kind: Kind,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.driver.ensure(self);
        let (answer, answered) = oneshot::channel();
        let apply = |made: &mut Change<'_>| {
            let result = change(made);
            // If the caller is gone, the result is dropped here, and a dropped result gives back the requests that it
            // holds.
            let tell = |committed: Result<(), StoreError>| drop(answer.send(committed.and(result)));
            Box::new(tell) as Answer
        };
        self.submit(kind, apply)?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(self.why_gone()),
        }
    }

    /// Makes a change at once, or passes it to the thread.
    pub(crate) fn submit(
        &self,
        kind: Kind,
        apply: impl FnOnce(&mut Change<'_>) -> Answer + Send + 'static,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let Some(commits) = &self.commits else {
            return self.make_now(now, apply);
        };
        let apply = Box::new(apply);
        match commits.push(Command { kind, now, apply }) {
            true => Ok(()),
            false => Err(self.why_gone()),
        }
    }

    /// Makes a change in the caller's thread, for a store in memory.
    fn make_now(
        &self,
        now: Time,
        apply: impl FnOnce(&mut Change<'_>) -> Answer,
    ) -> Result<(), StoreError> {
        let mut locked = self.lock();
        locked.check_open()?;
        locked.state.advance(now);
        let answer = apply(&mut Change {
            state: &mut locked.state,
            archive: Archive(&*self.storage, &self.levels),
            now,
        });
        locked.state.take_undo();
        let ended = locked.state.take_ended();
        let ops = ops(
            &locked.state.take_writes(),
            Archive(&*self.storage, &self.levels),
        );
        let committed = ops.and_then(|ops| self.storage.commit(ops));
        let number = locked.applied;
        drop(locked);
        self.committed(number, &ended);
        answer(committed);
        Ok(())
    }

    /// Reads the current state, and returns the value once the state that it shows is on the disk.
    pub(crate) async fn read<T>(
        self: &Arc<Self>,
        read: impl Fn(&State, Time) -> T,
    ) -> Result<T, StoreError> {
        self.driver.ensure(self);
        if self.commits.is_none() {
            self.make_now(self.clock.now(), |_| Box::new(|_| ()))?;
        }
        let mut progress = self.progress.subscribe();
        loop {
            // The failures are read before the state, so a failure that undoes a part of that state is noticed below.
            let before = *progress.borrow_and_update();
            let (value, applied) = {
                let locked = self.lock();
                locked.check_open()?;
                (read(&locked.state, self.clock.now()), locked.applied)
            };
            let is_settled =
                |now: &Progress| now.committed >= applied || now.failures != before.failures;
            let now = progress.wait_for(is_settled).await.map(|now| *now);
            let now = now.map_err(|_| self.why_gone())?;
            // After a failure, the value may include changes that were undone, so the state is read once more.
            if now.failures == before.failures {
                return Ok(value);
            }
        }
    }

    /// Reads from the archive, on a blocking thread so that the runtime is not held up.
    pub(crate) async fn load<T: Send + 'static>(
        &self,
        load: impl FnOnce(Archive<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.commits.is_none() {
            return load(Archive(&*self.storage, &self.levels));
        }
        let (storage, levels) = (Arc::clone(&self.storage), self.levels.clone());
        let loaded = tokio::task::spawn_blocking(move || load(Archive(&*storage, &levels))).await;
        loaded.unwrap_or_else(|why| Err(StoreError::Unavailable(why.to_string())))
    }

    /// Waits until `check` returns `Some` for the state. `check` runs again at each change of the request `id`.
    pub(crate) async fn wait_for<T>(
        self: &Arc<Self>,
        id: RequestId,
        check: impl Fn(&State) -> Option<T>,
    ) -> Result<T, StoreError> {
        let wait = self.waits.begin(id);
        loop {
            let notified = wait.notify.notified();
            tokio::pin!(notified);
            // From here on every change is noticed, because changes are announced only after they can be seen.
            notified.as_mut().enable();
            if let Some(found) = self.read(|state, _| check(state)).await? {
                return Ok(found);
            }
            notified.await;
        }
    }

    /// Records that batch `number` is on the disk, and wakes the callers that wait for it. `ended` are the requests
    /// that ended in the batch, which now leave the memory.
    pub(crate) fn committed(&self, number: u64, ended: &[RequestId]) {
        let mut locked = self.lock();
        locked.state.release_ended(ended);
        let news = locked.state.take_news();
        let is_earlier = locked.is_earlier();
        drop(locked);
        if self.commits.is_some() {
            self.progress
                .send_modify(|progress| progress.committed = number);
        }
        self.waits.wake(&news.requests);
        if news.has_backlog {
            self.version.send_modify(|version| *version += 1);
        }
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    /// Records that changes were undone, so that readers read the state once more.
    pub(crate) fn failed(&self) {
        self.progress.send_modify(|progress| progress.failures += 1);
    }

    /// Refuses further operations, and ends the driver.
    pub(crate) fn stop(&self) {
        self.lock().is_closed = true;
        self.driver.stop();
        if let Some(commits) = &self.commits {
            commits.close();
        }
        self.waits.wake_all();
        self.version.send_modify(|version| *version += 1);
    }

    /// Waits until all changes are on the disk and the storage is closed. This blocks the thread.
    pub(crate) fn join(&self) {
        if let Some(commits) = &self.commits {
            commits.join();
        }
    }

    /// Returns the time of the next event, and records that the driver sleeps until then.
    pub(crate) fn set_driver_until(&self) -> Option<Time> {
        let mut locked = self.lock();
        locked.driver_until = locked.state.next_event();
        locked.driver_until
    }

    fn why_gone(&self) -> StoreError {
        match self.lock().check_open() {
            Err(why) => why,
            Ok(()) => StoreError::Unavailable("its thread has failed".to_owned()),
        }
    }
}

impl Locked {
    fn check_open(&self) -> Result<(), StoreError> {
        match self.is_closed {
            false => Ok(()),
            true => Err(StoreError::Unavailable("it is closed".to_owned())),
        }
    }

    /// Returns `true` if an event is due before the driver wakes up.
    fn is_earlier(&self) -> bool {
        let next = self.state.next_event();
        next.is_some_and(|next| self.driver_until.is_none_or(|until| next < until))
    }
}

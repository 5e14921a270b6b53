//! The state behind its lock, and what follows from a change of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot, watch};

use super::archive::Archive;
use super::commits::{Answer, Command, Commits, Kind};
use super::driver::Driver;
use super::state::{Recovery, State};
use super::storage::Storage;
use super::time::{Clock, Time};
use super::waits::Waits;
use super::write::ops;
use crate::durable::{RequestId, StoreConfig, StoreError};

/// The state that all operations of a store share.
pub(crate) struct Shared {
    locked: Mutex<Locked>,
    pub(crate) storage: Arc<dyn Storage>,
    /// The thread that makes all changes. `None` in memory: there each operation makes its own.
    pub(crate) commits: Option<Commits>,
    pub(crate) clock: Clock,
    waits: Waits,
    /// The number of changes of the backlog.
    pub(crate) version: watch::Sender<u64>,
    progress: watch::Sender<Progress>,
    /// Wakes the driver when something is due earlier than it knows.
    pub(crate) earlier: Notify,
    driver: Driver,
}

/// The state under the lock.
pub(crate) struct Locked {
    pub(crate) state: State,
    /// The number of batches that the state has seen.
    pub(crate) applied: u64,
    /// The time until which the driver sleeps; `None` if it sleeps until it is woken.
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

/// A change of the state that is being made.
pub(crate) struct Change<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) archive: Archive<'a>,
    pub(crate) now: Time,
}

impl Shared {
    pub(crate) fn new(
        config: StoreConfig,
        opening: u64,
        storage: Arc<dyn Storage>,
        commits: Option<Commits>,
    ) -> Self {
        Self {
            locked: Mutex::new(Locked {
                state: State::new(config, opening),
                applied: 0,
                driver_until: None,
                is_closed: false,
            }),
            storage,
            commits,
            clock: Clock::start(),
            waits: Waits::default(),
            version: watch::Sender::new(0),
            progress: watch::Sender::new(Progress::default()),
            earlier: Notify::new(),
            driver: Driver::default(),
        }
    }

    /// Takes over what the storage holds. What follows from it is written down with the first change.
    pub(crate) fn recover(&self) -> Result<(), StoreError> {
        let state = &mut self.lock().state;
        let mut recovery = Recovery::new(state, self.clock.now());
        Archive(&*self.storage).recover(&mut recovery)?;
        recovery.finish();
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and writes down what has changed.
    pub(crate) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.make(Kind::Settles, change).await
    }

    /// Changes the state by something new, which is refused while there is no space for it.
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
            // A result that is no longer waited for is dropped, and gives back what it holds.
            let tell = |committed: Result<(), StoreError>| drop(answer.send(committed.and(result)));
            Box::new(tell) as Answer
        };
        self.submit(kind, apply)?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(self.why_gone()),
        }
    }

    /// Makes a change at once, or has the thread make it.
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

    /// Makes a change without a thread.
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
            archive: Archive(&*self.storage),
            now,
        });
        locked.state.take_undo();
        let ended = locked.state.take_ended();
        let ops = ops(&locked.state.take_writes());
        let committed = ops.and_then(|ops| self.storage.commit(&ops));
        let number = locked.applied;
        drop(locked);
        self.committed(number, &ended);
        answer(committed);
        Ok(())
    }

    /// Looks at the state as it is now, and returns what is sure to be written down.
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
            // Else it may have seen what was undone.
            if now.failures == before.failures {
                return Ok(value);
            }
        }
    }

    /// Reads what is stored, without holding up the runtime.
    pub(crate) async fn load<T: Send + 'static>(
        &self,
        load: impl FnOnce(Archive<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.commits.is_none() {
            return load(Archive(&*self.storage));
        }
        let storage = Arc::clone(&self.storage);
        let loaded = tokio::task::spawn_blocking(move || load(Archive(&*storage))).await;
        loaded.unwrap_or_else(|why| Err(StoreError::Unavailable(why.to_string())))
    }

    /// Waits until `check` finds something about a request.
    pub(crate) async fn wait_for<T>(
        self: &Arc<Self>,
        id: RequestId,
        check: impl Fn(&State) -> Option<T>,
    ) -> Result<T, StoreError> {
        let wait = self.waits.begin(id);
        loop {
            let notified = wait.notify.notified();
            tokio::pin!(notified);
            // From here on no change is missed, because what has changed is announced after it can be seen.
            notified.as_mut().enable();
            if let Some(found) = self.read(|state, _| check(state)).await? {
                return Ok(found);
            }
            notified.await;
        }
    }

    /// Notes that what the state has seen is written down, and wakes those that wait for it. `ended`: the requests whose end
    /// is.
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

    /// Notes that changes were undone.
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

    /// Waits until all that was changed is written down, and the storage is closed. Blocks.
    pub(crate) fn join(&self) {
        if let Some(commits) = &self.commits {
            commits.join();
        }
    }

    /// Returns the time of the next event, until which the driver sleeps.
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

    /// Returns `true` if something is due before the driver looks.
    fn is_earlier(&self) -> bool {
        let next = self.state.next_event();
        next.is_some_and(|next| self.driver_until.is_none_or(|until| next < until))
    }
}

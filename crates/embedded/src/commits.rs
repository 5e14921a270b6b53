//! The thread that writes changes to the disk. It writes many changes at once, with one sync of the disk.
//!
//! All changes of a store on a disk are made by this thread, in batches. A batch takes all changes that have arrived
//! while the previous batch was written. The thread applies a batch to the state, writes it, and only then answers the
//! callers. A reader of the state waits until the batch that it has seen is on the disk. Within a batch, the changes
//! that need new space come last. They can thus be undone when the disk is full, because the other changes of the batch
//! do not depend on them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use super::archive::Archive;
use super::shared::{Change, Shared};
use super::state::Undo;
use super::time::Time;
use super::write::{Write, ops};
use tower_triage_durable::{RequestId, StoreError};

/// A change that waits for the thread.
pub(crate) struct Command {
    pub(crate) kind: Kind,
    pub(crate) now: Time,
    pub(crate) apply: Apply,
}

/// A function that makes a change. It returns the function that answers the caller once the outcome of the write is
/// known.
pub(crate) type Apply = Box<dyn FnOnce(&mut Change<'_>) -> Answer + Send>;
/// A function that reports the outcome of the write to the caller.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The treatment of a change while the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The change is refused, because it brings new data.
    Grows,
    /// The change is made, because reserved space is kept for it.
    Settles,
}

/// The queue of changes that wait for the thread.
#[derive(Default)]
pub(crate) struct Commits {
    queue: Mutex<Queue>,
    came: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<Command>,
    is_closed: bool,
}

/// The longest time between two looks at the system's clock.
const CHECK: Duration = Duration::from_secs(60);

/// The pause between two attempts to write a batch that must not be lost.
const PAUSE: Duration = Duration::from_millis(500);

impl Commits {
    /// Starts the thread.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("durable-commits".to_owned());
        let thread = thread.spawn(move || run(&shared))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Adds a change. Returns `false` if the store is closed.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return false;
        }
        queue.commands.push_back(command);
        drop(queue);
        self.came.notify_one();
        true
    }

    /// Refuses further changes. The thread ends after it has made the changes that already wait.
    pub(crate) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.came.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.queue).is_closed
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }

    /// Waits for changes, and takes all that wait. After a while without one, it returns none, so that a step of the
    /// system's clock is noticed. Returns `None` once the queue is closed and empty.
    fn take(&self) -> Option<Vec<Command>> {
        let queue = lock(&self.queue);
        let waits = |queue: &mut Queue| queue.commands.is_empty() && !queue.is_closed;
        let waited = self.came.wait_timeout_while(queue, CHECK, waits);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match queue.commands.is_empty() && queue.is_closed {
            true => None,
            false => Some(queue.commands.drain(..).collect()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A batch that was applied to the state, and is about to be written.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    answers: Vec<Answer>,
    grown_writes: Vec<Write>,
    grown_answers: Vec<Answer>,
    refused: Vec<Answer>,
    undo: Vec<Undo>,
    /// The requests that have ended in this batch.
    ended: Vec<RequestId>,
    number: u64,
}

fn run(shared: &Shared) {
    let Some(commits) = &shared.commits else {
        return;
    };
    let _end = End(shared, commits);
    while let Some(commands) = commits.take() {
        run_batch(shared, commands);
    }
}

/// A guard that closes the queue when the thread ends, even by a panic, so that all waiting callers get an error.
struct End<'a>(&'a Shared, &'a Commits);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.close();
        drop(self.1.take());
        self.0.storage.close();
    }
}

fn run_batch(shared: &Shared, mut commands: Vec<Command>) {
    // The order within the batch is free, because all its callers still wait for their answers.
    commands.sort_by_key(|command| command.kind == Kind::Grows);
    let grows = commands
        .last()
        .is_some_and(|command| command.kind == Kind::Grows);
    let has_space = match grows {
        true => shared.storage.has_space(),
        false => Ok(()),
    };
    let mut batch = apply(shared, commands, &has_space);
    for answer in std::mem::take(&mut batch.refused) {
        answer(has_space.clone());
    }
    let mut writes = std::mem::take(&mut batch.writes);
    writes.extend(shared.clock.check(SystemTime::now()).map(Write::Clock));
    writes.append(&mut batch.grown_writes);
    let failed = match writes.is_empty() {
        true => None,
        false => ops(&writes, Archive(&*shared.storage, &shared.levels))
            .and_then(|ops| shared.storage.commit(ops))
            .err(),
    };
    match failed {
        None => {
            shared.committed(batch.number, &batch.ended);
            let answers = batch.answers.into_iter().chain(batch.grown_answers);
            answers.for_each(|answer| answer(Ok(())));
        }
        Some(why) => fail(shared, batch, writes, &why),
    }
}

/// Applies a batch to the state.
fn apply(shared: &Shared, commands: Vec<Command>, has_space: &Result<(), StoreError>) -> Batch {
    let mut batch = Batch::default();
    let mut locked = shared.lock();
    locked.applied += 1;
    batch.number = locked.applied;
    for command in commands {
        locked.state.advance(command.now);
        batch.writes.append(&mut locked.state.take_writes());
        let answer = (command.apply)(&mut Change {
            state: &mut locked.state,
            archive: Archive(&*shared.storage, &shared.levels),
            now: command.now,
        });
        let mut writes = locked.state.take_writes();
        match command.kind {
            Kind::Settles => {
                batch.writes.append(&mut writes);
                batch.answers.push(answer);
            }
            // A known request causes no writes, so it is answered even while the disk is full.
            Kind::Grows if has_space.is_ok() || writes.is_empty() => {
                batch.grown_writes.append(&mut writes);
                batch.undo.append(&mut locked.state.take_undo());
                batch.grown_answers.push(answer);
            }
            Kind::Grows => {
                let undo = locked.state.take_undo();
                locked.state.undo(undo);
                batch.refused.push(answer);
            }
        }
        locked.state.take_undo();
    }
    batch.ended = locked.state.take_ended();
    batch
}

/// Handles a batch that could not be written. Undoes and refuses the changes that need new space, and retries the rest
/// until it is written or the store is closed.
fn fail(shared: &Shared, mut batch: Batch, writes: Vec<Write>, why: &StoreError) {
    tracing::warn!("the store refuses new requests: {why}");
    // New data may be on the disk all the same, in part, so the retry removes it.
    let mut kept = Write::without_growth(writes);
    {
        let mut locked = shared.lock();
        locked.state.undo(std::mem::take(&mut batch.undo));
        kept.append(&mut locked.state.take_writes());
    }
    shared.failed();
    for answer in batch.grown_answers {
        answer(Err(why.clone()));
    }
    let mut is_first = true;
    let write_down = || {
        ops(&kept, Archive(&*shared.storage, &shared.levels))
            .and_then(|ops| shared.storage.commit_again(ops))
    };
    while let Err(why) = write_down() {
        if is_first {
            tracing::error!("the store can't write down outcomes, and tries again: {why}");
            // Readers get the state although a crash could still lose it, because waiting here would stop all of them.
            shared.committed(batch.number, &[]);
            is_first = false;
        }
        if shared.commits.as_ref().is_some_and(Commits::is_closed) {
            let answers = batch.answers.into_iter();
            answers.for_each(|answer| answer(Err(why.clone())));
            return;
        }
        std::thread::sleep(PAUSE);
    }
    shared.committed(batch.number, &batch.ended);
    for answer in batch.answers {
        answer(Ok(()));
    }
}

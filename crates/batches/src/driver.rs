//! The driver of one batch, from its validation to its end.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{Instant, sleep};

use super::coordinator::BEAT;
use super::files::{self, Lines};
use super::line::{Line, LineError};
use super::records::{self, Active, BatchRecord, Counts, End, EndStatus, FileRecord, Progress};
use super::result::{Ended, LineContext, LineTask};
use super::scan::Scan;
use super::validator::Validator;
use super::{BatchApi, id, keys};
use tower_triage_durable::{Store, StoreError, webhooks};

/// The number of unfinished lines of one batch in the store. It exceeds the number of slots of most services.
const WINDOW: usize = 1_000;
/// The size in KiB of a batch's lines that are being stored. A line that is longer than this is stored alone.
const BUDGET: u32 = 1_024;
/// The time between two checks for a cancellation, which may come through another process.
const LOOK: Duration = Duration::from_secs(2);
/// The time between two records of the number of finished lines.
const SAVE: Duration = Duration::from_secs(1);
/// The first and the longest pause between two attempts while the store fails.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The reason for which a batch starts no further line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Cancelled,
    Expired,
}

/// A batch that this process drives.
pub(super) struct Driver {
    pub(super) api: BatchApi,
    pub(super) id: String,
    /// The record that marks the batch as driven by this process.
    pub(super) active: Active,
    /// The time at which a process last drove the batch, in milliseconds since 1970.
    pub(super) seen_at: u64,
}

impl Driver {
    /// Drives the batch until it has ended, or until another process has taken it over.
    pub(super) async fn drive(&self) {
        tokio::select! {
            () = self.try_until_it_ends() => {}
            () = self.beat() => {}
        }
    }

    async fn try_until_it_ends(&self) {
        let mut backoff = FIRST_BACKOFF;
        while let Err(error) = self.advance().await {
            tracing::warn!(%error, batch = %self.id, "a batch is stopped by its store; trying again in {backoff:?}");
            sleep(backoff).await;
            backoff = (2 * backoff).min(MAX_BACKOFF);
        }
    }

    /// Sends heartbeats. Returns once another process has taken the batch.
    async fn beat(&self) {
        let key = keys::active(&self.id);
        let mut active = self.active.clone();
        // The first heartbeat overwrites any other mark, because the latest process to come gets the batch.
        let mut is_ours = true;
        loop {
            if is_ours {
                active.beat += 1;
                active.at = id::millis(self.api.store.now());
                if let Err(error) = self.api.store.put(&key, records::write(&active)).await {
                    tracing::warn!(%error, batch = %self.id, "a batch could not be marked as driven");
                }
            }
            sleep(BEAT).await;
            match self.api.record::<Active>(&key).await {
                Ok(Some(now)) if now.owner != active.owner => return,
                Ok(Some(_)) => is_ours = true,
                // The batch has ended, and only a part of the cleanup is left.
                Ok(None) => is_ours = false,
                Err(_) => is_ours = true,
            }
        }
    }

    /// Continues the batch from its records, and drives it to its end.
    async fn advance(&self) -> Result<(), StoreError> {
        let key = keys::batch(&self.active.tenant, &self.id);
        let batch = self.api.record::<BatchRecord>(&key).await?;
        let end = self.api.record::<End>(&keys::end(&self.id)).await?;
        if let (Some(batch), None) = (&batch, end) {
            let (stop, stopped) = watch::channel(self.stop(batch).await?);
            let end = tokio::select! {
                end = self.carry_out(batch, stopped) => end?,
                never = self.watch(batch, stop) => match never {},
            };
            self.api
                .store
                .put(&keys::end(&self.id), records::write(&end))
                .await?;
        }
        self.clean_up(batch.as_ref()).await
    }

    /// Returns the reason for which further lines must not start, if there is one.
    async fn stop(&self, batch: &BatchRecord) -> Result<Option<Stop>, StoreError> {
        let is_cancelled = self
            .api
            .store
            .value(&keys::cancel(&self.id))
            .await?
            .is_some();
        Ok(match is_cancelled {
            true => Some(Stop::Cancelled),
            false if id::until(&*self.api.store, batch.deadline).is_zero() => Some(Stop::Expired),
            false => None,
        })
    }

    /// Sends the reason to stop as soon as there is one. This future never ends.
    async fn watch(&self, batch: &BatchRecord, stop: watch::Sender<Option<Stop>>) -> Infallible {
        let deadline = Instant::now().checked_add(id::until(&*self.api.store, batch.deadline));
        while stop.borrow().is_none() {
            let changed = self.api.changed.notified();
            let mut changed = pin!(changed);
            changed.as_mut().enable();
            match self.stop(batch).await {
                Ok(None) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    stop.send_replace(Some(Stop::Expired));
                }
                Ok(Some(reason)) => {
                    stop.send_replace(Some(reason));
                }
                Ok(None) | Err(_) => {
                    let left = deadline.map_or(LOOK, |end| end - Instant::now());
                    tokio::select! {
                        () = changed => {}
                        () = sleep(left.min(LOOK)) => {}
                    }
                }
            }
        }
        std::future::pending().await
    }

    async fn carry_out(
        &self,
        batch: &BatchRecord,
        stopped: watch::Receiver<Option<Stop>>,
    ) -> Result<End, StoreError> {
        let progress = self
            .api
            .record::<Progress>(&keys::progress(&self.id))
            .await?;
        let progress = match progress {
            Some(progress) => progress,
            None => match self.validate(batch, stopped.clone()).await? {
                Ok(total) => {
                    let progress = Progress {
                        counts: Counts {
                            total,
                            ..Counts::default()
                        },
                        in_progress_at: id::seconds(self.api.store.now()),
                        ..Progress::default()
                    };
                    self.save(&progress).await?;
                    progress
                }
                Err((status, errors)) => return Ok(self.end(status, errors, Counts::default())),
            },
        };
        self.run_lines(batch, progress, stopped).await
    }

    /// Validates the input file. Returns the number of its lines, or the end of a batch that will not run.
    async fn validate(
        &self,
        batch: &BatchRecord,
        mut stopped: watch::Receiver<Option<Stop>>,
    ) -> Result<Result<u64, (EndStatus, Vec<LineError>)>, StoreError> {
        let look = async {
            let _permit = self.api.validations.acquire().await;
            // A file that has expired since the batch was created still exists, because the batch uses it.
            let file = keys::file(&self.active.tenant, &batch.input_file_id);
            if self.api.store.value(&file).await?.is_none() {
                let message = "the input file was deleted before it was read";
                return Ok(Err(vec![LineError::of_file("file_not_found", message)]));
            }
            let context = LineContext::new(&self.api, &self.active.tenant, batch);
            let mut validator = Validator::new(&batch.endpoint);
            let mut lines = self.lines(batch);
            while let Some((number, line)) = lines.next().await? {
                let check = |line: &Line<'_>| {
                    let body = Bytes::copy_from_slice(line.body.as_bytes());
                    context.queue(&context.request(body)).map(drop)
                };
                validator.add(number, line.as_deref().map_err(|error| *error), check);
                if validator.has_enough() {
                    break;
                }
            }
            Ok(validator.finish())
        };
        let found = tokio::select! {
            found = look => found?,
            Ok(stop) = stopped.wait_for(Option::is_some) => {
                let status = match *stop {
                    Some(Stop::Cancelled) => EndStatus::Cancelled,
                    _ => EndStatus::Expired,
                };
                return Ok(Err((status, Vec::new())));
            }
        };
        Ok(found.map_err(|errors| (EndStatus::Failed, errors)))
    }

    fn lines(&self, batch: &BatchRecord) -> Lines {
        Lines::new(
            &self.api.store,
            &batch.input_file_id,
            self.api.settings.line_limit,
        )
    }

    async fn save(&self, progress: &Progress) -> Result<(), StoreError> {
        self.api
            .store
            .put(&keys::progress(&self.id), records::write(progress))
            .await
    }

    /// Stores each line without a result as a request, and waits until all of them have ended.
    async fn run_lines(
        &self,
        batch: &BatchRecord,
        progress: Progress,
        stopped: watch::Receiver<Option<Stop>>,
    ) -> Result<End, StoreError> {
        // A line that was stored may be forgotten after its end, but only if the batch was not driven for the whole
        // retention.
        let since = id::millis(self.api.store.now()).saturating_sub(self.seen_at);
        let retention = u64::try_from(self.api.settings.retention.as_millis()).unwrap_or(u64::MAX);
        let may_be_forgotten = match since >= retention {
            true => progress.reached,
            false => 0,
        };
        let mut results = Results::read(&self.api.store, batch, progress.counts.total).await?;
        let context = Arc::new(LineContext::new(&self.api, &self.active.tenant, batch));
        let budget = Arc::new(Semaphore::new(BUDGET as usize));
        let mut tasks = JoinSet::new();
        let mut saved = Saved {
            driver: self,
            progress,
            at: Instant::now(),
        };
        let mut lines = self.lines(batch);
        while let Some((number, line)) = lines.next().await? {
            if results.done.contains(&number) {
                continue;
            }
            let Ok(line) = line else {
                continue; // the file is valid, so its lines can't be too long
            };
            let kib = u32::try_from(line.len() / 1_024 + 1)
                .unwrap_or(u32::MAX)
                .min(BUDGET);
            let permit = loop {
                let has_room = tasks.len() < WINDOW;
                tokio::select! {
                    Ok(permit) = Arc::clone(&budget).acquire_many_owned(kib), if has_room => break permit,
                    Some(ended) = tasks.join_next() => results.add(ended)?,
                }
                saved.save_counts(&results).await?;
            };
            saved.reach(number).await?;
            let task = LineTask {
                context: Arc::clone(&context),
                batch: self.id.clone(),
                number,
                may_be_forgotten: number <= may_be_forgotten,
                stopped: stopped.clone(),
            };
            // The first poll passes the line to the store, so the store gets the lines in the order of the file.
            // Spawned tasks would run in any order. Tokio's budget could end the first poll early, so it is polled
            // without that budget.
            let mut run = Box::pin(task.run(line, permit));
            let mut first_poll = |cx: &mut Context<'_>| pin!(unconstrained(run.as_mut())).poll(cx);
            match poll_fn(|cx| Poll::Ready(first_poll(cx))).await {
                Poll::Ready(ended) => results.add(Ok(ended))?,
                Poll::Pending => drop(tasks.spawn(run)), // the spawned task polls it again
            }
        }
        let read = Bytes::from_static(keys::READ);
        let file_use = keys::file_use(&batch.input_file_id, &self.id);
        self.wait_until_stored(&budget, &mut tasks, &mut results, &mut saved)
            // From here on the client may delete the file, because all its requests are in the store.
            .await?;
        self.api.store.put(&file_use, read).await?;
        while let Some(ended) = tasks.join_next().await {
            results.add(ended)?;
            saved.save_counts(&results).await?;
        }
        saved.progress.counts = results.counts;
        saved.progress.finalizing_at = Some(id::seconds(self.api.store.now()));
        self.save(&saved.progress).await?;
        self.finalize(batch, &results).await
    }

    /// Waits until each line that was read is stored as a request.
    async fn wait_until_stored(
        &self,
        budget: &Arc<Semaphore>,
        tasks: &mut JoinSet<Result<Ended, StoreError>>,
        results: &mut Results,
        saved: &mut Saved<'_>,
    ) -> Result<(), StoreError> {
        loop {
            tokio::select! {
                Ok(_all) = budget.acquire_many(BUDGET) => return Ok(()),
                Some(ended) = tasks.join_next() => results.add(ended)?,
            }
            saved.save_counts(results).await?;
        }
    }

    /// Makes the output file and the error file visible to the client.
    async fn finalize(&self, batch: &BatchRecord, results: &Results) -> Result<End, StoreError> {
        let now = self.api.store.now();
        let lifetime = batch.output_lifetime.map(Duration::from_secs);
        let lifetime = lifetime.unwrap_or(self.api.settings.retention);
        let expires_at = now.checked_add(lifetime).map(id::seconds);
        let files = [
            (&batch.output_file_id, results.output_bytes, "output"),
            (&batch.error_file_id, results.error_bytes, "error"),
        ];
        for (file_id, bytes, kind) in files {
            if bytes == 0 {
                continue;
            }
            let file = FileRecord {
                bytes,
                created_at: id::seconds(now),
                filename: format!("{}_{kind}.jsonl", self.id),
                purpose: "batch_output".to_owned(),
                expires_at,
            };
            let key = keys::file(&self.active.tenant, file_id);
            self.api.store.put(&key, records::write(&file)).await?;
        }
        // A client that was told `cancelling` expects `cancelled`, even if all lines had already ended.
        let status = match self.api.store.value(&keys::cancel(&self.id)).await? {
            Some(_) => EndStatus::Cancelled,
            None if results.has_expired => EndStatus::Expired,
            None => EndStatus::Completed,
        };
        Ok(End {
            has_output: results.output_bytes > 0,
            has_errors: results.error_bytes > 0,
            ..self.end(status, Vec::new(), results.counts)
        })
    }

    fn end(&self, status: EndStatus, errors: Vec<LineError>, counts: Counts) -> End {
        End {
            status,
            at: id::seconds(self.api.store.now()),
            errors,
            counts,
            has_output: false,
            has_errors: false,
        }
    }

    /// Leaves the message that the batch has ended for the sender of webhooks. It comes before the batch counts as done, so
    /// that a process that dies in between leaves it to the next one.
    async fn tell(&self, batch: &BatchRecord) -> Result<(), StoreError> {
        let Some(url) = &batch.webhook else {
            return Ok(());
        };
        let object = self.api.object(&self.id, batch).await?.to_string();
        webhooks::post(&self.api.store, &self.id, &self.active.tenant, url, object).await
    }

    /// Removes the records that an ended batch no longer needs.
    async fn clean_up(&self, batch: Option<&BatchRecord>) -> Result<(), StoreError> {
        let store = &self.api.store;
        if let Some(batch) = batch {
            self.tell(batch).await?;
            let file = &batch.input_file_id;
            store.remove(&keys::file_use(file, &self.id)).await?;
            let key = keys::file(&self.active.tenant, file);
            let is_used = !store
                .values(&keys::file_uses(file), None, 1)
                .await?
                .is_empty();
            if store.value(&key).await?.is_none() && !is_used {
                files::remove_pieces(store, file).await?;
            }
        }
        store.remove(&keys::active(&self.id)).await?;
        Ok(())
    }
}

/// The progress as it was last recorded.
struct Saved<'a> {
    driver: &'a Driver,
    progress: Progress,
    at: Instant,
}

impl Saved<'_> {
    /// Records that lines up to some distance after this one may be stored. This happens before the line is stored.
    async fn reach(&mut self, line: u64) -> Result<(), StoreError> {
        if line > self.progress.reached {
            self.progress.reached = line + WINDOW as u64;
            self.driver.save(&self.progress).await?;
        }
        Ok(())
    }

    async fn save_counts(&mut self, results: &Results) -> Result<(), StoreError> {
        if self.at.elapsed() >= SAVE && self.progress.counts != results.counts {
            self.progress.counts = results.counts;
            self.driver.save(&self.progress).await?;
            self.at = Instant::now();
        }
        Ok(())
    }
}

/// The results of the lines so far.
struct Results {
    /// The lines that already had a result when the driver started.
    done: HashSet<u64>,
    counts: Counts,
    output_bytes: u64,
    error_bytes: u64,
    /// `true` if a line has ended because the batch's window was over.
    has_expired: bool,
}

impl Results {
    /// Reads the results that were recorded earlier.
    async fn read(
        store: &Arc<dyn Store>,
        batch: &BatchRecord,
        total: u64,
    ) -> Result<Self, StoreError> {
        let mut results = Self {
            done: HashSet::new(),
            counts: Counts {
                total,
                ..Counts::default()
            },
            output_bytes: 0,
            error_bytes: 0,
            has_expired: false,
        };
        for (file, is_success) in [(&batch.output_file_id, true), (&batch.error_file_id, false)] {
            let mut pieces = Scan::new(store, keys::pieces(file), RESULTS_AT_ONCE);
            let mut latest = None;
            while let Some((key, piece)) = pieces.next().await? {
                let (number, is_part) = keys::piece_index(&key).unwrap_or((0, false));
                if is_part {
                    // Parts without a first one are left from a write that did not end.
                    if latest == Some(number) {
                        results.add_bytes(is_success, piece.len() as u64);
                    }
                    continue;
                }
                let ended = Ended {
                    is_success,
                    bytes: piece.len() as u64,
                    has_expired: !is_success && super::result::has_expired(&piece),
                };
                latest = None;
                if results.done.insert(number) {
                    latest = Some(number);
                    results.add(Ok(Ok(ended)))?;
                }
            }
        }
        Ok(results)
    }

    fn add(
        &mut self,
        ended: Result<Result<Ended, StoreError>, tokio::task::JoinError>,
    ) -> Result<(), StoreError> {
        let ended = match ended {
            Ok(ended) => ended?,
            Err(error) => {
                return Err(StoreError::Unavailable(format!(
                    "a line's task has failed: {error}"
                )));
            }
        };
        self.has_expired |= ended.has_expired;
        match ended.is_success {
            true => self.counts.completed += 1,
            false => self.counts.failed += 1,
        }
        self.add_bytes(ended.is_success, ended.bytes);
        Ok(())
    }

    /// Adds bytes of a result to the size of its file.
    fn add_bytes(&mut self, is_success: bool, bytes: u64) {
        match is_success {
            true => self.output_bytes += bytes,
            false => self.error_bytes += bytes,
        }
    }
}

/// The largest number of results that are read at a time.
const RESULTS_AT_ONCE: usize = 256;

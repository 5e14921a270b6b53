//! The workers: threads with a runtime of their own, each of which serves the connections that it has accepted.
//!
//! A request stays on its worker, and so does its connection to a backend, so a piece of an answer wakes no other thread.
//! A permit that one worker gives back may wake a waiter of another one.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The longest time that a worker may take to stop the tasks that still run.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The workers of a server. They end when it is dropped.
pub(super) struct Workers {
    end: CancellationToken,
    _end_on_drop: DropGuard,
    /// Each worker holds a clone until it has ended.
    running: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
    runtimes: Vec<Handle>,
}

impl Workers {
    pub(super) fn new() -> Self {
        let end = CancellationToken::new();
        let (running, ended) = mpsc::channel(1);
        Self {
            _end_on_drop: end.clone().drop_guard(),
            end,
            running,
            ended,
            runtimes: Vec::new(),
        }
    }

    /// Starts a worker that runs `task`. Its runtime goes on until all workers end, because what requests have spawned may
    /// outlive their connections.
    pub(super) fn start(
        &mut self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (end, running) = (self.end.clone(), self.running.clone());
        let name = format!("worker-{}", self.runtimes.len());
        self.runtimes.push(runtime.handle().clone());
        let worker = move || {
            runtime.block_on(end.run_until_cancelled(async {
                task.await;
                std::future::pending::<()>().await;
            }));
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            drop(running);
        };
        thread::Builder::new().name(name).spawn(worker)?;
        Ok(())
    }

    /// Returns the runtimes of the workers.
    pub(super) fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }

    /// Ends the workers, and drops the tasks that still run.
    pub(super) async fn end(mut self) {
        self.end.cancel();
        drop(self.running);
        _ = self.ended.recv().await; // fails once no worker has a sender
    }
}

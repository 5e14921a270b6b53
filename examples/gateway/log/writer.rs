//! Standard error may be a pipe that is not read, a closed pipe or a file on a full disk. Written to
//! directly, the first blocks every thread that has a line to write, and the others fail it.
//!
//! So a thread of its own writes the log. Lines wait for it in a bounded queue; a line that finds the queue
//! full, or that cannot be written, is dropped and counted. Once lines get through again, a line says how
//! many were dropped.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// How many lines wait at most. A line of a request is some 300 bytes and at most about 2 KiB, so that they
/// take 8 MiB at the worst; at ten thousand requests a second they bridge a pause of 0.4 s.
const QUEUED_LINES: usize = 4096;

/// How long the end of the process waits for the last lines. [`WorkerGuard`] gives up after 1.1 s.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The least time between two lines that say how many were dropped.
const BETWEEN_NOTICES: Duration = Duration::from_secs(1);

// A process has one log.
static FOUND_NO_PLACE: OnceLock<ErrorCounter> = OnceLock::new();
static NOT_WRITTEN: AtomicU64 = AtomicU64::new(0);

/// How many lines were dropped since the start.
pub(crate) fn dropped_lines() -> u64 {
    let no_place = FOUND_NO_PLACE.get().map_or(0, ErrorCounter::dropped_lines);
    no_place as u64 + NOT_WRITTEN.load(Ordering::Relaxed)
}

/// Starts the thread that writes to standard error. The writer that is returned never blocks and never fails.
pub(super) fn start() -> (NonBlocking, Log) {
    let thread = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUED_LINES)
        .lossy(true)
        .thread_name("log");
    let (writer, guard) = thread.finish(Counted::new(io::stderr()));
    FOUND_NO_PLACE.get_or_init(|| writer.error_counter());
    (writer, Log { guard })
}

/// Keeps the log's thread running.
#[must_use]
pub(crate) struct Log {
    guard: WorkerGuard,
}

impl Log {
    /// Writes the lines that wait and then `last_words`, if that can be done within two seconds.
    pub(crate) fn end(self, last_words: Option<String>) {
        let (written, all) = mpsc::channel();
        // Dropping the guard prints to standard output if the queue stays full, and that too may block or
        // panic; so may standard error. A thread that is left behind ends with the process.
        let last = thread::Builder::new().spawn(move || {
            drop(self.guard);
            if let Some(words) = last_words {
                _ = writeln!(io::stderr(), "{words}");
            }
            _ = written.send(());
        });
        if last.is_ok() {
            _ = all.recv_timeout(LAST_LINES);
        }
    }
}

/// RoomStats the lines that cannot be written. It reports no error: there is no place left to report it to.
struct Counted<W> {
    to: W,
    /// Whether the last line was written.
    gets_through: bool,
    /// How many dropped lines the log has been told of, and when.
    told: (u64, Option<Instant>),
}

impl<W> Counted<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            gets_through: false,
            told: (0, None),
        }
    }

    fn tell_dropped(&mut self) {
        let (told, at) = self.told;
        let dropped = dropped_lines();
        if dropped == told || at.is_some_and(|at| at.elapsed() < BETWEEN_NOTICES) {
            return;
        }
        // If this line is dropped, too, it is counted, and so there is another one later.
        self.told = (dropped, Some(Instant::now()));
        tracing::warn!(
            dropped,
            "lines of the log were dropped: standard error did not take them"
        );
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line)?;
        Ok(line.len())
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.gets_through = self.to.write_all(line).is_ok();
        if !self.gets_through {
            NOT_WRITTEN.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Called whenever the queue has become empty: then there is a place for one line more.
    fn flush(&mut self) -> io::Result<()> {
        _ = self.to.flush();
        if self.gets_through {
            self.tell_dropped();
        }
        Ok(())
    }
}

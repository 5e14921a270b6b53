//! A log writer that never blocks and never fails.
//!
//! Standard error may be a pipe that is not read, a closed pipe or a file on a full disk. A direct write would
//! block in the first case and fail in the others. So a separate thread writes the log. Lines wait for it in a
//! bounded queue; a line that finds the queue full or cannot be written is dropped and counted. Once a write
//! succeeds again, the log reports how many lines were dropped.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::args::LogFormat;

/// Lines that wait at most. A request's line has about 500 bytes, at most about 4 KiB, so the queue takes at most
/// 16 MiB. At 10,000 requests a second it bridges a pause of 0.4 s.
const QUEUED_LINES: usize = 4096;

/// How long the process waits for the last lines before it exits. [`WorkerGuard`] gives up after 1.1 s.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The least time between two reports of dropped lines.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

// Statics, because a process has one log and `/metrics` reads them.
static QUEUE_FULL: OnceLock<ErrorCounter> = OnceLock::new();
static WRITE_FAILED: AtomicU64 = AtomicU64::new(0);

/// Number of lines dropped since the start.
pub(crate) fn dropped_lines() -> u64 {
    let queue_full = QUEUE_FULL.get().map_or(0, ErrorCounter::dropped_lines);
    queue_full as u64 + WRITE_FAILED.load(Ordering::Relaxed) // a counter: no order needed
}

/// Starts the thread that writes to standard error. The returned writer never blocks and never fails.
pub(super) fn start(format: LogFormat) -> (NonBlocking, LogThread) {
    let thread = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUED_LINES)
        .lossy(true)
        .thread_name("log");
    let (writer, guard) = thread.finish(CountingWriter::new(io::stderr()));
    QUEUE_FULL.get_or_init(|| writer.error_counter());
    (writer, LogThread { guard, format })
}

/// Keeps the thread that writes the log running.
#[must_use]
pub(crate) struct LogThread {
    guard: WorkerGuard,
    format: LogFormat,
}

impl LogThread {
    /// Writes the queued lines and then the problem that ends the process; gives up after [`FLUSH_TIMEOUT`].
    pub(crate) fn finish(self, problem: Option<String>) {
        let (done, finished) = mpsc::channel();
        // Dropping the guard prints to standard output if the queue stays full. That may block or panic, as may
        // the write to standard error, so both run in a thread; if it hangs, it ends with the process.
        let last = thread::Builder::new().spawn(move || {
            drop(self.guard);
            if let Some(problem) = problem {
                _ = writeln!(io::stderr(), "{}", error_line(self.format, &problem));
            }
            _ = done.send(());
        });
        if last.is_ok() {
            _ = finished.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Returns the line of a problem that ends the process. As JSON, it has the fields of all other lines.
pub(crate) fn error_line(format: LogFormat, problem: &str) -> String {
    match format {
        LogFormat::Text => problem.to_owned(),
        LogFormat::Json => {
            let mut now = String::new();
            _ = SystemTime.format_time(&mut Writer::new(&mut now));
            json!({ "timestamp": now, "level": "ERROR", "message": problem, "target": "gateway" })
                .to_string()
        }
    }
}

/// A writer that counts failed writes and returns no error, because there is nowhere left to report one.
struct CountingWriter<W> {
    to: W,
    /// Whether the last write succeeded.
    last_write_ok: bool,
    /// Number of dropped lines in the last report, and when it was made.
    reported: (u64, Option<Instant>),
}

impl<W> CountingWriter<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            last_write_ok: false,
            reported: (0, None),
        }
    }

    fn report_dropped(&mut self) {
        let (reported, at) = self.reported;
        let dropped = dropped_lines();
        if dropped == reported || at.is_some_and(|at| at.elapsed() < NOTICE_INTERVAL) {
            return;
        }
        // If this report is itself dropped, it is counted, so a later report follows.
        self.reported = (dropped, Some(Instant::now()));
        tracing::warn!(
            dropped,
            "lines of the log were dropped: standard error did not take them"
        );
    }
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line)?;
        Ok(line.len())
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.last_write_ok = self.to.write_all(line).is_ok();
        if !self.last_write_ok {
            WRITE_FAILED.fetch_add(1, Ordering::Relaxed); // a counter: no order needed
        }
        Ok(())
    }

    /// Called whenever the queue has become empty, so there is room for a report.
    fn flush(&mut self) -> io::Result<()> {
        _ = self.to.flush();
        if self.last_write_ok {
            self.report_dropped();
        }
        Ok(())
    }
}

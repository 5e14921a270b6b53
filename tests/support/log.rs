//! The log of a test, captured in memory.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::filter::LevelFilter;

/// The lines that were logged since they were last taken.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures what this thread logs, down to `level`, for as long as the guards live.
    pub(crate) fn install(&self, level: LevelFilter) -> (DefaultGuard, Dispatch) {
        // `tracing` caches per log line whether any subscriber wants it, and with a single subscriber asks only that of
        // the first thread to reach the line. Tests on other threads have none, so a second subscriber is needed.
        let another = Dispatch::new(NoSubscriber::new());
        let written = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || written.clone())
            .finish();
        (tracing::subscriber::set_default(subscriber), another)
    }

    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

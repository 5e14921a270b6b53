//! The output of a process: it goes to the log and to readers of its model, and its last lines to the error of a start that
//! fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

use super::lines::ByteLines;
use crate::swap::output::LINE_LIMIT;
use crate::swap::{Launch, ModelOutput};

/// The number of bytes that are read once the group is gone: as much as a pipe may hold.
const REST_LIMIT: u64 = 1 << 20;
/// The number of last lines that are kept.
const TAIL_LINES: usize = 20;
/// The number of characters of each of them that are kept.
const TAIL_CHARS: usize = 200;

/// The output of a process, of which the last lines are kept.
#[derive(Debug)]
pub(super) struct Output {
    /// The name of the instance, for the log.
    name: Arc<str>,
    /// `true` if the lines of the instance begin with its name, because another instance has none there.
    is_named: bool,
    model: ModelOutput,
    tail: Mutex<VecDeque<String>>,
}

impl Output {
    pub(super) fn new(launch: &Launch) -> Self {
        Self {
            name: Arc::clone(&launch.name),
            is_named: *launch.name != *launch.model.model.name,
            model: launch.output.clone(),
            tail: Mutex::default(),
        }
    }

    /// Reads until all writers have closed the pipe, or the group is gone. Then it reads only the rest in the pipe, because a
    /// process that has left the group may hold the pipe for ever. This waits for no reader of the lines, so the process can
    /// always write.
    pub(super) async fn read(&self, mut pipe: Receiver, group_gone: CancellationToken) {
        let (mut chunk, mut lines) = (vec![0; 8 << 10], ByteLines::new(LINE_LIMIT + 1)); // so that it is seen which lines are cut
        loop {
            let read = tokio::select! {
                biased;
                () = group_gone.cancelled() => break self.read_rest(pipe, &mut lines),
                read = pipe.read(&mut chunk) => read,
            };
            match read {
                Ok(read @ 1..) => lines.push(&chunk[..read], |line, _| self.on_line(line)),
                // An error of the pipe is not an error of the process, so the lines that were read count.
                Ok(0) | Err(_) => break,
            }
        }
        lines.end(|line, _| self.on_line(line));
    }

    /// Reads the rest in the pipe without waiting.
    fn read_rest(&self, pipe: Receiver, lines: &mut ByteLines) {
        let Ok(pipe) = pipe.into_nonblocking_fd() else {
            return;
        };
        // Limited, because another process may go on writing.
        let (mut pipe, mut chunk) = (File::from(pipe).take(REST_LIMIT), vec![0; 8 << 10]);
        // Fails once the pipe is empty.
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            lines.push(&chunk[..read], |line, _| self.on_line(line));
        }
    }

    /// Returns the last lines, for the error of a start that failed.
    pub(super) fn tail(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// Logs a line and keeps it for the tail, if it has text.
    fn on_line(&self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        match self.is_named {
            true => self
                .model
                .push(&[self.name.as_bytes(), b": ", line].concat()),
            false => self.model.push(line),
        }
        let line = String::from_utf8_lossy(line);
        tracing::debug!(target: "tower_triage::swap", model = &*self.name, "{line}");
        let mut tail = self.lock();
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(line.chars().take(TAIL_CHARS).collect());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::swap::SwapModel;

    #[test]
    fn the_tail_has_the_last_lines() {
        let model = Arc::new(SwapModel::new("m", ""));
        let output = Output::new(&Launch::new(model, Duration::ZERO));
        for number in 0..100 {
            let line = format!("{number} {}", "é".repeat(LINE_LIMIT));
            output.on_line(line.as_bytes());
        }
        let tail = output.tail();
        assert_eq!(tail.len(), TAIL_LINES);
        assert!(tail[0].starts_with("80 é") && tail[TAIL_LINES - 1].starts_with("99 é"));
        assert!(tail.iter().all(|line| line.chars().count() == TAIL_CHARS));
    }
}

//! What a process writes: to the log, and its last lines for the error of a start that fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

/// How many bytes of a line are read. The rest of it is left out.
const LINE_LIMIT: usize = 1 << 10;
/// The number of bytes that are read at most once the group is gone: as much as a pipe may hold.
const REST_LIMIT: u64 = 1 << 20;
/// How many of the last lines are kept.
const TAIL_LINES: usize = 20;
/// How many characters of each of them are kept.
const TAIL_CHARS: usize = 200;

/// The output of a process.
#[derive(Debug)]
pub(super) struct Output {
    /// The name of the instance, for the log.
    name: Arc<str>,
    tail: Mutex<VecDeque<String>>,
}

impl Output {
    pub(super) fn new(name: Arc<str>) -> Self {
        let tail = Mutex::default();
        Self { name, tail }
    }

    /// Reads until all processes that can write have closed the pipe, or the group is gone: then it reads what is in the
    /// pipe, because a process that has left the group may hold the pipe for ever. It never waits for a reader of the
    /// lines, so the writers never wait for it.
    pub(super) async fn read(&self, mut pipe: Receiver, group_gone: CancellationToken) {
        let (mut chunk, mut lines) = (vec![0; 8 << 10], Lines::default());
        loop {
            let read = tokio::select! {
                biased;
                () = group_gone.cancelled() => break self.read_rest(pipe, &mut lines),
                read = pipe.read(&mut chunk) => read,
            };
            match read {
                Ok(read @ 1..) => lines.push(&chunk[..read], |line| self.on_line(line)),
                // An error of a pipe is not one of the process: what was read counts.
                Ok(0) | Err(_) => break,
            }
        }
        lines.end(|line| self.on_line(line));
    }

    /// Reads what is in the pipe, and waits for no more.
    fn read_rest(&self, pipe: Receiver, lines: &mut Lines) {
        let Ok(pipe) = pipe.into_nonblocking_fd() else {
            return;
        };
        // Limited: another process may go on writing.
        let (mut pipe, mut chunk) = (File::from(pipe).take(REST_LIMIT), vec![0; 8 << 10]);
        // An error says that the pipe is empty.
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            lines.push(&chunk[..read], |line| self.on_line(line));
        }
    }

    /// The last lines.
    pub(super) fn tail(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn on_line(&self, line: &str) {
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

/// Splits bytes into lines of limited length. Lines without text are left out.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of the line that has not ended.
    begun: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_LIMIT - self.begun.len();
            self.begun.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end(&mut on_line);
            }
        }
    }

    /// Ends the line.
    fn end(&mut self, mut on_line: impl FnMut(&str)) {
        match String::from_utf8_lossy(&self.begun).trim_end() {
            "" => {}
            line => on_line(line),
        }
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of an output that comes in these chunks.
    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let (mut read, mut lines) = (Vec::new(), Lines::default());
        for chunk in chunks {
            lines.push(chunk, |line| read.push(line.to_owned()));
        }
        lines.end(|line| read.push(line.to_owned()));
        read
    }

    #[test]
    fn lines_end_where_they_end_however_they_come() {
        assert_eq!(
            lines(&[b"a b\nc", b"d\r\n\n \n", b"", b"e"]),
            ["a b", "cd", "e"]
        );
        assert_eq!(
            lines(&[b"caf\xc3", b"\xa9\n\xff!\n"]),
            ["café", "\u{fffd}!"]
        );
        assert_eq!(lines(&[b"\n"]), Vec::<String>::new());
    }

    #[test]
    fn the_rest_of_a_long_line_is_left_out() {
        let long = vec![b'x'; LINE_LIMIT + 1];
        let expected = "x".repeat(LINE_LIMIT);
        assert_eq!(lines(&[&long, &long, b"\nnext\n"]), [&expected, "next"]);
    }

    #[test]
    fn the_tail_has_the_last_lines() {
        let output = Output::new("m".into());
        for number in 0..100 {
            output.on_line(&format!("{number} {}", "é".repeat(LINE_LIMIT)));
        }
        let tail = output.tail();
        assert_eq!(tail.len(), TAIL_LINES);
        assert!(tail[0].starts_with("80 é") && tail[TAIL_LINES - 1].starts_with("99 é"));
        assert!(tail.iter().all(|line| line.chars().count() == TAIL_CHARS));
    }
}

//! The output of a process: it goes to the log, and its last lines to the error of a start that fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

/// The number of bytes of a line that are kept.
const LINE_LIMIT: usize = 1 << 10;
/// The number of bytes that are read once the group is gone: as much as a pipe may hold.
const REST_LIMIT: u64 = 1 << 20;
/// The number of last lines that are kept.
const TAIL_LINES: usize = 20;
/// The number of characters of each of them that are kept.
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

    /// Reads until all writers have closed the pipe, or the group is gone. Then it reads only the rest in the pipe, because a
    /// process that has left the group may hold the pipe for ever. This waits for no reader of the lines, so the process can
    /// always write.
    pub(super) async fn read(&self, mut pipe: Receiver, group_gone: CancellationToken) {
        let (mut chunk, mut lines) = (vec![0; 8 << 10], OutputLines::default());
        loop {
            let read = tokio::select! {
                biased;
                () = group_gone.cancelled() => break self.read_rest(pipe, &mut lines),
                read = pipe.read(&mut chunk) => read,
            };
            match read {
                Ok(read @ 1..) => lines.push(&chunk[..read], |line| self.on_line(line)),
                // An error of the pipe is not an error of the process, so the lines that were read count.
                Ok(0) | Err(_) => break,
            }
        }
        lines.end(|line| self.on_line(line));
    }

    /// Reads the rest in the pipe without waiting.
    fn read_rest(&self, pipe: Receiver, lines: &mut OutputLines) {
        let Ok(pipe) = pipe.into_nonblocking_fd() else {
            return;
        };
        // Limited, because another process may go on writing.
        let (mut pipe, mut chunk) = (File::from(pipe).take(REST_LIMIT), vec![0; 8 << 10]);
        // An error: the pipe is empty.
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            lines.push(&chunk[..read], |line| self.on_line(line));
        }
    }

    /// Returns the last lines.
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

/// A splitter of bytes into lines of limited length. It leaves out lines without text.
#[derive(Debug, Default)]
struct OutputLines {
    /// The beginning of the current line.
    begun: Vec<u8>,
}

impl OutputLines {
    fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_LIMIT - self.begun.len();
            self.begun.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end(&mut on_line);
            }
        }
    }

    /// Ends the current line.
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

    /// Returns the lines of an output that comes in these chunks.
    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let (mut read, mut lines) = (Vec::new(), OutputLines::default());
        for chunk in chunks {
            lines.push(chunk, |line| read.push(line.to_owned()));
        }
        lines.end(|line| read.push(line.to_owned()));
        read
    }

    #[test]
    fn lines_are_split_at_newlines_across_chunks() {
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
    fn a_long_line_is_cut() {
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

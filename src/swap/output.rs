//! The last lines of the output of models, which launchers write and handles read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// The number of lines that are kept.
const LINES: usize = 200;

/// The number of bytes of a line that are kept.
pub(super) const LINE_LIMIT: usize = 1 << 10;

/// The last 200 lines of a model's output. All instances of the model and all its starts share them, and so do clones.
///
/// A [`Launcher`](super::Launcher) adds the lines of the server that it starts to [`Launch::output`](super::Launch::output).
/// Adding a line waits for no reader, so the server can always write.
#[derive(Clone, Default)]
pub struct ModelOutput(watch::Sender<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last: VecDeque<Arc<str>>,
    /// The number of lines before those in `last`.
    before: u64,
}

impl ModelOutput {
    /// Adds a line of output, without its end. Invalid UTF-8 is replaced by U+FFFD, and a line of more than 1 KiB is cut and
    /// ends with `…`. Of a line that the server has written over with carriage returns, only the last text is kept.
    pub fn push(&self, line: &[u8]) {
        let line = shown(line).into();
        self.0.send_modify(|lines| {
            if lines.last.len() == LINES {
                lines.last.pop_front();
                lines.before += 1;
            }
            lines.last.push_back(line);
        });
    }

    /// Returns a reader of the lines that are kept and of those to come.
    #[must_use]
    pub fn reader(&self) -> OutputReader {
        OutputReader {
            lines: self.0.subscribe(),
            next: 0,
        }
    }
}

impl fmt::Debug for ModelOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelOutput").finish_non_exhaustive()
    }
}

/// A reader of the output of a model, made by [`SwapHandle::output`](super::SwapHandle::output) or [`ModelOutput::reader`].
pub struct OutputReader {
    lines: watch::Receiver<Lines>,
    /// The number of the next line to read.
    next: u64,
}

/// Lines of the output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputLines {
    /// The number of lines before these that the reader was too slow to read.
    pub missed: u64,
    /// The lines, of which there is at least one.
    pub lines: Vec<Arc<str>>,
}

impl OutputReader {
    /// Leaves out the lines that are kept, so that the first line is one to come.
    #[must_use]
    pub fn skip_history(mut self) -> Self {
        self.next = self.lines.borrow_and_update().end();
        self
    }

    /// Waits for lines, and returns all that are there. The first call returns the lines that are kept. Returns `None` once
    /// the model is gone.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the next call returns the lines.
    pub async fn next(&mut self) -> Option<OutputLines> {
        loop {
            let read = self.lines.borrow_and_update().since(&mut self.next);
            if read.is_some() {
                return read;
            }
            self.lines.changed().await.ok()?;
        }
    }
}

impl fmt::Debug for OutputReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputReader")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Returns the number of the next line.
    fn end(&self) -> u64 {
        self.before + self.last.len() as u64
    }

    /// Returns the lines from `next` on, if there are any, and moves `next` behind them.
    fn since(&self, next: &mut u64) -> Option<OutputLines> {
        // A new reader has missed nothing: it begins with the first line that is kept.
        let missed = match *next {
            0 => 0,
            next => self.before.saturating_sub(next),
        };
        let skipped = next.saturating_sub(self.before) as usize;
        let lines: Vec<_> = self.last.iter().skip(skipped).cloned().collect();
        *next = self.end();
        (!lines.is_empty()).then_some(OutputLines { missed, lines })
    }
}

/// Returns a line as it is kept.
fn shown(line: &[u8]) -> String {
    let line = line.trim_ascii_end();
    let line = line.rsplit(|&byte| byte == b'\r').next().unwrap_or(line);
    match line.get(..LINE_LIMIT) {
        Some(begin) if begin.len() < line.len() => {
            let begin = match std::str::from_utf8(begin) {
                // The cut goes through a character.
                Err(error) if error.error_len().is_none() => &begin[..error.valid_up_to()],
                _ => begin,
            };
            format!("{}…", String::from_utf8_lossy(begin))
        }
        _ => String::from_utf8_lossy(line).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn now(reader: &mut OutputReader) -> Option<(u64, Vec<String>)> {
        let read = reader.next().now_or_never()??;
        let lines = read.lines.iter().map(|line| line.to_string()).collect();
        Some((read.missed, lines))
    }

    #[test]
    fn a_reader_gets_the_last_lines_and_then_each_new_one() {
        let output = ModelOutput::default();
        for number in 0..LINES + 5 {
            output.push(number.to_string().as_bytes());
        }
        let (mut reader, mut later) = (output.reader(), output.reader().skip_history());
        let (missed, lines) = now(&mut reader).unwrap();
        assert_eq!((missed, lines.len(), &*lines[0]), (0, LINES, "5"));
        assert_eq!((now(&mut reader), now(&mut later)), (None, None));
        output.push(b"new");
        let new = Some((0, vec!["new".to_owned()]));
        assert_eq!((now(&mut reader), now(&mut later)), (new.clone(), new));
        drop(output);
        assert_eq!(reader.next().now_or_never(), Some(None));
    }

    #[test]
    fn a_slow_reader_is_told_the_number_of_missed_lines() {
        let output = ModelOutput::default();
        output.push(b"first");
        let mut reader = output.reader();
        now(&mut reader).unwrap();
        for number in 0..LINES + 7 {
            output.push(number.to_string().as_bytes());
        }
        let (missed, lines) = now(&mut reader).unwrap();
        assert_eq!((missed, lines.len(), &*lines[0]), (7, LINES, "7"));
    }

    #[test]
    fn lines_are_text_of_limited_length() {
        let long = "é".repeat(LINE_LIMIT);
        let odd = format!("a{long}");
        for (line, expected) in [
            (&b"10 %\r20 %\r30 % \r\n"[..], "30 %".to_owned()),
            (b"caf\xff\xc3", "caf\u{fffd}\u{fffd}".to_owned()),
            (&[b'x'; LINE_LIMIT], "x".repeat(LINE_LIMIT)),
            (long.as_bytes(), format!("{}…", &long[..LINE_LIMIT])),
            (odd.as_bytes(), format!("{}…", &odd[..LINE_LIMIT - 1])),
        ] {
            assert_eq!(shown(line), expected);
        }
    }
}

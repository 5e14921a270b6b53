//! The watch of the configuration file, with `--watch`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::in_thread;
use crate::config::files;

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// The first look is so late that later ones are between those at files of keys, which would interrupt them.
const FIRST: Duration = Duration::from_millis(1_500);

/// The content of a file at one look. `None` if it cannot be read.
type Content = Option<Vec<u8>>;

/// A watch of a file. It compares the content, so it also notices a file that another one replaces by a link.
pub(crate) struct FileWatch {
    path: PathBuf,
    /// The content that was used last.
    known: Content,
    /// Another content, at the last look.
    seen: Option<Content>,
    interval: Interval,
}

impl FileWatch {
    /// Begins to watch a file, before it is read for use. In a Tokio runtime.
    pub(crate) fn new(path: PathBuf) -> Self {
        let mut interval = interval_at(Instant::now() + FIRST, INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            known: content(&path),
            path,
            seen: None,
            interval,
        }
    }

    /// Waits until the file has another content. If this is dropped, the next call goes on.
    pub(super) async fn changed(&mut self) {
        loop {
            self.interval.tick().await;
            let path = self.path.clone();
            let read = in_thread(move || content(&path)).await;
            if read.is_ok_and(|content| self.look(content)) {
                return;
            }
        }
    }

    /// Returns `true` once for each other content. It has to be the same at two looks, because a file that is being written
    /// may be valid up to there.
    fn look(&mut self, content: Content) -> bool {
        if content == self.known {
            self.seen = None;
            return false;
        }
        if self.seen.as_ref() != Some(&content) {
            self.seen = Some(content);
            return false;
        }
        (self.known, self.seen) = (content, None);
        true
    }
}

fn content(path: &Path) -> Content {
    files::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_other_content_that_stays_counts_once() {
        let mut watch = FileWatch::new("/no/such/file".into());
        let steps = [
            (None, false),
            (Some("a"), false),
            (Some("ab"), false),
            (Some("ab"), true),
            (Some("ab"), false),
            (Some("b"), false),
            (Some("ab"), false),
            (Some("b"), false),
            (None, false),
            (None, true),
            (None, false),
        ];
        for (nth, (content, is_change)) in steps.into_iter().enumerate() {
            let content = content.map(|content| content.as_bytes().to_vec());
            assert_eq!(watch.look(content), is_change, "{nth}");
        }
    }
}

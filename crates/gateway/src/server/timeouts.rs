//! The timeouts of a connection: which of its waits have lasted for too long, and when to look again.
//!
//! A request neither reads the clock nor sets a timer. The task of its connection looks at the marks at intervals, so a
//! wait begins when it is first seen, and may last longer than its limit by one interval.

use std::cmp::min;
use std::time::Duration;

use tokio::time::Instant;

use super::activity::{Activity, Requests, Running, Seen};
use super::wait::Lasting;
use crate::config::ServerConfig;

/// The time that a connection has to close politely. Its client may have to answer before it is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks per shortest limit.
const LOOKS: u32 = 8;

/// The longest waits for a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) header: Duration,
    body: Duration,
    idle: Duration,
    write: Duration,
}

impl From<&ServerConfig> for Limits {
    fn from(config: &ServerConfig) -> Self {
        Self {
            header: config.header_timeout,
            body: config.body_timeout,
            idle: config.idle_timeout,
            write: config.write_timeout,
        }
    }
}

impl Limits {
    /// Returns the time between two looks.
    fn interval(&self) -> Duration {
        let shortest = min(min(self.header, self.body), min(self.idle, self.write));
        (shortest / LOOKS).max(Duration::from_millis(1))
    }
}

/// The next step of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Look again after this time.
    LookAfter(Duration),
    /// Close politely, and look again after this time.
    Close(Duration),
    /// Drop the connection.
    End(&'static str),
}

/// The waits of a connection as they were last seen.
#[derive(Debug)]
pub(super) struct Timeouts {
    limits: Limits,
    writes: Lasting,
    /// The time between requests, or until the first one.
    pause: Lasting,
    /// The time at which the polite close began.
    closing: Option<Instant>,
}

impl Timeouts {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            writes: Lasting::new(now),
            pause: Lasting::new(now),
            closing: None,
        }
    }

    /// Returns the time until the first look.
    pub(super) fn first_look(&self) -> Duration {
        self.limits.interval()
    }

    /// Looks at a connection. Ends those of its requests that have waited for the client for too long.
    pub(super) fn look(&mut self, activity: &Activity, now: Instant) -> Step {
        let blocked = self.writes.wait(&activity.writes, now);
        let mut requests = activity.requests();
        if blocked.is_some_and(|blocked| blocked >= self.limits.write) {
            if !requests.running.is_empty() {
                tracing::info!("response cut off: the client does not read it");
            }
            return Step::End("the client does not read");
        }
        if !requests.running.is_empty() {
            return self.look_at_requests(&mut requests, now);
        }
        let (state, limit) = self.pause(&requests, activity.reads());
        let paused = self.pause.for_time(state, now);
        if let Some(since) = self.closing {
            return match now.duration_since(since) >= CLOSE_TIMEOUT {
                true => Step::End("the client does not let the connection close"),
                false => Step::LookAfter(self.limits.interval()),
            };
        }
        match limit.checked_sub(paused) {
            Some(left) if !left.is_zero() => Step::LookAfter(min(left, self.limits.interval())),
            _ if blocked.is_some() => Step::LookAfter(self.limits.interval()),
            _ => {
                self.closing = Some(now);
                Step::Close(CLOSE_TIMEOUT)
            }
        }
    }

    /// Returns the state of a connection without requests, and how long it may last. Over HTTP/1, bytes after the last
    /// response are those of a head. Over HTTP/2 they may be anything.
    fn pause(&self, requests: &Requests, reads: usize) -> (usize, Duration) {
        if requests.begun == 0 {
            return (0, self.limits.header);
        }
        let state = requests.begun.wrapping_mul(2);
        match !requests.is_http2 && reads != requests.reads_at_end {
            true => (state.wrapping_add(1), self.limits.header),
            false => (state, self.limits.idle),
        }
    }

    /// Looks at the requests that are being served. A connection with one has no limit of its own.
    fn look_at_requests(&self, requests: &mut Requests, now: Instant) -> Step {
        let is_http2 = requests.is_http2;
        for (_, running) in &mut requests.running {
            if let Some(reason) = self.end_late(running, is_http2, now) {
                return Step::End(reason);
            }
        }
        Step::LookAfter(self.limits.interval())
    }

    /// Ends a request that has waited for the client for too long. Returns why the connection has to end with it.
    fn end_late(
        &self,
        running: &mut Running,
        is_http2: bool,
        now: Instant,
    ) -> Option<&'static str> {
        let Running { exchange, seen } = running;
        let seen = seen.get_or_insert(Seen {
            upload: Lasting::new(now),
            download: Lasting::new(now),
        });
        let upload = seen.upload.wait(&exchange.upload, now);
        let download = seen.download.wait(&exchange.download, now);
        if upload.is_some_and(|upload| upload >= self.limits.body) && !exchange.fail_upload() {
            tracing::info!("response cut off: the client does not send the rest of its request");
            return (!exchange.reset_stream()).then_some("the client does not send");
        }
        if is_http2 && download.is_some_and(|download| download >= self.limits.write) {
            tracing::info!("response cut off: the client does not read it");
            exchange.reset_stream();
        }
        None
    }
}

#[cfg(test)]
mod tests;

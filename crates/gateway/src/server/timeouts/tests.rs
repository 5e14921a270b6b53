use std::sync::Arc;

use http::Version;

use super::*;

const HEADER: Duration = Duration::from_secs(8);
const IDLE: Duration = Duration::from_secs(24);
const BODY: Duration = Duration::from_secs(16);
const WRITE: Duration = Duration::from_secs(20);

/// The shortest limit, divided by the number of looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A connection, its timeouts, and a clock that the test moves.
struct Connection {
    activity: Arc<Activity>,
    timeouts: Timeouts,
    now: Instant,
}

impl Connection {
    fn new() -> Self {
        let limits = Limits {
            header: HEADER,
            body: BODY,
            idle: IDLE,
            write: WRITE,
        };
        let now = Instant::now();
        Self {
            activity: Arc::default(),
            timeouts: Timeouts::new(limits, now),
            now,
        }
    }

    /// Looks whenever it is due, and calls `each` before, until a step is none that looks again. Returns it, with the time
    /// that it took.
    fn until_step(&mut self, mut each: impl FnMut(&Activity)) -> (Step, Duration) {
        let begun = self.now;
        let mut next = self.timeouts.first_look();
        loop {
            self.now += next;
            each(&self.activity);
            match self.timeouts.look(&self.activity, self.now) {
                Step::LookAfter(time) => next = time,
                step => return (step, self.now - begun),
            }
            assert!(self.now - begun < Duration::from_secs(3600), "no step");
        }
    }

    /// Looks for `time`, in which no step may be due.
    fn stays_for(&mut self, time: Duration, mut each: impl FnMut(&Activity)) {
        let end = self.now + time;
        while self.now < end {
            each(&self.activity);
            let step = self.timeouts.look(&self.activity, self.now);
            assert!(matches!(step, Step::LookAfter(_)), "{step:?}");
            self.now += INTERVAL;
        }
    }
}

#[test]
fn a_first_head_has_the_header_timeout_however_it_arrives() {
    let mut connection = Connection::new();
    let (step, after) = connection.until_step(Activity::read_some);
    assert_eq!((step, after), (Step::Close(CLOSE_TIMEOUT), HEADER));
    let (step, after) = connection.until_step(|_| {});
    assert!(matches!(step, Step::End(_)));
    assert_eq!(after, CLOSE_TIMEOUT);
}

#[test]
fn a_kept_connection_has_the_idle_timeout() {
    let mut connection = Connection::new();
    drop(connection.activity.begin(Version::HTTP_11));
    let (step, after) = connection.until_step(|_| {});
    assert_eq!((step, after), (Step::Close(CLOSE_TIMEOUT), IDLE + INTERVAL));
}

#[test]
fn bytes_of_the_next_head_begin_the_header_timeout_over_http1_only() {
    for (version, limit) in [(Version::HTTP_11, HEADER), (Version::HTTP_2, IDLE)] {
        let mut connection = Connection::new();
        drop(connection.activity.begin(version));
        connection.activity.read_some();
        let (_, after) = connection.until_step(|_| {});
        assert_eq!(after, limit + INTERVAL, "{version:?}");
    }
}

#[test]
fn a_request_that_waits_for_its_backend_has_no_timeout() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = Connection::new();
        let request = connection.activity.begin(version);
        connection.stays_for(1000 * IDLE, |_| {});
        assert!(!request.exchange.is_late());
    }
}

#[test]
fn a_stalled_upload_fails_and_a_slow_one_does_not() {
    let mut connection = Connection::new();
    let slow = connection.activity.begin(Version::HTTP_2);
    let stalled = connection.activity.begin(Version::HTTP_2);
    stalled.exchange.upload.wait();
    let mut looks = 0;
    connection.stays_for(BODY, |_| {
        looks += 1;
        if looks % 8 == 0 {
            slow.exchange.upload.go_on();
        }
        slow.exchange.upload.wait();
    });
    assert!(!stalled.exchange.is_late());
    connection.stays_for(INTERVAL, |_| {});
    assert!(stalled.exchange.is_late());
    assert!(!slow.exchange.is_late());
}

#[test]
fn a_socket_that_takes_no_bytes_ends_its_connection() {
    let mut connection = Connection::new();
    let _request = connection.activity.begin(Version::HTTP_11);
    let mut looks = 0;
    connection.stays_for(10 * WRITE, |activity| {
        looks += 1;
        if looks % 8 == 0 {
            activity.writes.go_on();
        }
        activity.writes.wait();
    });
    connection.activity.writes.go_on();
    connection.activity.writes.wait();
    let (step, after) = connection.until_step(|_| {});
    assert!(matches!(step, Step::End(_)));
    assert_eq!(after, WRITE + INTERVAL);
}

#[tokio::test]
async fn a_response_without_a_window_resets_its_own_stream_only() {
    let mut connection = Connection::new();
    let spawn = || tokio::spawn(std::future::pending::<()>());
    let (stalled, other) = (spawn(), spawn());
    let request = connection.activity.begin(Version::HTTP_2);
    connection.activity.set_stream(stalled.abort_handle());
    let _other = connection.activity.begin(Version::HTTP_2);
    connection.activity.set_stream(other.abort_handle());
    request.exchange.download.wait();
    connection.stays_for(WRITE + INTERVAL, |_| {});
    assert!(stalled.await.unwrap_err().is_cancelled());
    tokio::task::yield_now().await;
    assert!(!other.is_finished());
    other.abort();
}

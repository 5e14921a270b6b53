//! The task of a connection: it polls hyper, and beside it looks for a stop of the server, for clients that hang up and
//! for timeouts.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep};

use super::Stop;
use super::activity::Activity;
use super::hang_up::HangUpWatch;
use super::timeouts::{Limits, Step, Timeouts};

/// The parts that end a connection beside hyper: timeouts, the watch of the socket, and the stop of the server. The connection
/// was accepted at `start`.
pub(super) struct Driver<'a> {
    pub(super) activity: &'a Activity,
    pub(super) limits: Limits,
    pub(super) hang_up: HangUpWatch,
    pub(super) stop: &'a Stop,
    pub(super) start: Instant,
}

impl Driver<'_> {
    /// Drives `connection` to its end, or returns why it has to be dropped, which cancels its requests. `shut_down` ends it
    /// after its requests.
    pub(super) async fn drive<C: Future>(
        self,
        connection: C,
        shut_down: impl Fn(Pin<&mut C>),
    ) -> Result<C::Output, &'static str> {
        let mut connection = pin!(connection);
        let mut hung_up = pin!(self.hang_up.hung_up());
        let stopped = pin!(self.stop.stopped());
        let mut stopping = Stopping::new(self.stop, stopped);
        let timeouts = Timeouts::new(self.limits, self.start);
        let timer = pin!(sleep(timeouts.first_look()));
        let mut looks = Looks::new(timeouts, timer);
        poll_fn(|cx| {
            if stopping.begins(cx) {
                shut_down(connection.as_mut());
            }
            looks.set_timer(cx);
            self.hang_up.before_poll();
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Ok(ended));
            }
            match looks.look(self.activity, cx) {
                Some(Step::Close(_)) => shut_down(connection.as_mut()),
                Some(Step::End(reason)) => return Poll::Ready(Err(reason)),
                Some(Step::LookAfter(_)) | None => {}
            }
            if self.hang_up.server_will_notice() {
                return Poll::Pending; // the server's own read wakes this task
            }
            let gone = hung_up.as_mut().poll(cx);
            gone.map(|()| Err("the client hung up"))
        })
        .await
    }
}

/// The wait for a stop of the server. It is registered once, because the waker of a task stays the same, and to poll it
/// takes a lock.
struct Stopping<'a, F> {
    stop: &'a Stop,
    stopped: Pin<&'a mut F>,
    is_registered: bool,
    has_begun: bool,
}

impl<'a, F: Future<Output = ()>> Stopping<'a, F> {
    fn new(stop: &'a Stop, stopped: Pin<&'a mut F>) -> Self {
        Self {
            stop,
            stopped,
            is_registered: false,
            has_begun: false,
        }
    }

    /// Returns `true` once, after the server was stopped.
    fn begins(&mut self, cx: &mut Context<'_>) -> bool {
        if self.has_begun || (self.is_registered && !self.stop.is_stopped()) {
            return false;
        }
        self.is_registered = true;
        self.has_begun = self.stopped.as_mut().poll(cx).is_ready();
        self.has_begun
    }
}

/// The looks at the waits of a connection, by one timer. Requests do not move it.
struct Looks<'a> {
    timeouts: Timeouts,
    timer: Pin<&'a mut Sleep>,
    is_timer_set: bool,
}

impl<'a> Looks<'a> {
    fn new(timeouts: Timeouts, timer: Pin<&'a mut Sleep>) -> Self {
        Self {
            timeouts,
            timer,
            is_timer_set: false,
        }
    }

    /// Sets the timer if it has been moved. This comes first in a poll, because a task that has used up its budget
    /// cannot set one.
    fn set_timer(&mut self, cx: &mut Context<'_>) {
        if !self.is_timer_set {
            _ = self.timer.as_mut().poll(cx); // if it has elapsed, `look` sees it
            self.is_timer_set = true;
        }
    }

    /// Looks at the connection if it is time, and moves the timer.
    fn look(&mut self, activity: &Activity, cx: &mut Context<'_>) -> Option<Step> {
        if !self.timer.is_elapsed() {
            return None;
        }
        let now = Instant::now();
        let step = self.timeouts.look(activity, now);
        if let Step::LookAfter(time) | Step::Close(time) = step {
            self.timer.as_mut().reset(now + time);
            self.is_timer_set = false;
            cx.waker().wake_by_ref(); // the next poll sets the timer
        }
        Some(step)
    }
}

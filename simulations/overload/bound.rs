//! A clairvoyant bound: no policy does more useful work than this, even if it knows all arrivals and service times.
//!
//! A relaxation of the problem. One server stands for all slots. It may interrupt requests at no cost and gets credit for
//! every part of one. A request can use it only within its window: from its arrival until the latest end that is still
//! useful. The server's speed is the number of slots, or of open windows if there are fewer.
//!
//! *No real schedule does more.* A slot does useful work only for a request that starts within its patience, so all of that
//! work lies in the request's window, and adds up to no more than its service. At any moment at most as many slots do
//! useful work as there are slots, and as there are open windows. So each real schedule's useful work is also a schedule of
//! the relaxed server.
//!
//! *The relaxed server does most by serving the earliest end of a window first.* Take a best schedule, and the first moment
//! at which it does not serve `e`, the available request with the earliest end, but another one, `l`, or none. If it serves
//! `e` later, swap the two parts: `e`'s is earlier now and after its arrival, and `l`'s is later, but within `e`'s window and
//! so within `l`'s, which ends no earlier. If it does not serve that part of `e` later, serve it now in place of `l`'s. In
//! both cases no less work is done, and the schedules agree for longer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::workload::{Request, Until, Workload};

/// The most useful work that any schedule can do, as a share of all slot-seconds.
pub(crate) fn most_useful(workload: &Workload) -> f64 {
    let windows: Vec<Window> = workload
        .requests
        .iter()
        .filter_map(|request| Window::of(request, workload))
        .collect();
    most_work(&windows, workload.slots) / workload.slot_seconds()
}

/// When a request can be served usefully, and for how long, in seconds.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: f64,
    end: f64,
    work: f64,
}

impl Window {
    /// `None` if the request can't be served usefully. Slots are counted until the end of the run.
    fn of(request: &Request, workload: &Workload) -> Option<Self> {
        let patience = workload.patience_of(request);
        let latest_end = match workload.until {
            Until::Started => request.arrival + patience + request.service,
            Until::Answered if request.service > patience => return None,
            Until::Answered => request.arrival + patience,
        };
        Some(Self {
            begin: request.arrival.as_secs_f64(),
            end: latest_end.min(workload.duration).as_secs_f64(),
            work: request.service.as_secs_f64(),
        })
    }
}

/// Slot-seconds of work by a server of speed `slots`, earliest end first. `windows` are in the order of their beginnings.
fn most_work(windows: &[Window], slots: usize) -> f64 {
    // Windows that are open, served or not; and those with work left, which is in `left`. Both by their ends. Ends are not
    // negative, so their bits are in their order.
    let mut open = BinaryHeap::new();
    let mut available = BinaryHeap::new();
    let mut left: Vec<f64> = windows.iter().map(|window| window.work).collect();
    let (mut now, mut next, mut done) = (0.0, 0, 0.0);
    loop {
        while let Some(&Reverse((end, _))) = open.peek()
            && f64::from_bits(end) <= now
        {
            open.pop();
        }
        while let Some(&Reverse((end, at))) = available.peek()
            && (f64::from_bits(end) <= now || left[at] <= 0.0)
        {
            available.pop();
        }
        while let Some(window) = windows.get(next)
            && window.begin <= now
        {
            if window.end > now {
                open.push(Reverse((window.end.to_bits(), next)));
                available.push(Reverse((window.end.to_bits(), next)));
            }
            next += 1;
        }
        let next_begin = windows.get(next).map_or(f64::INFINITY, |w| w.begin);
        let Some(&Reverse((_, first))) = available.peek() else {
            if next == windows.len() {
                return done;
            }
            now = next_begin;
            continue;
        };
        // Until something changes: the speed, the first request, or its work.
        let speed = slots.min(open.len()) as f64;
        let next_end = open
            .peek()
            .map_or(f64::INFINITY, |Reverse((end, _))| f64::from_bits(*end));
        let until_change = next_begin.min(next_end) - now;
        if left[first] <= until_change * speed {
            done += left[first];
            now += left[first] / speed;
            left[first] = 0.0;
        } else {
            done += until_change * speed;
            left[first] -= until_change * speed;
            now = next_begin.min(next_end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(begin: f64, end: f64, work: f64) -> Window {
        Window { begin, end, work }
    }

    #[test]
    fn work_is_bounded_by_windows_and_slots() {
        // Two windows of 2 s on two slots, with a second of work each.
        let two = [window(0.0, 2.0, 1.0), window(0.0, 2.0, 1.0)];
        assert_eq!(most_work(&two, 2), 2.0);
        // On one slot, the first is served for 1 s, the other for 0.5 s.
        let tight = [window(0.0, 1.5, 1.0), window(0.0, 1.5, 1.0)];
        assert_eq!(most_work(&tight, 1), 1.5);
        // One request can't use two slots.
        assert_eq!(most_work(&[window(0.0, 1.0, 3.0)], 2), 1.0);
        assert_eq!(most_work(&[], 2), 0.0);
    }

    #[test]
    fn the_earliest_end_goes_first() {
        // The second could wait, but arrives first.
        let windows = [window(0.0, 9.0, 3.0), window(1.0, 3.0, 2.0)];
        assert_eq!(most_work(&windows, 1), 5.0);
        // After idle time.
        let later = [window(5.0, 6.0, 1.0), window(20.0, 30.0, 5.0)];
        assert_eq!(most_work(&later, 1), 6.0);
    }
}

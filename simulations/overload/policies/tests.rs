//! Tests of the models: a policy is told what happens, second by second, and its decisions are looked at.

use std::time::Duration;

use Decision::{Abort, Admit, Refuse};

use super::adaptive_lifo::AdaptiveLifo;
use super::dynamo::Dynamo;
use super::estimate::Estimate;
use super::failsafe::Failsafe;
use super::failsafe_limiter::FailsafeLimiter;
use super::gradient2::Gradient2;
use super::haproxy::HaProxy;
use super::rolling::{Correlation, WarmAverage};
use super::smg::Smg;
use super::tower_timeout::TowerTimeout;
use super::{Setting, ours};
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};
use crate::workload::Until;

const HIGH: u8 = 0;
const NORMAL: u8 = 1;

/// One slot, and callers that are patient for 10 s.
const SETTING: Setting = Setting {
    slots: 1,
    patience: Duration::from_secs(10),
    until: Until::Started,
    is_fair: false,
    seed: 1,
};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A policy that is told events, after the timeouts before them.
struct Driver<P>(P);

impl<P: Policy> Driver<P> {
    fn arrive_as(&mut self, id: RequestId, level: u8, tokens: u32, at: f64) -> Vec<Decision> {
        let arrival = Arrival {
            id,
            level,
            tenant: 0,
            input_tokens: tokens,
            deadline: None,
        };
        self.event(at, |policy, now, decisions| {
            policy.arrive(arrival, now, decisions);
        })
    }

    fn arrive(&mut self, id: RequestId, at: f64) -> Vec<Decision> {
        self.arrive_as(id, NORMAL, 0, at)
    }

    fn release(&mut self, id: RequestId, at: f64) -> Vec<Decision> {
        self.event(at, |policy, now, decisions| {
            policy.release(id, Ended::Finished, now, decisions);
        })
    }

    fn leave(&mut self, id: RequestId, at: f64) -> Vec<Decision> {
        self.event(at, |policy, now, decisions| {
            policy.leave(id, now, decisions);
        })
    }

    fn wait_until(&mut self, at: f64) -> Vec<Decision> {
        self.event(at, |_, _, _| {})
    }

    fn event(
        &mut self,
        at: f64,
        happen: impl FnOnce(&mut P, Duration, &mut Vec<Decision>),
    ) -> Vec<Decision> {
        let mut decisions = Vec::new();
        while let Some(timeout) = self.0.next_timeout()
            && timeout <= seconds(at)
        {
            self.0.advance(timeout, &mut decisions);
        }
        happen(&mut self.0, seconds(at), &mut decisions);
        decisions
    }
}

#[test]
fn haproxy_serves_urgent_levels_first_and_refuses_by_time() {
    let mut policy = Driver(HaProxy::new(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    assert_eq!(policy.arrive(1, 1.0), []);
    assert_eq!(policy.arrive_as(2, HIGH, 0, 2.0), []);
    assert_eq!(policy.arrive(3, 3.0), []);
    assert_eq!(policy.release(0, 4.0), [Admit(2)]);
    assert_eq!(policy.leave(3, 5.0), []);
    assert_eq!(policy.wait_until(10.9), []);
    assert_eq!(policy.wait_until(11.0), [Refuse(1)]);
    assert_eq!(policy.release(2, 12.0), []);
    assert_eq!(policy.arrive(4, 13.0), [Admit(4)]);
}

#[test]
fn a_timeout_of_answers_ends_those_that_are_served() {
    let until = Until::Answered;
    let mut policy = Driver(TowerTimeout::new(&Setting { until, ..SETTING }));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    assert_eq!(policy.arrive(1, 1.0), []);
    assert_eq!(policy.wait_until(10.0), [Abort(0), Admit(1)]);
    assert_eq!(policy.wait_until(11.0), [Abort(1)]);
    assert_eq!(policy.arrive(2, 12.0), [Admit(2)]);

    // One until the head of the answer bounds the wait alone.
    let mut policy = Driver(TowerTimeout::new(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    assert_eq!(policy.arrive(1, 1.0), []);
    assert_eq!(policy.wait_until(20.0), [Refuse(1)]);
}

#[test]
fn a_standing_queue_is_lifo_with_a_short_timeout() {
    // Scaled: an interval of 10 s, and a target of 0.5 s.
    let mut policy = Driver(AdaptiveLifo::scaled(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    for id in 1..=4 {
        assert_eq!(policy.arrive(id, id as f64), []);
    }
    // Not empty for less than the interval: the first goes.
    assert_eq!(policy.release(0, 5.0), [Admit(1)]);
    assert_eq!(policy.arrive(5, 6.0), []);
    // The queue was empty at 1 s for the last time: from 11 s on it is standing.
    assert_eq!(policy.arrive(6, 11.5), []);
    assert_eq!(policy.release(1, 11.6), [Admit(6)]);
    assert_eq!(policy.arrive(7, 11.7), []);
    // 7 had the target, the others the interval.
    assert_eq!(
        policy.wait_until(15.0),
        [Refuse(2), Refuse(7), Refuse(3), Refuse(4)]
    );
    assert_eq!(policy.release(6, 15.5), [Admit(5)]);
    // Empty: it is FIFO again.
    assert_eq!(policy.arrive(8, 20.0), []);
    assert_eq!(policy.arrive(9, 21.0), []);
    assert_eq!(policy.release(5, 22.0), [Admit(8)]);
}

#[test]
fn an_estimate_beyond_the_target_is_refused_at_once() {
    let mut policy = Driver(Estimate::new(&SETTING, 0.2));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    // Nothing is known of hold times.
    assert_eq!(policy.arrive(1, 0.0), []);
    assert_eq!(policy.release(0, 1.0), [Admit(1)]);
    // 1 s each: two may wait for 2 s, a fifth of the patience.
    assert_eq!(policy.arrive(2, 1.0), []);
    assert_eq!(policy.arrive(3, 1.0), []);
    assert_eq!(policy.arrive(4, 1.0), [Refuse(4)]);
    assert_eq!(policy.leave(2, 1.5), []);
    assert_eq!(policy.arrive(5, 1.5), []);
}

#[test]
fn wspt_serves_the_shortest_prompt_of_the_highest_level() {
    let mut policy = Driver(Dynamo::new(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    assert_eq!(policy.arrive_as(1, NORMAL, 10, 1.0), []);
    assert_eq!(policy.arrive_as(2, HIGH, 500, 2.0), []);
    assert_eq!(policy.arrive_as(3, HIGH, 400, 3.0), []);
    assert_eq!(policy.release(0, 100.0), [Admit(3)]);
    assert_eq!(policy.release(3, 101.0), [Admit(2)]);
    assert_eq!(policy.release(2, 102.0), [Admit(1)]);
}

#[test]
fn smg_serves_classes_in_order_but_for_starving_heads() {
    let mut policy = Driver(Smg::new(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    assert_eq!(policy.arrive(1, 1.0), []);
    assert_eq!(policy.arrive_as(2, HIGH, 0, 2.0), []);
    assert_eq!(policy.arrive_as(3, HIGH, 0, 20.0), []);
    assert_eq!(policy.release(0, 21.0), [Admit(2)]);
    // The lower class has waited for more than 30 s; the higher one times out after that.
    assert_eq!(policy.release(2, 32.0), [Admit(1)]);
    assert_eq!(policy.wait_until(49.9), []);
    assert_eq!(policy.wait_until(50.0), [Refuse(3)]);
    assert_eq!(policy.release(1, 51.0), []);
    assert_eq!(policy.arrive(4, 52.0), [Admit(4)]);
}

#[test]
fn smg_keeps_the_places_of_callers_that_left() {
    let mut policy = Driver(Smg::new(&SETTING));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    for id in 1..=512 {
        assert_eq!(policy.arrive(id, 1.0), []);
    }
    for id in 1..=511 {
        assert_eq!(policy.leave(id, 2.0), []);
    }
    assert_eq!(policy.arrive(513, 3.0), [Refuse(513)]);
    // They are given up when the head is looked for.
    assert_eq!(policy.release(0, 4.0), [Admit(512)]);
    assert_eq!(policy.arrive(514, 5.0), []);
}

#[test]
fn gradient2_admits_twenty_and_keeps_a_backlog_for_a_second() {
    let mut policy = Driver(Gradient2::without_queue());
    for id in 0..20 {
        assert_eq!(policy.arrive(id, 0.0), [Admit(id)]);
    }
    assert_eq!(policy.arrive(20, 0.0), [Refuse(20)]);

    let mut policy = Driver(Gradient2::with_backlog());
    for id in 0..20 {
        assert_eq!(policy.arrive(id, 0.0), [Admit(id)]);
    }
    assert_eq!(policy.arrive(20, 0.5), []);
    assert_eq!(policy.arrive(21, 1.0), []);
    assert_eq!(policy.arrive(22, 1.4), []);
    // The latest first. The first response moves the limit by 0.2 · 4, from 20 to 20.8.
    assert_eq!(policy.release(19, 1.45), [Admit(22)]);
    assert_eq!(policy.wait_until(1.5), [Refuse(20)]);
    assert_eq!(policy.wait_until(2.0), [Refuse(21)]);
}

#[test]
fn failsafe_refuses_from_twice_to_three_times_the_limit() {
    for mut policy in [Failsafe::queueing(1), Failsafe::prioritized(1)].map(Driver) {
        for id in 0..20 {
            assert_eq!(policy.arrive(id, 0.0), [Admit(id)]);
        }
        for id in 20..60 {
            assert_eq!(policy.arrive(id, 0.0), [], "{id}");
        }
        // 40 wait, then up to 60: some are refused, and all of them at last.
        let late: Vec<_> = (60..400).flat_map(|id| policy.arrive(id, 1.0)).collect();
        assert_eq!(late.len(), 340 - 20);
        assert_eq!(policy.arrive(400, 1.0), [Refuse(400)]);
        assert_eq!(policy.release(0, 1.1), [Admit(20)]);
    }
}

#[test]
fn failsafe_refuses_low_levels_first() {
    let mut policy = Driver(Failsafe::prioritized(1));
    // As many of each level are admitted.
    for id in 0..20 {
        let level = if id % 2 == 0 { HIGH } else { NORMAL };
        assert_eq!(policy.arrive_as(id, level, 0, 0.0), [Admit(id)]);
    }
    for id in 20..70 {
        assert_eq!(policy.arrive_as(id, HIGH, 0, 0.1), []);
    }
    // 50 wait, half-way from 40 to 60: after the next calibration, half of the levels are too low.
    let normal: Vec<_> = (70..75).flat_map(|id| policy.arrive(id, 0.6)).collect();
    assert!(normal.len() >= 4, "{normal:?}");
    assert_eq!(policy.arrive_as(75, HIGH, 0, 0.6), []);
}

#[test]
fn failsafe_limit_rises_while_response_times_are_steady() {
    let mut limiter = FailsafeLimiter::new();
    let feed = |limiter: &mut FailsafeLimiter, from: u32, seconds: f64| {
        for n in 0..50 {
            let now = Duration::from_secs(100 * u64::from(from) + n);
            limiter.sample(seconds, limiter.limit as usize, false, now);
        }
    };
    feed(&mut limiter, 1, 1.0);
    assert_eq!(limiter.limit, 21.0);
    feed(&mut limiter, 2, 1.0);
    assert_eq!(limiter.limit, 22.0);
    // The median of five passes an outlier by.
    feed(&mut limiter, 3, 5.0);
    assert_eq!(limiter.limit, 23.0);
    for window in 4..8 {
        feed(&mut limiter, window, 5.0);
    }
    assert!(limiter.limit < 25.0, "{}", limiter.limit);
}

#[test]
fn averages_and_correlations() {
    let mut average = WarmAverage::new(3.0, 2);
    assert_eq!(average.add(1.0), 1.0);
    assert_eq!(average.add(3.0), 2.0);
    // From here on a new sample weighs a half.
    assert_eq!(average.add(4.0), 3.0);

    let mut correlation = Correlation::new(4, 3);
    assert_eq!(correlation.add(1.0, 10.0).correlation, 0.0);
    assert_eq!(correlation.add(2.0, 20.0).correlation, 0.0);
    assert!((correlation.add(3.0, 30.0).correlation - 1.0).abs() < 1e-9);
    for x in 4..8 {
        correlation.add(f64::from(x), f64::from(100 - x));
    }
    assert!((correlation.add(8.0, 92.0).correlation + 1.0).abs() < 1e-9);
    let constant = Correlation::new(4, 1).add(1.0, 1.0);
    assert_eq!(constant.correlation, 0.0);
}

#[test]
fn the_room_before_has_100_places_for_30_s() {
    let mut policy = Driver(ours::Ours::new(&SETTING, ours::before(&SETTING)));
    assert_eq!(policy.arrive(0, 0.0), [Admit(0)]);
    for id in 1..=100 {
        assert_eq!(policy.arrive(id, 1.0), []);
    }
    assert_eq!(policy.arrive(101, 1.0), [Refuse(101)]);
    assert_eq!(policy.leave(1, 2.0), []);
    assert_eq!(policy.arrive_as(102, HIGH, 0, 3.0), []);
    assert_eq!(policy.release(0, 4.0), [Admit(102)]);
    assert_eq!(policy.release(102, 5.0), [Admit(2)]);
    assert_eq!(policy.wait_until(31.0).len(), 98);
}

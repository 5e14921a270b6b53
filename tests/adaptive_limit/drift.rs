use tower_triage::admit::{AdaptiveLimit, Limiter};

use crate::backend::{Phase, Setup, run};

/// Netflix's `Gradient2`, of which users report that the limit grows without end in a modest overload: the long average is
/// of the queue's own making.
struct Unguarded {
    limit: f64,
    long: f64,
    calls: f64,
    seconds: f64,
}

impl Unguarded {
    fn observe(&mut self, seconds: f64) -> usize {
        self.calls += 1.0;
        self.seconds += seconds;
        if self.calls >= 100.0 {
            let short = self.seconds / self.calls;
            self.long += (short - self.long) * 2.0 / 601.0;
            let gradient = (1.5 * self.long / short).clamp(0.5, 1.0);
            let next = gradient * self.limit + 4.0;
            self.limit = (0.8 * self.limit + 0.2 * next).clamp(20.0, 200.0);
            (self.calls, self.seconds) = (0.0, 0.0);
        }
        self.limit as usize
    }
}

#[test]
fn the_guard_stops_the_drift_of_an_unguarded_gradient() {
    let setup = Setup {
        phases: vec![Phase {
            slots: 20,
            mean: 0.1,
            seconds: 900.0,
        }],
        rate: 220.0,
        ..Setup::saturated(&[])
    };
    let mut unguarded = Unguarded {
        limit: 20.0,
        long: 0.1,
        calls: 0.0,
        seconds: 0.0,
    };
    let drifted = run(&setup, 1, 20, |sample, _, _| {
        unguarded.observe(sample.latency.as_secs_f64())
    });
    let mut limiter = Limiter::new(&AdaptiveLimit::default()).expect("the default is valid");
    let guarded = run(&setup, 1, 20, |sample, now, _| limiter.observe(sample, now));
    println!("{:.0} and {:.0}", drifted[0].limit, guarded[0].limit);
    assert!(drifted[0].limit > 100.0, "{drifted:?}");
    assert!(guarded[0].limit < 24.0, "{guarded:?}");
}

//! Choosing an endpoint: what each strategy costs, idle and with half of the slots taken.

mod support;

use std::hint::black_box;

use http::Uri;
use support::{Subject, measure, subject};
use tower_triage::admit::Capacity;
use tower_triage::route::{
    Endpoint, EndpointLease, Endpoints, Model, Registry, Requirements, RoutingConfig,
    StrategyChoice,
};

const SLOTS: u32 = 8;

/// Each of `models` stands on `copies` of the `endpoints`, spread evenly.
fn registry(endpoints: usize, models: usize, copies: usize) -> Registry {
    let endpoint = |e: usize| {
        let url = Uri::from_static("http://127.0.0.1");
        let serves = |m: &usize| (e + endpoints - m % endpoints) % endpoints < copies;
        let models = (0..models).filter(serves).map(|m| Model::new(name(m)));
        let empty = Endpoint::new(format!("endpoint-{e}"), url).max_concurrent(SLOTS);
        models.fold(empty, Endpoint::model)
    };
    Registry::new((0..endpoints).map(endpoint).collect()).expect("a sound registry")
}

fn name(model: usize) -> String {
    format!("vendor/model-{model}-instruct")
}

/// One strategy, idle or busy.
struct Router {
    strategy: &'static str,
    endpoints: Endpoints,
    held: Vec<EndpointLease>,
}

impl Router {
    fn idle(registry: &Registry, strategy: &'static str) -> Self {
        let routing = RoutingConfig::default().strategy(StrategyChoice::named(strategy));
        let endpoints = Endpoints::with_routing(registry.clone(), routing);
        Self {
            strategy,
            endpoints: endpoints.expect("sound routing"),
            held: Vec::new(),
        }
    }

    /// Half of the slots are taken, as the strategy would have it; but none of the models is without any.
    fn busy(registry: &Registry, strategy: &'static str, names: &[String]) -> Self {
        let mut router = Self::idle(registry, strategy);
        for (nth, name) in (0..).zip(names.iter().cycle()) {
            if 2 * router.endpoints.in_use() >= router.endpoints.limit() || nth > 20_000 {
                break;
            }
            let lease = router.lease(name, nth);
            router.held.extend(lease);
        }
        for name in names {
            if let Some(lease) = router.lease(name, 0) {
                router.endpoints.release(lease);
                continue;
            }
            let serves = |lease: &EndpointLease| {
                let models = &lease.endpoint().config().models;
                models.iter().any(|model| model.name == *name)
            };
            if let Some(at) = router.held.iter().position(serves) {
                router.endpoints.release(router.held.swap_remove(at));
            }
        }
        router
    }

    fn lease(&self, model: &str, nth: u64) -> Option<EndpointLease> {
        let mut asked = Requirements::new(model);
        asked.prefix = Some(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.endpoints
            .try_lease(&self.endpoints.demand(&asked))
            .ok()
    }

    /// Demand, slot, and slot back.
    fn decide(&self, model: &str, nth: u64) {
        let lease = self.lease(model, nth).expect("a slot is free");
        self.endpoints.release(black_box(lease));
    }
}

/// What one would write first: every endpoint is asked for the model by name.
fn scan<'a>(registry: &'a Registry, model: &str) -> Option<&'a Endpoint> {
    let endpoints = registry.endpoints().iter();
    let serving = endpoints.filter(|endpoint| endpoint.models.iter().any(|m| m.name == model));
    serving.min_by_key(|endpoint| endpoint.priority)
}

/// A scan takes so long that it is done for some of the requests only.
const SCANNED: u64 = 20;

fn table(endpoints: usize, models: usize, copies: usize) {
    let names: Vec<String> = (0..models).map(name).collect();
    let registry = registry(endpoints, models, copies);
    let mut routers: Vec<Router> = Vec::new();
    for strategy in StrategyChoice::NAMES {
        routers.push(Router::idle(&registry, strategy));
        routers.push(Router::busy(&registry, strategy, &names));
    }
    let model = |i: u64| names[(i * 7) as usize % models].as_str();
    let mut subjects: Vec<Subject<'_>> = vec![subject("scan", |n| {
        (0..n / SCANNED).for_each(|i| _ = black_box(scan(&registry, model(i))));
    })];
    subjects.extend(routers.iter().map(|router| {
        subject(router.strategy, |n| {
            (0..n).for_each(|i| router.decide(model(i), i));
        })
    }));
    // Several times around, as a router that serves them all has them in its caches.
    let times = measure(&mut subjects, 21, 4_000);
    let scanned = times[0] * SCANNED as f64;
    println!("\n{endpoints} endpoints × {models} model(s), {copies} endpoint(s) per model");
    println!(
        "  {:<16} {:>12} {:>14} {:>12}",
        "ns", "idle", "half busy", "allocations"
    );
    for (routers, times) in routers.chunks(2).zip(times[1..].chunks(2)) {
        let decide = || routers.iter().for_each(|router| router.decide(model(3), 3));
        let allocated = allocation_counter::measure(decide).count_total;
        let of_scan = times[1] / scanned;
        println!(
            "  {:<16} {:>12.0} {:>14.0} {allocated:>12}   {of_scan:.3}× a scan by name",
            routers[0].strategy, times[0], times[1],
        );
    }
    println!("  {:<16} {scanned:>12.0}", "scan by name");
}

fn main() {
    println!("\nA route: demand, slot and slot back  (goal at 100 × 1,000: ≤ 1 µs, no allocation)");
    for copies in [1, 10, 100] {
        table(100, 1_000, copies);
    }
    table(1_000, 1, 1_000);
}

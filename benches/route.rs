//! Choosing an endpoint: what each strategy costs, idle and with half of the slots taken.

use std::hint::black_box;

use http::Uri;
use support::{Bench, is_measuring};
use tower_triage::admit::Capacity;
use tower_triage::endpoints::{Endpoint, EndpointLease, Endpoints, Model, Registry, Requirements};
use tower_triage::route::{RoutingConfig, StrategyChoice};

const SLOTS: u32 = 8;

/// `copies` of the `endpoints` serve each of `models`, spread evenly.
fn registry(endpoints: usize, models: usize, copies: usize) -> Registry {
    let endpoint = |e: usize| {
        let url = Uri::from_static("http://127.0.0.1");
        let serves = |m: &usize| (e + endpoints - m % endpoints) % endpoints < copies;
        let models = (0..models).filter(serves).map(|m| Model::new(name(m)));
        let empty = Endpoint::new(format!("endpoint-{e}"), url).max_concurrent(SLOTS);
        models.fold(empty, Endpoint::model)
    };
    Registry::new((0..endpoints).map(endpoint).collect()).expect("the registry is valid")
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
        let routing =
            RoutingConfig::default().strategy(strategy.parse().expect("the name is known"));
        let endpoints = routing
            .rules()
            .map(|rules| Endpoints::with_rules(registry.clone(), rules));
        Self {
            strategy,
            endpoints: endpoints.expect("the routing is valid"),
            held: Vec::new(),
        }
    }

    /// Half of the slots are taken, chosen by the strategy, and each model keeps a free one.
    fn busy(registry: &Registry, strategy: &'static str, names: &[String]) -> Self {
        let mut router = Self::idle(registry, strategy);
        for (nth, name) in (0..).zip(names.iter().cycle()) {
            let usage = router.endpoints.usage();
            if 2 * usage.in_use >= usage.slots || nth > 20_000 {
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

/// The usual first version: looks for the model by name in every endpoint.
fn scan<'a>(registry: &'a Registry, model: &str) -> Option<&'a Endpoint> {
    let endpoints = registry.endpoints().iter();
    let serving = endpoints.filter(|endpoint| endpoint.models.iter().any(|m| m.name == model));
    serving.min_by_key(|endpoint| endpoint.priority)
}

/// One request in this many is scanned, because a scan takes long.
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
    // Enough passes that the tables are in the caches, as in a router that serves all these models.
    let mut bench = Bench::new("", 21, 4_000).subject("scan", |n| {
        (0..n / SCANNED).for_each(|i| _ = black_box(scan(&registry, model(i))));
    });
    for router in &routers {
        bench = bench.subject(router.strategy, |n| {
            (0..n).for_each(|i| router.decide(model(i), i));
        });
    }
    let times = bench.measure();
    if !is_measuring() {
        return;
    }
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
    if is_measuring() {
        println!(
            "\nA route: demand, slot and slot back  (goal at 100 × 1,000: ≤ 1 µs, no allocation)"
        );
    }
    for copies in [1, 10, 100] {
        table(100, 1_000, copies);
    }
    table(1_000, 1, 1_000);
}

//! Choosing an endpoint: 100 endpoints, 1,000 models.

mod support;

use std::hint::black_box;

use http::Uri;
use support::{measure, subject};
use tower_triage::Capacity;
use tower_triage::route::{Endpoint, Endpoints, Model, Registry, Requirements};

const ENDPOINTS: usize = 100;
const MODELS: usize = 1_000;

/// Every model stands on `copies` of the endpoints, spread evenly.
fn registry(copies: usize) -> Registry {
    let endpoint = |e: usize| {
        let url = Uri::from_static("http://127.0.0.1");
        let serves = |m: &usize| (e + ENDPOINTS - m % ENDPOINTS) % ENDPOINTS < copies;
        let models = (0..MODELS).filter(serves).map(|m| Model::new(name(m)));
        let empty = Endpoint::new(format!("endpoint-{e}"), url).max_concurrent(8);
        models.fold(empty, Endpoint::model)
    };
    Registry::new((0..ENDPOINTS).map(endpoint).collect()).expect("a sound registry")
}

fn name(model: usize) -> String {
    format!("vendor/model-{model}-instruct")
}

/// Demand, slot, and slot back.
fn decide(endpoints: &Endpoints, model: &str) {
    let demand = endpoints.demand(&Requirements::new(model));
    let lease = endpoints.try_lease(&demand).expect("a slot is free");
    endpoints.release(black_box(lease));
}

/// What one would write first: every endpoint is asked for the model by name.
fn scan<'a>(registry: &'a Registry, model: &str) -> Option<&'a Endpoint> {
    let endpoints = registry.endpoints().iter();
    let serving = endpoints.filter(|endpoint| endpoint.models.iter().any(|m| m.name == model));
    serving.min_by_key(|endpoint| endpoint.priority)
}

fn main() {
    println!("\nA route, 100 endpoints × 1,000 models  (goal: ≤ 1 µs, no allocation)");
    let names: Vec<String> = (0..MODELS).map(name).collect();
    for copies in [1, 10, 100] {
        let registry = registry(copies);
        let endpoints = Endpoints::new(registry.clone());
        // The first look at a snapshot makes this thread's part in it.
        decide(&endpoints, &names[0]);
        let allocated = allocation_counter::measure(|| decide(&endpoints, &names[7]));
        let model = |i: u64| names[(i * 7) as usize % MODELS].as_str();
        let times = measure(
            &mut [
                subject("scan", |n| {
                    (0..n).for_each(|i| _ = black_box(scan(&registry, model(i))));
                }),
                subject("ours", |n| {
                    (0..n).for_each(|i| decide(&endpoints, model(i)))
                }),
            ],
            51,
            200,
        );
        println!(
            "  {copies:>3} endpoint(s) per model: demand + slot + release {:>5.0} ns, {} allocations; a scan by name {:>7.0} ns   {:.3}×",
            times[1],
            allocated.count_total,
            times[0],
            times[1] / times[0],
        );
    }
}

//! A fuzz target: each configuration file is usable, or its error says where the mistake is. The tests run it with the inputs in
//! `__fuzz__`, and with some random ones.

use std::path::Path;

use tower_triage::RouteLayer;
use tower_triage::swap::SwapLayer;

use super::Config;
use crate::server::ClientBody;

const RANDOM_INPUTS: usize = 100;

#[test]
fn a_file_is_usable_or_its_mistake_has_a_place() {
    bolero::check!()
        .with_iterations(RANDOM_INPUTS)
        .for_each(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build();
            let runtime = runtime.expect("a runtime without I/O starts");
            let _entered = runtime.enter(); // a router starts tasks
            if let Err(error) = check(text) {
                let place = error.strip_prefix("/nonexistent/gateway.toml: line ");
                let place = place.unwrap_or_else(|| panic!("no line: {error}"));
                let number = place.split(|c: char| !c.is_ascii_digit()).next();
                let number = number.and_then(|number| number.parse::<usize>().ok());
                let lines = text.matches('\n').count() + 1;
                let is_of_text = number.is_some_and(|it| (1..=lines).contains(&it));
                assert!(is_of_text, "{error}");
                assert!(!error.contains('\n'), "{error}");
            }
        });
}

/// Reads `text` as a configuration file, with an empty environment. Returns the error message of an invalid one.
///
/// # Panics
///
/// Panics if a configuration was read that no gateway can start with.
fn check(text: &str) -> Result<(), String> {
    let path = Path::new("/nonexistent/gateway.toml");
    let config =
        Config::parse(text.to_owned(), path, |_| None).map_err(|error| error.to_string())?;
    let queue = config.waiting_room(config.durable.is_some());
    let router = RouteLayer::builder(config.registry.clone())
        .queue(queue.expect("a checked configuration has a waiting room"))
        .routing(config.routing.clone());
    match &config.swap {
        Some(swap) => {
            let layer = SwapLayer::builder(swap.clone()).route(router).try_build();
            drop(layer.expect("a checked configuration swaps"));
        }
        None => drop(router.try_build().expect("a checked configuration routes")),
    }
    config
        .upstream
        .client::<ClientBody>()
        .expect("a checked configuration has a client");
    Ok(())
}

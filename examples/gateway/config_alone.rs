//! The gateway's configuration as a library, for its fuzz target (`fuzz/gateway`). The gateway itself has no use for this file.

// Only the reading is under test.
#![allow(dead_code, unused_imports)]

mod config;
mod paths;

use std::path::Path;

use tower_triage::RouteLayer;
use tower_triage::swap::SwapLayer;

use config::Config;

/// Stands for the gateway's server, of which a configuration needs the type of bodies.
mod server {
    pub(crate) type ClientBody = http_body_util::Empty<bytes::Bytes>;
}

/// Reads `text` as a configuration file, with an empty environment. Returns the error message of an invalid one.
///
/// # Panics
///
/// Panics if a configuration was read that no gateway can start with.
pub fn check(text: &str) -> Result<(), String> {
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
        .client::<server::ClientBody>()
        .expect("a checked configuration has a client");
    Ok(())
}

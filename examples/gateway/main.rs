//! A gateway in front of OpenAI-compatible backends: who goes next, and where.
//!
//! ```sh
//! cargo run --release --all-features --example gateway                            # with demo backends
//! cargo run --release --all-features --example gateway -- --config gateway.toml   # with yours
//! ```

mod admin;
mod args;
mod config;
mod demo;
mod log;
mod metrics;
mod service;
mod shutdown;
mod surface;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_triage::route::Registry;

use args::{Args, Command};
use config::Config;
use shutdown::Signals;
use surface::Gateway;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Serve(args)) => args,
        Ok(Command::Help) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    log::start(args.log);
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let (config, registry) = match &args.config {
        Some(path) => Config::read(path)?,
        None => (Config::default(), Registry::new(demo::start().await?)?),
    };
    if args.config.is_some() {
        config.announce();
    }
    metrics::start();
    let (routed, handle) = service::service(&config, registry);
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let addr = listener.local_addr()?;

    let gateway = Gateway {
        routed,
        handle: handle.clone(),
        answers: log::Answers::default(),
    };
    let app = surface::app(gateway).into_make_service_with_connect_info::<SocketAddr>();
    let stop = CancellationToken::new();
    let signals = Signals::hear()?;
    // A word of an answer does not wait until the client has acknowledged the one before.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
    });
    let server = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    say(&format!("listening on http://{addr}\n"))?;
    if args.config.is_none() {
        say(&demo::commands(addr))?;
    }

    shutdown::drained(signals, &handle, args.grace).await;
    stop.cancel();
    if timeout(shutdown::LAST_BYTES, server).await.is_err() {
        tracing::warn!("connections were still open at the end");
    }
    Ok(())
}

/// Whoever started the gateway may wait for these words on a pipe.
fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;

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
mod hang_up;
mod log;
mod metrics;
mod reload;
mod serve;
mod service;
mod shutdown;
mod surface;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tower_triage::endpoints::Registry;

use args::{Args, Command};
use config::Config;
use reload::{Hangups, Reload};
use serve::Server;
use shutdown::Signals;
use surface::Gateway;

/// How long requests wait for the first word of how the backends are.
const FIRST_RESULTS: Duration = Duration::from_secs(1);

/// How long the runtime may take to end, with all that it still runs.
const LAST_TASKS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Serve(args)) => args,
        Ok(Command::Help) => {
            _ = std::io::stdout().write_all(args::USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            _ = writeln!(std::io::stderr(), "{problem}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    let log = log::start(args.log);
    let problem = run(args).err().map(|problem| problem.to_string());
    let code = match problem {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    };
    log.end(problem);
    code
}

/// Returns when nothing runs any more, and so nothing is logged.
fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve(args));
    runtime.shutdown_timeout(LAST_TASKS);
    served
}

async fn serve(args: Args) -> Result<(), Box<dyn Error>> {
    let (signals, hangups) = (Signals::hear()?, Hangups::hear()?);
    let environment = config::process;
    let config = match &args.config {
        Some(path) => Config::read(path, environment)?,
        None => {
            let backends = Registry::new(demo::start().await?)?;
            Config::without_file(backends, demo::routing(), environment)?
        }
    };
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    metrics::start();
    let (routed, handle) = service::service(&config)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let addr = listener.local_addr()?;

    let checks = handle.checks(&config.client);
    _ = timeout(FIRST_RESULTS, checks.first_results()).await;

    let gateway = Gateway {
        routed,
        handle: handle.clone(),
        answers: log::Answers::default(),
    };
    let server = Server::start(listener, gateway);
    tracing::info!("listening on http://{addr}");
    let mut words = format!("listening on http://{addr}\n");
    if args.config.is_none() {
        words += &demo::commands(addr);
    }
    say(words);

    let reload = Reload {
        path: args.config,
        environment,
        running: config,
        handle: handle.clone(),
    };
    tokio::select! {
        never = reload.whenever(hangups) => match never {},
        () = shutdown::drained(signals, &handle, server, args.grace) => Ok(()),
    }
}

/// Prints without waiting for it: standard output may be closed, or a pipe that is full and not read.
fn say(text: String) {
    std::thread::spawn(move || {
        let mut out = std::io::stdout().lock();
        let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = said {
            tracing::warn!(%error, "standard output cannot be written to");
        }
    });
}

#[cfg(test)]
mod tests;

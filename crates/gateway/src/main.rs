//! A gateway in front of OpenAI-compatible backends: it queues requests, and routes each one to a backend with its
//! model.
//!
//! ```sh
//! triage-gateway                            # with demo backends
//! triage-gateway --config gateway.toml      # with your own
//! triage-gateway --config swap.toml         # models that swap
//! triage-gateway --config durable.toml      # stored requests
//! ```

mod access;
mod actions;
mod admin;
mod answer_memory;
mod args;
mod by_head;
mod check;
mod config;
mod cors;
mod demo;
mod descriptors;
mod durable;
mod error_shape;
mod handler;
mod live;
mod log;
mod metrics;
mod model_server;
mod ollama;
#[cfg(feature = "otlp")]
mod otlp;
mod own_answer;
mod pages;
mod paths;
mod reload;
mod request_id;
mod requests;
mod server;
mod service;
#[cfg_attr(not(unix), path = "no_service_manager.rs")]
mod service_manager;
mod shutdown;
mod tenants;
mod text;
mod trace;
mod track;

use std::error::Error;
use std::io::{self, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_triage::endpoints::Registry;

use admin::Admin;
use answer_memory::AnswerMemory;
use args::{Args, Command, LogFormat, ModelArgs, RequestsArgs};
use config::Config;
use descriptors::Places;
use durable::Durable;
use handler::Gateway;
use live::Live;
use pages::Pages;
use reload::{FileWatch, HangupSignals, Reload};
use server::{Server, Tls, listen};
use service::Services;
use shutdown::Signals;

/// Gives memory back to the system once connections are gone. The system's own allocator keeps it, because of what lives on
/// between the freed blocks.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The longest time that the start waits for the first health checks. Until then no request is accepted.
const FIRST_CHECKS_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that the runtime may take to stop the tasks that still run.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let given = args::given();
    let format = args::log_format(&given);
    let args = match args::parse(&given) {
        Ok(Command::Serve(args)) => args,
        Ok(Command::Check(args)) => return finish(format, check::check(&args)),
        Ok(Command::Model(args)) => return serve_model(args),
        Ok(Command::Requests(args)) => return ask_about_requests(args),
        Err(text) if !text.use_stderr() => return finish(format, Ok(text.to_string())),
        Err(problem) => {
            let problem = problem.to_string();
            let problem = problem
                .strip_prefix("error: ")
                .unwrap_or(&problem)
                .trim_end();
            _ = writeln!(std::io::stderr(), "{}", log::error_line(format, problem));
            return ExitCode::from(2);
        }
    };
    let log = log::start(args.log);
    let problem = run(args).err().map(|problem| problem.to_string());
    #[cfg(feature = "otlp")]
    otlp::finish();
    let code = match problem {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    };
    log.finish(problem);
    code
}

fn serve_model(args: ModelArgs) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(model_server::run(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks a running gateway about its stored requests.
fn ask_about_requests(args: RequestsArgs) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let answered = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(requests::run(args)));
    finish(LogFormat::Text, answered)
}

/// Prints the outcome of a command that has ended.
fn finish(format: LogFormat, outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(text) => {
            _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            _ = writeln!(std::io::stderr(), "{}", log::error_line(format, &problem));
            ExitCode::FAILURE
        }
    }
}

/// Serves until shutdown. When it returns no task runs, so the log can be closed.
fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve(args));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    served
}

async fn serve(args: Args) -> Result<(), Box<dyn Error>> {
    let (mut signals, hangups) = (Signals::register()?, HangupSignals::register()?);
    let environment = config::process;
    let watched = args.config.clone().filter(|_| args.watch);
    let watch = watched.map(FileWatch::new); // before the file is read
    let mut config = match &args.config {
        Some(path) => {
            let path = path.clone();
            let read = spawn_blocking(move || Config::read(&path, environment));
            tokio::select! {
                config = read => config??,
                () = signals.any() => return Ok(()), // the file may be on a disk that hangs
            }
        }
        None => {
            let backends = Registry::new(demo::start().await?)?;
            Config::without_file(backends, demo::routing(), environment)?
        }
    };
    config.listen = args.listen.unwrap_or(config.listen);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    metrics::start();
    descriptors::raise_limit();
    let places = Places::of(&config.server);
    if let Some(warning) = places.warning(&config.server) {
        tracing::warn!("{warning}");
    }
    let services = service::services(&config)?;
    let handle = services.handle.clone();
    let [tls, admin_tls] = config.certificates().map(|(section, certificate)| {
        let tls = certificate.map(|certificate| Tls::new(section, certificate));
        tls.transpose()
    });
    let (tls, admin_tls) = (tls?, admin_tls?);
    let (listeners, addr) = listen(config.listen, config.server.worker_count())?;
    let admin_listener = match &config.admin {
        Some(admin) => Some(listen(admin.listen, 1)?),
        None => None,
    };

    // Dropping `checks` would stop the health checks: it lives until shutdown.
    let checks = handle.checks(&config.client);
    _ = timeout(FIRST_CHECKS_TIMEOUT, checks.first_results()).await;

    let live = Live::default();
    if args.salvage {
        durable::salvage(&config).await?;
    }
    let durable = match &config.durable {
        Some(durable) => {
            let stored = services.stored(config.upstream.client()?);
            Some(Durable::start(&config, durable, &handle, stored, &live).await?)
        }
        None => None,
    };
    let (durable, workers) = durable.unzip();
    let (reloads, reload_requests) = reload::channel(args.config.is_some());
    let memory = AnswerMemory::new(config.server.own_answer_memory_bytes);
    let pages = Pages::new(handle.clone(), durable, reloads, live, memory);
    let server = Server::new(&config.server, places.count, &pages, tls.clone());
    let server = start_main(server, listeners, &config, &services, &pages)?;
    let scheme = config::scheme(config.certificate.as_ref());
    tracing::info!("listening on {scheme}://{addr}");
    tenants::log_trust(&config, addr);
    let mut text = format!("listening on {scheme}://{addr}\n");
    let admin = match admin_listener {
        Some((listeners, addr)) => {
            let scheme = config::scheme(config.admin_certificate.as_ref());
            tracing::info!("admin on {scheme}://{addr}");
            text += &format!("admin on {scheme}://{addr}\n");
            Some(start_admin(listeners, &config, pages, admin_tls.clone())?)
        }
        None => None,
    };
    if args.config.is_none() {
        text += &demo::commands(addr);
    }
    print(text);
    service_manager::ready();

    let reload = Reload {
        path: args.config,
        watch,
        listen: args.listen,
        environment,
        running: config,
        handle: handle.clone(),
        tls: tls.into_iter().chain(admin_tls).collect(),
        key_problems: Vec::new(),
        certificate_problems: Vec::new(),
    };
    let keep_alive = service_manager::keep_alive(server.runtimes());
    tokio::select! {
        never = keep_alive => match never {},
        never = reload.run(hangups, reload_requests) => match never {},
        () = shutdown::run(signals, &handle, workers, server, admin, args.grace) => Ok(()),
    }
}

/// Starts a worker for each listener. Each has a client of its own, so that a request and its connection to the backend
/// are served by the same thread.
fn start_main(
    mut server: Server,
    listeners: Vec<TcpListener>,
    config: &Config,
    services: &Services,
    pages: &Pages,
) -> Result<Server, Box<dyn Error>> {
    let origins = &config.server.allowed_origins;
    for listener in listeners {
        let stored = services.stored(config.upstream.client()?);
        let gateway = Arc::new(Gateway {
            routed: services.routed(config.upstream.client()?),
            paths: config.server.paths.clone(),
            tenants: pages.handle.tenants().clone(),
            pages: Pages {
                durable: pages
                    .durable
                    .as_ref()
                    .map(|durable| durable.in_front_of(stored)),
                ..pages.clone()
            },
            has_admin_address: config.admin.is_some(),
            is_over_tls: server.is_over_tls(),
            cors: cors::answers_for(origins),
            origins: origins.clone(),
        });
        server.start_worker(listener, move |request, peer| gateway.handle(request, peer))?;
    }
    Ok(server)
}

fn start_admin(
    listeners: Vec<TcpListener>,
    config: &Config,
    pages: Pages,
    tls: Option<Tls>,
) -> io::Result<Server> {
    let pages = Pages {
        closing: CancellationToken::new(), // it is stopped after the main address
        takes_actions: true,
        // The answers to clients leave it free.
        memory: AnswerMemory::new(config.server.own_answer_memory_bytes),
        ..pages
    };
    let admin = Arc::new(Admin {
        pages: pages.clone(),
        token: config.admin.as_ref().and_then(|admin| admin.token.clone()),
        origins: config.server.allowed_origins.clone(),
    });
    let max_connections = config.server.max_connections;
    let server = Server::new(&config.server, max_connections, &pages, tls);
    for listener in listeners {
        let admin = Arc::clone(&admin);
        server.start(listener, move |request, peer| {
            let admin = Arc::clone(&admin);
            async move { admin.handle(request, peer).await }
        })?;
    }
    Ok(server)
}

/// Prints from a thread of its own, because standard output may be closed, or a full pipe that is never read.
fn print(text: String) {
    std::thread::spawn(move || {
        let mut out = std::io::stdout().lock();
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = printed {
            tracing::warn!(%error, "cannot write to standard output");
        }
    });
}

#[cfg(test)]
mod tests;

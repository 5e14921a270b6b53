//! The command line.

mod model;
mod requests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use model::ModelArgs;
pub(crate) use requests::{Asked, ListArgs, RequestsArgs};

const AFTER_HELP: &str = "\
Environment:
  TRIAGE_LOG, RUST_LOG        log filter, such as `info` or `triage_gateway=debug`; default info
  TRIAGE_ROUTING_STRATEGY     overrides `strategy` of [routing]
  TRIAGE_ROUTING_MAX_RETRIES  overrides `max_retries` of [routing]

Signals:
  SIGHUP           reads the file again: backends, [health], [queue], [routing] and [swap] change while requests wait
                   and run
  SIGTERM, Ctrl-C  shuts down: waiting requests are rejected at once, running requests finish, and models that were
                   started are stopped; a second signal ends the grace period. Responses that are cut off are
                   counted in the log

Exit status: 0 after a shutdown, 1 if the gateway cannot start or its file is invalid, 2 for an invalid command line.";

/// A gateway in front of OpenAI-compatible backends: it queues requests, and routes each one to a backend with its model.
#[derive(Debug, Parser)]
#[command(name = "triage-gateway", version = version(), after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Args,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Serve, which is what the gateway does without a command.
    #[command(skip)]
    Serve(Args),
    /// Read the file as a start would, and print errors and warnings.
    Check(CheckArgs),
    /// Stored requests of a running gateway with [durable].
    Requests(RequestsArgs),
    /// A small model server with a canned response, for demonstrations.
    #[command(hide = true)]
    Model(ModelArgs),
}

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub(crate) struct Args {
    /// The configuration; every key is in gateway.example.toml. Without it the gateway starts three demo backends and listens
    /// on 127.0.0.1:8080.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read FILE again when it changes, as on SIGHUP.
    #[arg(long, requires = "config")]
    pub(crate) watch: bool,
    /// The address of clients, such as 0.0.0.0:8080, in place of `listen` in the file.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
    /// The time that running requests have to finish at shutdown, clients to receive their responses, and models to stop.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) grace: Duration,
    /// Keep what is whole of the damaged folder of [durable], and the damaged files beside it.
    #[arg(long)]
    pub(crate) salvage: bool,
}

#[derive(Debug, PartialEq, clap::Args)]
pub(crate) struct CheckArgs {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The address of clients, in place of `listen` in the file.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The format of errors.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The version of the program, with the revision of its source if the build was told: set `TRIAGE_REVISION`.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TRIAGE_REVISION") {
        None | Some("") => version.to_owned(),
        Some(revision) => format!("{version} ({revision})"),
    }
}

/// Returns the arguments of the process, the first of which is its name. What is not UTF-8 in them is replaced.
pub(crate) fn given() -> Vec<String> {
    let given = std::env::args_os();
    given.map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Parses the arguments of a process. Its help and its version are errors, too, with a text for standard output.
pub(crate) fn parse(given: &[String]) -> Result<Command, clap::Error> {
    let parsed = CommandLine::try_parse_from(given)?;
    Ok(parsed.command.unwrap_or(Command::Serve(parsed.serve)))
}

/// Returns the format of the log that these arguments ask for, valid or not, for errors about them.
pub(crate) fn log_format(args: &[String]) -> LogFormat {
    let asks = |pair: &[String]| pair == ["--log", "json"];
    match args.windows(2).any(asks) || args.iter().any(|arg| arg == "--log=json") {
        true => LogFormat::Json,
        false => LogFormat::Text,
    }
}

fn address(value: &str) -> Result<SocketAddr, &'static str> {
    let expected = "it must be an IP address and a port, such as 127.0.0.1:8080";
    value.parse().map_err(|_| expected)
}

fn seconds(value: &str) -> Result<Duration, &'static str> {
    let seconds = value.parse().ok();
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or("it must be a number of seconds")
}

/// Parses a line as the arguments of the program.
#[cfg(test)]
fn parsed(line: &str) -> Result<Command, String> {
    let words = std::iter::once("triage-gateway").chain(line.split_whitespace());
    let words: Vec<_> = words.map(str::to_owned).collect();
    parse(&words).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_and_invalid_ones_named() {
        let serve = |line: &str| match parsed(line) {
            Ok(Command::Serve(args)) => args,
            other => panic!("{line}: {other:?}"),
        };
        let args = serve("--config a.toml --log json --grace 0.5");
        assert_eq!(args.config, Some("a.toml".into()));
        assert_eq!(
            (args.log, args.grace),
            (LogFormat::Json, Duration::from_millis(500))
        );
        let args = serve("--config=a=b.toml --listen=[::]:80 --log=json");
        assert_eq!(args.config, Some("a=b.toml".into()));
        assert_eq!(args.listen, Some("[::]:80".parse().unwrap()));
        assert_eq!(args.log, LogFormat::Json);
        assert!(serve("--watch --config a.toml").watch);
        let Ok(Command::Check(args)) = parsed("check --config a.toml --listen 1.2.3.4:5") else {
            panic!("valid arguments were refused");
        };
        assert_eq!(args.config, PathBuf::from("a.toml"));
        assert_eq!(args.listen, Some("1.2.3.4:5".parse().unwrap()));
        assert!(matches!(parsed("model --name a"), Ok(Command::Model(_))));
        for (line, problem) in [
            ("--config", "--config <FILE>"),
            ("--log xml", "'xml'"),
            ("--grace soon", "it must be a number of seconds"),
            ("--grace=-1", "'-1'"),
            ("serve", "'serve'"),
            ("--listen 8080", "such as 127.0.0.1:8080"),
            ("--listen=localhost:80", "'localhost:80'"),
            ("check", "--config <FILE>"),
            ("--watch", "--config <FILE>"),
            ("--config a check", "'check'"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(problem), "{line}\n{error}");
        }
    }

    #[test]
    fn help_names_every_command_and_option() {
        let help = parsed("--help").unwrap_err();
        for word in [
            "check",
            "requests",
            "--config",
            "--watch",
            "--listen",
            "--log",
            "--grace",
            "--salvage",
            "TRIAGE_LOG",
            "SIGHUP",
            "Exit status",
        ] {
            assert!(help.contains(word), "{word}\n{help}");
        }
    }

    #[test]
    fn errors_about_arguments_have_the_format_of_the_log() {
        let format = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            log_format(&args)
        };
        for line in ["--log json --x", "--x --log=json"] {
            assert_eq!(format(line), LogFormat::Json, "{line}");
        }
        for line in ["", "--log", "--log text", "json --log", "--log=jsonl"] {
            assert_eq!(format(line), LogFormat::Text, "{line}");
        }
    }
}

//! Parsing of the command line.

mod given;
mod model;
mod requests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use given::Given;
pub(crate) use model::ModelArgs;
pub(crate) use requests::{AdminAddress, Asked, ListArgs, RequestsArgs};

const USAGE: &str = "\
A gateway in front of OpenAI-compatible backends: it queues requests, and routes each one to a backend with its
model.

Usage: gateway [--config FILE [--watch]] [--listen ADDRESS] [--log text|json] [--grace SECONDS] [--salvage]
       gateway check --config FILE                reads the file as a start would, and prints errors and warnings
       gateway requests ls|show|cancel|retry    stored requests of a running gateway; see `gateway requests --help`

  --config FILE     the configuration (every key: examples/gateway/gateway.example.toml);
                    without it the gateway starts three demo backends and listens on 127.0.0.1:8080
  --watch           reads FILE again when it changes, as on SIGHUP
  --listen ADDRESS  the address of clients, such as 0.0.0.0:8080, in place of `listen` in the file
  --log text|json   format of the log on standard error; default text
  --grace SECONDS   time that running requests have to finish at shutdown, clients to receive their responses,
                    and models to stop; default 30
  --salvage         keeps what is whole of the damaged folder of [durable], and the damaged files beside it
  --version         show the version
  --help            show this text

The value of an option may also follow after `=`, as in --config=FILE.

Environment
  TRIAGE_LOG, RUST_LOG         log filter, such as `info` or `gateway=debug`; default info
  TRIAGE_ROUTING_STRATEGY      overrides `strategy` of [routing]
  TRIAGE_ROUTING_MAX_RETRIES   overrides `max_retries` of [routing]

Signals
  SIGHUP            reads FILE again: backends, [health], [queue], [routing] and [swap] change while requests wait
                    and run
  SIGTERM, Ctrl-C   shuts down: waiting requests are rejected at once, running requests finish, and models that were
                    started are stopped; a second signal ends the grace period. Responses that are cut off are
                    counted in the log

Exit status: 0 after a shutdown, 1 if the gateway cannot start or its file is invalid, 2 for an invalid command line.
";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) config: Option<PathBuf>,
    /// `true` if the file is read again when it changes.
    pub(crate) watch: bool,
    /// In place of the address of the configuration.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) log: LogFormat,
    pub(crate) grace: Duration,
    /// `true` if what is whole of a damaged store is kept.
    pub(crate) salvage: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Serve(Args),
    Check(PathBuf, Args),
    Version,
    /// Not in the usage: it is there for `swap.toml`.
    Model(ModelArgs),
    Requests(RequestsArgs),
    Help(&'static str),
}

/// The name and the version of the program, with the revision of its source if the build was told: set `TRIAGE_REVISION`.
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TRIAGE_REVISION") {
        None | Some("") => format!("gateway {version}"),
        Some(revision) => format!("gateway {version} ({revision})"),
    }
}

/// Returns the arguments of the process. What is not UTF-8 in them is replaced.
pub(crate) fn given() -> Vec<String> {
    let given = std::env::args_os().skip(1);
    given.map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Errors come with the usage.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = Given::new(args.into_iter());
    let (parsed, usage) = if args.takes("model") {
        let parsed = model::parse(args);
        (parsed.map(|it| it.map(Command::Model)), model::USAGE)
    } else if args.takes("requests") {
        let parsed = requests::parse(args);
        (parsed.map(|it| it.map(Command::Requests)), requests::USAGE)
    } else {
        let checks = args.takes("check");
        let parsed = parse_serve(args);
        (
            parsed.and_then(|it| it.map(|it| it.checked(checks)).transpose()),
            USAGE,
        )
    };
    match parsed {
        Ok(Some(command)) => Ok(command),
        Ok(None) => Ok(Command::Help(usage)),
        Err(problem) => Err(format!("{problem}\n\n{usage}")),
    }
}

/// Returns the format of the log that these arguments ask for, valid or not, for errors about them.
pub(crate) fn log_format(args: &[String]) -> LogFormat {
    let asks = |pair: &[String]| pair == ["--log", "json"];
    match args.windows(2).any(asks) || args.iter().any(|arg| arg == "--log=json") {
        true => LogFormat::Json,
        false => LogFormat::Text,
    }
}

impl Command {
    /// Makes a check of this command, if `checks`.
    fn checked(self, checks: bool) -> Result<Self, String> {
        match self {
            Self::Serve(args) if checks => match args.config.clone() {
                Some(path) => Ok(Self::Check(path, args)),
                None => Err("check needs --config FILE".to_owned()),
            },
            other => Ok(other),
        }
    }
}

/// `None` if the arguments ask for help.
fn parse_serve(mut args: Given<impl Iterator<Item = String>>) -> Result<Option<Command>, String> {
    let mut parsed = Args {
        config: None,
        watch: false,
        listen: None,
        log: LogFormat::Text,
        grace: Duration::from_secs(30),
        salvage: false,
    };
    while let Some(flag) = args.next()? {
        match flag.as_str() {
            "--help" | "-h" => return Ok(None),
            "--version" | "-V" => return Ok(Some(Command::Version)),
            "--config" => parsed.config = Some(args.value(&flag)?.into()),
            "--watch" => parsed.watch = true,
            "--listen" => parsed.listen = Some(address(&flag, &args.value(&flag)?)?),
            "--log" => {
                parsed.log = match args.value(&flag)?.as_str() {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    other => return Err(format!("--log is {other:?}: it must be text or json")),
                }
            }
            "--grace" => parsed.grace = seconds(&flag, &args.value(&flag)?)?,
            "--salvage" => parsed.salvage = true,
            other => {
                return Err(format!(
                    "unknown argument {other:?}: allowed are --config, --watch, --listen, --log, --grace, --salvage, --version and --help"
                ));
            }
        }
    }
    if parsed.watch && parsed.config.is_none() {
        return Err("--watch needs --config FILE".to_owned());
    }
    Ok(Some(Command::Serve(parsed)))
}

fn address(flag: &str, value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|_| {
        format!("{flag} is {value:?}: it must be an IP address and a port, such as 127.0.0.1:8080")
    })
}

fn seconds(flag: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok();
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| format!("{flag} is {value:?}: it must be a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_and_invalid_ones_named() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        let Ok(Command::Serve(args)) = parse("--config a.toml --log json --grace 0.5") else {
            panic!("valid arguments were refused");
        };
        assert_eq!(args.config, Some("a.toml".into()));
        assert_eq!(
            (args.log, args.grace),
            (LogFormat::Json, Duration::from_millis(500))
        );
        let Ok(Command::Serve(args)) = parse("--config=a=b.toml --listen=[::]:80 --log=json")
        else {
            panic!("valid arguments were refused");
        };
        assert_eq!(args.config, Some("a=b.toml".into()));
        assert_eq!(args.listen, Some("[::]:80".parse().unwrap()));
        assert_eq!(args.log, LogFormat::Json);
        let watches = parse("--watch --config a.toml");
        assert!(matches!(
            watches,
            Ok(Command::Serve(Args { watch: true, .. }))
        ));
        let Ok(Command::Check(path, args)) = parse("check --config a.toml --listen 1.2.3.4:5")
        else {
            panic!("valid arguments were refused");
        };
        assert_eq!(path, PathBuf::from("a.toml"));
        assert_eq!(args.listen, Some("1.2.3.4:5".parse().unwrap()));
        assert_eq!(parse("--version"), Ok(Command::Version));
        assert_eq!(parse("--config x --help"), Ok(Command::Help(USAGE)));
        assert_eq!(parse("model --help"), Ok(Command::Help(model::USAGE)));
        assert!(matches!(parse("model --name a"), Ok(Command::Model(_))));
        for (line, problem) in [
            ("--config", "--config needs a value"),
            ("--log xml", "\"xml\""),
            ("--grace soon", "\"soon\""),
            ("--grace -1", "\"-1\""),
            ("serve", "\"serve\""),
            ("--listen 8080", "\"8080\""),
            ("--listen=localhost:80", "\"localhost:80\""),
            ("check", "check needs --config FILE"),
            ("--watch", "--watch needs --config FILE"),
            ("--config a check", "\"check\""),
        ] {
            assert!(parse(line).unwrap_err().contains(problem), "{line}");
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

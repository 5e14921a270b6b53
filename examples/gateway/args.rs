//! Parsing of the command line.

mod model;
mod requests;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use model::ModelArgs;
pub(crate) use requests::{AdminAddress, Asked, ListArgs, RequestsArgs};

const USAGE: &str = "\
A gateway in front of OpenAI-compatible backends: it queues requests, and routes each one to a backend with its
model.

Usage: gateway [--config FILE] [--log text|json] [--grace SECONDS]
       gateway requests ls|show|cancel|retry    stored requests of a running gateway; see `gateway requests --help`

  --config FILE     the configuration (every key: examples/gateway/gateway.example.toml);
                    without it the gateway starts three demo backends and listens on 127.0.0.1:8080
  --log text|json   format of the log on standard error; default text
  --grace SECONDS   time that running requests have to finish at shutdown, clients to receive their responses,
                    and models to stop; default 30
  --help            show this text

Environment
  TRIAGE_LOG, RUST_LOG         log filter, such as `info` or `gateway=debug`; default info
  TRIAGE_ROUTING_STRATEGY      overrides `strategy` of [routing]
  TRIAGE_ROUTING_MAX_RETRIES   overrides `max_retries` of [routing]

Signals
  SIGHUP            reads FILE again: backends, [health], [queue], [routing] and [swap] change while requests wait
                    and run
  SIGTERM, Ctrl-C   shuts down: waiting requests are rejected at once, running requests finish, and models that were
                    started are stopped; a second Ctrl-C ends the grace period. Responses that are cut off are
                    counted in the log

Exit status: 0 after a shutdown, 1 if the gateway cannot start, 2 for an invalid command line.
";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) config: Option<PathBuf>,
    pub(crate) log: LogFormat,
    pub(crate) grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Serve(Args),
    /// Not in the usage: it is there for `swap.toml`.
    Model(ModelArgs),
    Requests(RequestsArgs),
    Help(&'static str),
}

/// Errors come with the usage.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = args.into_iter().peekable();
    let with_usage = |problem, usage| format!("{problem}\n\n{usage}");
    if args.next_if(|first| first == "model").is_some() {
        return match model::parse(args) {
            Ok(Some(args)) => Ok(Command::Model(args)),
            Ok(None) => Ok(Command::Help(model::USAGE)),
            Err(problem) => Err(with_usage(problem, model::USAGE)),
        };
    }
    if args.next_if(|first| first == "requests").is_some() {
        return match requests::parse(args) {
            Ok(Some(args)) => Ok(Command::Requests(args)),
            Ok(None) => Ok(Command::Help(requests::USAGE)),
            Err(problem) => Err(with_usage(problem, requests::USAGE)),
        };
    }
    match parse_serve(args) {
        Ok(Some(args)) => Ok(Command::Serve(args)),
        Ok(None) => Ok(Command::Help(USAGE)),
        Err(problem) => Err(with_usage(problem, USAGE)),
    }
}

/// `None` if the arguments ask for help.
fn parse_serve(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let mut parsed = Args {
        config: None,
        log: LogFormat::Text,
        grace: Duration::from_secs(30),
    };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--help" | "-h" => return Ok(None),
            "--config" => parsed.config = Some(value()?.into()),
            "--log" => {
                parsed.log = match value()?.as_str() {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    other => return Err(format!("--log is {other:?}: it must be text or json")),
                }
            }
            "--grace" => {
                let value = value()?;
                parsed.grace = seconds(&flag, &value)?;
            }
            other => {
                return Err(format!(
                    "unknown argument {other:?}: allowed are --config, --log, --grace and --help"
                ));
            }
        }
    }
    Ok(Some(parsed))
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
        assert_eq!(parse("--config x --help"), Ok(Command::Help(USAGE)));
        assert_eq!(parse("model --help"), Ok(Command::Help(model::USAGE)));
        assert!(matches!(parse("model --name a"), Ok(Command::Model(_))));
        for (line, problem) in [
            ("--config", "--config needs a value"),
            ("--log xml", "\"xml\""),
            ("--grace soon", "\"soon\""),
            ("--grace -1", "\"-1\""),
            ("serve", "\"serve\""),
        ] {
            assert!(parse(line).unwrap_err().contains(problem), "{line}");
        }
    }
}

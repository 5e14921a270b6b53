//! Parsing of the command line.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str = "\
A gateway in front of OpenAI-compatible backends: it queues requests, and routes each one to a backend with its
model.

Usage: gateway [--config FILE] [--log text|json] [--grace SECONDS]

  --config FILE     the configuration (every key: examples/gateway/gateway.example.toml);
                    without it the gateway starts three demo backends and listens on 127.0.0.1:8080
  --log text|json   format of the log on standard error; default text
  --grace SECONDS   time that running requests have to finish at shutdown, and clients to receive their
                    responses; default 30
  --help            show this text

Environment
  TRIAGE_LOG, RUST_LOG         log filter, such as `info` or `gateway=debug`; default info
  TRIAGE_ROUTING_STRATEGY      overrides `strategy` of [routing]
  TRIAGE_ROUTING_MAX_RETRIES   overrides `max_retries` of [routing]

Signals
  SIGHUP            reads FILE again: backends, [health], [queue] and [routing] change while requests wait and run
  SIGTERM, Ctrl-C   shuts down: waiting requests are rejected at once, running requests finish; a second Ctrl-C
                    ends the grace period. Responses that are cut off are counted in the log

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
    Help,
}

pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = args.into_iter();
    let mut parsed = Args {
        config: None,
        log: LogFormat::Text,
        grace: Duration::from_secs(30),
    };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--config" => parsed.config = Some(value()?.into()),
            "--log" => {
                parsed.log = match value()?.as_str() {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    other => return Err(format!("--log is {other:?}: it must be text or json")),
                }
            }
            "--grace" => {
                let seconds = value()?;
                let parse = seconds
                    .parse()
                    .ok()
                    .and_then(|s| Duration::try_from_secs_f64(s).ok());
                parsed.grace = parse.ok_or_else(|| {
                    format!("--grace is {seconds:?}: it must be a number of seconds")
                })?;
            }
            other => {
                return Err(format!(
                    "unknown argument {other:?}: allowed are --config, --log, --grace and --help"
                ));
            }
        }
    }
    Ok(Command::Serve(parsed))
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
        assert_eq!(parse("--config x --help"), Ok(Command::Help));
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

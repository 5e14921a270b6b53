//! The arguments of `triage-gateway model`, which `swap.toml` starts.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub(crate) struct ModelArgs {
    /// The model that it serves.
    #[arg(long)]
    pub(crate) name: String,
    /// The port of 127.0.0.1 that it listens on; 0 for a free one.
    #[arg(long, default_value = "0")]
    pub(crate) port: u16,
    /// The time for which it refuses requests after its start.
    #[arg(long = "load-seconds", value_name = "SECONDS", default_value = "0", value_parser = super::seconds)]
    pub(crate) load: Duration,
    /// The time that a response takes.
    #[arg(long = "answer-ms", value_name = "MILLISECONDS", default_value = "400", value_parser = milliseconds)]
    pub(crate) answer: Duration,
    /// The number of requests that it serves at a time; others get 429.
    #[arg(long, value_name = "NUMBER", default_value = "4")]
    pub(crate) slots: u32,
}

fn milliseconds(value: &str) -> Result<Duration, std::num::ParseIntError> {
    value.parse().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parsed};
    use super::*;

    #[test]
    fn model_arguments_are_parsed_and_invalid_ones_named() {
        let model = |line: &str| match parsed(&format!("model {line}"))? {
            Command::Model(args) => Ok::<_, String>(args),
            other => panic!("{line}: {other:?}"),
        };
        let all = "--port 9000 --name qwen:7b --load-seconds 2.5 --answer-ms 40 --slots 1";
        let expected = ModelArgs {
            name: "qwen:7b".to_owned(),
            port: 9000,
            load: Duration::from_millis(2500),
            answer: Duration::from_millis(40),
            slots: 1,
        };
        assert_eq!(model(all), Ok(expected));
        assert_eq!(model("--name a").unwrap().slots, 4);
        for (line, problem) in [
            ("", "--name <NAME>"),
            ("--name", "--name <NAME>"),
            ("--name a --port 70000", "'70000'"),
            ("--name a --load-seconds soon", "'soon'"),
            ("--name a --slots=-1", "'-1'"),
            ("--name a --size 7", "'--size'"),
        ] {
            let error = model(line).unwrap_err();
            assert!(error.contains(problem), "{line}\n{error}");
        }
    }
}

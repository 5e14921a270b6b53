//! The arguments of `gateway model`, which `swap.toml` starts.

use std::str::FromStr;
use std::time::Duration;

use super::given::Given;

pub(super) const USAGE: &str = "\
A small model server with a canned response, for demonstrations.

Usage: gateway model --name NAME [--port PORT] [--load-seconds SECONDS] [--answer-ms MILLISECONDS] [--slots NUMBER]

  --name NAME                the model that it serves
  --port PORT                the port of 127.0.0.1 that it listens on; default 0, a free one
  --load-seconds SECONDS     how long it refuses requests after its start; default 0
  --answer-ms MILLISECONDS   how long a response takes; default 400
  --slots NUMBER             how many requests it serves at a time, others get 429; default 4
";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelArgs {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) load: Duration,
    pub(crate) answer: Duration,
    pub(crate) slots: u32,
}

/// `None` if the arguments ask for help.
pub(super) fn parse(
    mut args: Given<impl Iterator<Item = String>>,
) -> Result<Option<ModelArgs>, String> {
    let mut name = None;
    let mut parsed = ModelArgs {
        name: String::new(),
        port: 0,
        load: Duration::ZERO,
        answer: Duration::from_millis(400),
        slots: 4,
    };
    while let Some(flag) = args.next()? {
        if matches!(flag.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        let value = args.value(&flag);
        match flag.as_str() {
            "--name" => name = Some(value?),
            "--port" => parsed.port = number(&flag, value?)?,
            "--load-seconds" => {
                let seconds = value?;
                parsed.load = super::seconds(&flag, &seconds)?;
            }
            "--answer-ms" => parsed.answer = Duration::from_millis(number(&flag, value?)?),
            "--slots" => parsed.slots = number(&flag, value?)?,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    parsed.name = name.ok_or("--name is missing")?;
    Ok(Some(parsed))
}

fn number<T: FromStr>(flag: &str, value: String) -> Result<T, String> {
    let number = value.parse();
    number.map_err(|_| format!("{flag} is {value:?}: it must be a whole number, and not too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_arguments_are_parsed_and_invalid_ones_named() {
        let parse = |line: &str| parse(Given::new(line.split_whitespace().map(str::to_owned)));
        let all = "--port 9000 --name qwen:7b --load-seconds 2.5 --answer-ms 40 --slots 1";
        let expected = ModelArgs {
            name: "qwen:7b".to_owned(),
            port: 9000,
            load: Duration::from_millis(2500),
            answer: Duration::from_millis(40),
            slots: 1,
        };
        assert_eq!(parse(all), Ok(Some(expected)));
        assert_eq!(parse("--name a").unwrap().unwrap().slots, 4);
        assert_eq!(parse("--name a --help"), Ok(None));
        for (line, problem) in [
            ("", "--name is missing"),
            ("--name", "--name needs a value"),
            ("--name a --port 70000", "\"70000\""),
            ("--name a --load-seconds soon", "\"soon\""),
            ("--name a --slots -1", "\"-1\""),
            ("--name a --size 7", "\"--size\""),
        ] {
            assert!(parse(line).unwrap_err().contains(problem), "{line}");
        }
    }
}

//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::workload::Callers;
use crate::workload::scenarios::{DEFAULT_SEED, SCENARIOS, Scenario};

pub(crate) struct Args {
    /// Empty: all of them.
    pub(crate) scenarios: Vec<&'static Scenario>,
    /// `None`: those that each scenario names.
    pub(crate) callers: Option<Callers>,
    pub(crate) trace: Option<PathBuf>,
    /// The gateway's binary, to be measured over sockets.
    pub(crate) gateway: Option<PathBuf>,
    /// Where images go.
    pub(crate) svg: Option<PathBuf>,
    pub(crate) is_quick: bool,
    pub(crate) seed: u64,
    pub(crate) wants_help: bool,
}

impl Args {
    /// Parses the arguments after the program's name.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut parsed = Self {
            scenarios: Vec::new(),
            callers: None,
            trace: None,
            gateway: None,
            svg: None,
            is_quick: false,
            seed: DEFAULT_SEED,
            wants_help: false,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let name = arg.to_string_lossy().into_owned();
            let mut value = || args.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--workload" => parsed.scenarios.push(scenario(&value()?)?),
                "--callers" => parsed.callers = Some(callers(&value()?)?),
                "--trace" => parsed.trace = Some(value()?.into()),
                "--gateway" => parsed.gateway = Some(value()?.into()),
                "--svg" => parsed.svg = Some(value()?.into()),
                "--quick" => parsed.is_quick = true,
                "--seed" => parsed.seed = seed(&value()?)?,
                "--help" | "-h" => parsed.wants_help = true,
                _ => return Err(format!("unknown argument {name:?}; --help lists them")),
            }
        }
        Ok(parsed)
    }
}

fn scenario(name: &OsString) -> Result<&'static Scenario, String> {
    let found = name.to_str().and_then(Scenario::named);
    found.ok_or_else(|| {
        let names = SCENARIOS.iter().map(|scenario| scenario.name);
        unknown("--workload", name, names)
    })
}

fn callers(name: &OsString) -> Result<Callers, String> {
    let found = Callers::ALL
        .into_iter()
        .find(|callers| name == callers.name());
    found.ok_or_else(|| unknown("--callers", name, Callers::ALL.map(Callers::name)))
}

fn seed(value: &OsString) -> Result<u64, String> {
    let seed = value.to_str().and_then(|value| value.parse().ok());
    seed.ok_or_else(|| format!("--seed is {value:?}: it must be a whole number"))
}

fn unknown(arg: &str, value: &OsString, allowed: impl IntoIterator<Item = &'static str>) -> String {
    let allowed: Vec<&str> = allowed.into_iter().collect();
    format!(
        "{arg} is {value:?}: it must be one of {}",
        allowed.join(", ")
    )
}

pub(crate) fn help() -> String {
    let scenarios = SCENARIOS
        .iter()
        .map(|scenario| format!("    {:14} {}\n", scenario.name, scenario.about));
    let callers = Callers::ALL.map(|callers| {
        let (name, about) = (callers.name(), callers.describe());
        format!("    {name:14} {about}\n")
    });
    format!(
        "Policies for overload, side by side, in virtual time.

cargo run --release -p tower-triage-simulations --bin overload -- [OPTIONS]

  --workload NAME  only this workload; may be repeated. Default: all
{}
  --callers NAME   what callers do when their patience is over. Default: what suits the workload
{}
  --trace FILE     a recorded trace in place of the generated conversation: a CSV, plain or .gz, with
                   the columns TIMESTAMP, ContextTokens and GeneratedTokens
  --gateway FILE   measure this binary of the gateway over sockets instead, in real time: 8 minutes
  --svg DIR        draw the figures over the load, too; an image for each workload
  --quick          a tenth of the requests
  --seed N         of the generated workloads. Default: {DEFAULT_SEED}
  --help           this",
        scenarios.collect::<String>(),
        callers.concat(),
    )
}

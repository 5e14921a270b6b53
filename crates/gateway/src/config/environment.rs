//! Environment variables that override keys of `[routing]`.

use std::ffi::OsString;

use tower_triage::route::{RoutingConfig, UnknownStrategy};

/// Looks up a variable; a parameter, so that tests need not change the environment of their process.
pub(crate) type Environment = fn(&str) -> Option<OsString>;

/// The environment of this process.
pub(crate) fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

const STRATEGY: &str = "TRIAGE_ROUTING_STRATEGY";
const MAX_RETRIES: &str = "TRIAGE_ROUTING_MAX_RETRIES";

/// A variable that is set to a value that its key does not allow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidVariable {
    #[error(
        "{MAX_RETRIES} is {value:?}: it must be a whole number from 0 to {}",
        u32::MAX
    )]
    MaxRetries { value: OsString },
    #[error("{STRATEGY}: {0}")]
    Strategy(#[from] UnknownStrategy),
}

/// Applies the variables that are set to `routing`.
pub(super) fn override_routing(
    routing: &mut RoutingConfig,
    environment: Environment,
) -> Result<(), InvalidVariable> {
    if let Some(value) = environment(MAX_RETRIES) {
        let retries = value.to_str().and_then(|value| value.parse().ok());
        routing.max_retries = retries.ok_or(InvalidVariable::MaxRetries { value })?;
    }
    if let Some(name) = environment(STRATEGY) {
        routing.strategy = name.to_string_lossy().parse()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tower_triage::route::StrategyChoice;

    use super::*;

    #[test]
    fn unset_variables_change_nothing() {
        let mut routing = RoutingConfig::default().max_retries(7);
        override_routing(&mut routing, |_| None).unwrap();
        assert_eq!(routing.max_retries, 7);
        assert!(matches!(routing.strategy, StrategyChoice::Smart));
    }

    #[test]
    fn set_variables_override_the_routing() {
        let mut routing = RoutingConfig::default();
        let set: Environment = |name| match name {
            STRATEGY => Some("random".into()),
            MAX_RETRIES => Some("0".into()),
            _ => None,
        };
        override_routing(&mut routing, set).unwrap();
        assert_eq!(routing.max_retries, 0);
        assert!(matches!(routing.strategy, StrategyChoice::Random));
    }

    #[test]
    fn invalid_max_retries_error_names_variable_and_value() {
        let bad: [Environment; 5] = [
            |name| (name == MAX_RETRIES).then(|| "two".into()),
            |name| (name == MAX_RETRIES).then(|| "-1".into()),
            |name| (name == MAX_RETRIES).then(|| "1.5".into()),
            |name| (name == MAX_RETRIES).then(|| "4294967296".into()),
            |name| (name == MAX_RETRIES).then(OsString::new),
        ];
        for environment in bad {
            let value = environment(MAX_RETRIES).unwrap();
            let error = override_routing(&mut RoutingConfig::default(), environment);
            let message = error.unwrap_err().to_string();
            let start = format!("TRIAGE_ROUTING_MAX_RETRIES is {value:?}: it must be");
            assert!(message.starts_with(&start), "{message}");
        }
    }
    #[test]
    fn an_unknown_strategy_error_names_variable_value_and_choices() {
        let set: [Environment; 2] = [
            |name| (name == STRATEGY).then(|| "fastest".into()),
            |name| (name == STRATEGY).then(OsString::new),
        ];
        for (environment, value) in set.into_iter().zip(["fastest", ""]) {
            let error = override_routing(&mut RoutingConfig::default(), environment);
            let message = error.unwrap_err().to_string();
            let start =
                format!("TRIAGE_ROUTING_STRATEGY: {value:?} is unknown: the choices are smart,");
            assert!(message.starts_with(&start), "{message}");
        }
    }
}

//! Environment variables that override keys of `[routing]`.

use std::ffi::OsString;

use tower_triage::route::{RoutingConfig, StrategyChoice};

/// Looks up a variable; a parameter, so that tests need not change the environment of their process.
pub(crate) type Environment = fn(&str) -> Option<OsString>;

/// The environment of this process.
pub(crate) fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

pub(super) const STRATEGY: &str = "TRIAGE_ROUTING_STRATEGY";
pub(super) const MAX_RETRIES: &str = "TRIAGE_ROUTING_MAX_RETRIES";

#[derive(Debug, thiserror::Error)]
#[error(
    "{MAX_RETRIES} is {value:?}: it must be a whole number from 0 to {}",
    u32::MAX
)]
pub(crate) struct InvalidVariable {
    value: OsString,
}

/// Applies the variables that are set. Returns whether the strategy comes from one.
pub(super) fn override_routing(
    routing: &mut RoutingConfig,
    environment: Environment,
) -> Result<bool, InvalidVariable> {
    if let Some(value) = environment(MAX_RETRIES) {
        let retries = value.to_str().and_then(|value| value.parse().ok());
        routing.max_retries = retries.ok_or(InvalidVariable { value })?;
    }
    let strategy = environment(STRATEGY);
    if let Some(name) = &strategy {
        routing.strategy = StrategyChoice::named(&name.to_string_lossy());
    }
    Ok(strategy.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_variables_change_nothing() {
        let mut routing = RoutingConfig::default().max_retries(7);
        assert!(!override_routing(&mut routing, |_| None).unwrap());
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
        assert!(override_routing(&mut routing, set).unwrap());
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
}

//! What the environment says, and the file need not.

use std::ffi::OsString;

use tower_triage::route::{RoutingConfig, StrategyChoice};

/// The value of a variable, if it is set.
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
pub(crate) struct VariableError {
    value: OsString,
}

/// Returns whether the strategy is now a variable's.
pub(super) fn override_routing(
    routing: &mut RoutingConfig,
    environment: Environment,
) -> Result<bool, VariableError> {
    if let Some(value) = environment(MAX_RETRIES) {
        let retries = value.to_str().and_then(|value| value.parse().ok());
        routing.max_retries = retries.ok_or(VariableError { value })?;
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
    fn variables_that_are_not_set_change_nothing() {
        let mut routing = RoutingConfig::default().max_retries(7);
        assert!(!override_routing(&mut routing, |_| None).unwrap());
        assert_eq!(routing.max_retries, 7);
        assert!(matches!(routing.strategy, StrategyChoice::Smart));
    }

    #[test]
    fn variables_that_are_set_count() {
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
    fn a_number_that_is_none_is_named() {
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
            let said = error.unwrap_err().to_string();
            let start = format!("TRIAGE_ROUTING_MAX_RETRIES is {value:?}: it must be");
            assert!(said.starts_with(&start), "{said}");
        }
    }
}

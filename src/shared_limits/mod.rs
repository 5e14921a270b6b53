//! Slots of endpoints that several gateways share, by leases in Redis.
mod ledger;
mod share;
#[cfg(test)]
mod tests;

pub use ledger::Ledger;
pub use share::{Ask, Grant, LeaseTimes, Need, Share, fallback};

//! Limits that adapt, in virtual time: against a simulated backend that has a limit and does not say so.

#![cfg(not(loom))]

mod backend;
mod drift;
mod hidden_limit;
mod properties;

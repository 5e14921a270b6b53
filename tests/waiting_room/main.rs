//! The pure core, driven without a clock: every promise of the waiting room, checked against a model that
//! keeps everybody in one list and looks through all of it.

#![cfg(not(loom))]

mod disciplines;
mod driver;
mod fairness;
mod inconsistent;
mod model;
mod promises;
mod returners;
mod rooms;
mod scale;
mod scenarios;
mod sections;
mod trims;
mod wards;

//! `RouteLayer` in front of a service that the test writes.

mod failures;
mod layer;
mod newcomers;
mod recovery;
mod retries;
mod sources;
mod states;
mod support;
mod waiting;

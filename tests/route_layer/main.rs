//! `RouteLayer` in front of a service that the test writes.

mod failures;
mod layer;
mod sources;
mod support;
mod waiting;

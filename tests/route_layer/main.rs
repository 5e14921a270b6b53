//! `RouteLayer` in front of a service that the test writes.

mod adaptive;
mod bodies_not_sent;
mod carried;
mod clients;
mod failures;
mod health;
mod hold_limits;
mod large_bodies;
mod layer;
mod new_endpoints;
mod observer;
mod on_demand;
mod outer_limits;
mod own_strategy;
mod recovery;
mod refusals;
mod retries;
mod sources;
mod spans;
mod states;
mod status;
mod support;
mod tenants;
mod waiting;

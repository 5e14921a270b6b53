//! Requests that are stored, over real layers and a store in memory, on Tokio's paused clock.

mod asked;
mod ends;
mod faulty;
mod minimal;
#[path = "../support/minimal.rs"]
mod minimal_store;
mod order;
mod outages;
mod pages;
mod router;
mod seeded;
mod streams;
mod support;
mod trough;
mod worker;

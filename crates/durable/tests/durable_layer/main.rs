//! Requests that are stored, over real layers and a store in memory, on Tokio's paused clock.

mod asked;
mod ends;
mod faulty;
mod order;
mod outages;
mod pages;
mod router;
mod seeded;
mod streams;
mod support;
mod trough;
mod worker;

//! Models that are processes of the operating system.

mod activity;
mod command;
mod daemons;
mod engine;
mod group;
mod health;
mod ignored_signals;
mod instance;
mod launcher;
mod life;
mod members;
mod output;
mod port;
mod progress;
mod ready;
mod stop;
mod supervise;

pub use self::launcher::ProcessLauncher;

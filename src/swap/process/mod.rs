//! The launcher of processes.

mod activity;
mod command;
mod daemons;
mod engine;
mod group;
mod health;
mod ignored_signals;
mod launcher;
mod life;
mod members;
mod orphans;
mod output;
mod owner;
mod port;
mod proc;
mod progress;
mod ready;
mod records;
mod server;
mod stop;
mod supervise;

pub use self::launcher::ProcessLauncher;

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
mod orphans;
mod output;
mod owner;
mod port;
mod proc;
mod progress;
mod ready;
mod records;
mod stop;
mod supervise;

pub use self::launcher::ProcessLauncher;

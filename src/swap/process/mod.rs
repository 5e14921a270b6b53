//! Models as processes of this machine: how they are started, watched and ended, and the processes that a killed program
//! has left.

mod activity;
mod command;
mod daemons;
mod engine;
mod foreign;
mod group;
mod health;
mod launcher;
mod lines;
mod orphans;
mod output;
mod port;
mod proc;
mod progress;
mod reaper;
mod records;
mod server;
mod stop;
mod supervise;

pub use self::launcher::ProcessLauncher;

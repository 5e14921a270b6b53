//! Models that are started when they are asked for.

mod scheduler;
mod swapper;

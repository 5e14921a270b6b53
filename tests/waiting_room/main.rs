//! Tests of the waiting room without a clock or threads: scenarios, and random runs compared with a model that keeps all
//! waiters in one list and searches it from end to end.

#![cfg(not(loom))]

mod deadlines;
mod disciplines;
mod driver;
mod fairness;
mod game;
mod inconsistent;
mod level_weights;
mod levels;
mod long_waits;
mod model;
mod on_demand;
mod one_lane;
mod overload;
mod partitions;
mod pools;
mod predictions;
mod promises;
mod requeued;
mod reserves;
mod rooms;
mod scale;
mod scenarios;
mod shares;
mod simulation;
mod slot_time;
mod tenant_limit;
mod trims;
mod unmodelled;
mod untold_release;
mod wait_queue;

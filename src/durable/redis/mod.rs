//! A store on Redis Streams, or on what speaks its protocol, for many fronts and workers.
//!
//! Each transition of a request is one Lua script on keys of one hash tag, so it happens as a whole, and may be repeated
//! when its reply was lost. All times are those of Redis' clock. A queue's level is a stream of new requests and one of those
//! that came back, read by one consumer group: what is pending in the group is running. While a call of a script is on its
//! way, the requests that need the same one next wait, and then share a call.
//!
//! Three connections serve a store: one for the scripts, one that waits for news (the ends of requests that this process
//! waits for, new work), and with [`RedisConfig::replicas`] one for the requests that have to be replicated.

mod batch;
mod check;
mod config;
mod front;
mod leases;
mod link;
mod nodes;
mod operators;
mod reader;
mod replicas;
mod reply;
mod scripts;
mod shared;
mod store;
mod upkeep;
mod watchers;
mod worker;

pub use config::{ConnectError, RedisConfig};
pub use store::RedisStore;

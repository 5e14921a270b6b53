//! A store on Redis Streams, for many front ends and workers. It also works with servers that speak the protocol of
//! Redis.
//!
//! Each transition of a request is one Lua script on keys with one hash tag, so it is atomic. A script may be repeated
//! if its reply was lost. All times come from the clock of Redis. Each level of a queue has one stream of new requests
//! and one stream of requests that came back. One consumer group reads both, and the pending entries of the group are
//! the running requests. While a script call is on its way, other requests that need the same script wait and then
//! share the next call.
//!
//! A process that has both a front and a worker asks the worker for free slots just before it stores requests. The script
//! then starts as many of them as there are slots, if no other request of the queue waits. This saves a second script,
//! which would fetch the requests.
//!
//! A store uses two or three connections. One runs the scripts, and one waits for notifications, such as new work and
//! the ends of requests that this process waits for. With [`RedisConfig::replicas`], a third one stores the requests
//! that must be replicated.

mod batch;
mod check;
mod config;
mod direct;
mod front;
mod leases;
mod level;
mod link;
mod nodes;
mod operators;
mod reader;
mod replicas;
mod reply;
mod scripts;
mod shared;
pub mod shared_limits;
mod store;
mod upkeep;
mod watchers;
mod worker;

pub use config::{ConnectError, RedisConfig};
pub use store::RedisStore;

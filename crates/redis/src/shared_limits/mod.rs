//! Slots of endpoints that several gateways share, so that all of them together send no more requests than the slots
//! allow.
//!
//! Each gateway leases slots of an endpoint for a while, uses them as if they were its own, and gives back the slots
//! that it does not need. A ledger in Redis, one for each endpoint name, records the number of slots of each gateway.
//! [`SharedLimits`] is the task that does all of this for a router:
//!
//! ```no_run
//! # fn start(router: tower_triage::RouteHandle) -> Result<(), Box<dyn std::error::Error>> {
//! use tower_triage_redis::shared_limits::{SharedLimits, SharedLimitsConfig};
//!
//! let config = SharedLimitsConfig::new("redis://127.0.0.1:6379");
//! let shared = SharedLimits::start(config, router)?; // until it is dropped
//! # drop(shared);
//! # Ok(())
//! # }
//! ```
//!
//! # How slots are shared
//!
//! - A gateway asks for as many slots as it has running and waiting requests, and gets the free ones. While the other
//!   gateways wait for none, it gets a few more slots for its next requests.
//! - For the slots that it does not get, a gateway joins a waiting list. A slot that becomes free goes to the gateway
//!   that has waited for the longest time, and that gateway learns of it at once. Several free slots are divided among
//!   the gateways that wait.
//! - While others wait, a gateway gives back its unused slots. It also gives back each used slot beyond an equal part
//!   when the request on it ends, once the slot has had its *turn* here. A turn is a thirtieth of the lease, and at
//!   most 1 s. If more gateways want slots than there are slots, all slots go round.
//! - While the other gateways have enough, a gateway gives back slots that it did not need for a third of the lease.
//! - Within a gateway, its own waiting room orders the requests. Requests of different gateways are not ordered.
//!
//! # Failures
//!
//! - **A gateway dies**: its slots go to others when its lease ends, or at most a third of the lease later.
//! - **A gateway is stopped and goes on**, or its connection is cut: it stops using its slots an eighth of the lease
//!   before their end, by its own monotonic clock. Each slot is checked when a request takes it, so a request is never
//!   sent after that time, however threads are scheduled. Running requests go on, although their slots may belong to
//!   others by then; they count against the slots that the gateway leases next. On Linux the clock stands still while
//!   the whole machine is suspended, so a virtual machine that was suspended may use old slots until it has talked to
//!   Redis.
//! - **Redis is away**: leased slots are used until their lease ends. Then each gateway goes on with an equal part of
//!   the slots, by the number of gateways that Redis last reported, or with one slot if it has never reached Redis.
//!   Each gateway uses at least one slot, so an endpoint with fewer slots than gateways may get more requests than it
//!   has slots. The same can happen for a second or two while the gateways find Redis again.
//! - **Redis loses its data**, for instance without an append-only file or in a failover: slots may be leased twice
//!   until the old leases have ended.
//!
//! # Settings that all gateways share
//!
//! Endpoints of one *name* share their slots, whatever their URLs are, so two machines need two names. The number of
//! slots is [`max_concurrent`](tower_triage::endpoints::Endpoint::max_concurrent), or the upper bound of an adaptive limit;
//! the measurements of each gateway limit its own use further. If gateways configure different numbers for an endpoint,
//! the lowest number holds for all as long as its gateway uses the endpoint, and the others log a warning.
//!
//! # The state machines alone
//!
//! [`Share`] decides for one gateway and one endpoint, and [`Ledger`] models the record that Redis keeps. Both are
//! state machines without a clock or a connection, so they serve tests, simulations, and other stores.

mod ledger;
mod redis;
mod share;
mod task;
#[cfg(test)]
mod tests;

pub use ledger::Ledger;
pub use share::{Ask, Grant, LeaseTimes, Need, Share, fallback};
pub use task::{SharedLimits, SharedLimitsConfig};

//! Slots of endpoints that several gateways share, so that together they send no more than one of them might.
//!
//! Each gateway leases slots of an endpoint for a while, uses them as if they were its own, and gives back what it does not
//! need. Who has how many is in Redis, in a ledger for each name of an endpoint. [`SharedLimits`] is the task that does all
//! of this for a router:
//!
//! ```no_run
//! # fn start(router: tower_triage::RouterHandle) -> Result<(), Box<dyn std::error::Error>> {
//! use tower_triage::shared_limits::{SharedLimits, SharedLimitsConfig};
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
//! - A gateway asks for as many slots as it has requests that run and wait, and gets what is free. While no other gateway
//!   waits, it gets a few more for the requests that come next.
//! - For slots that it does not get, it is on a waiting list. A slot that comes free goes to the gateway that has waited for
//!   the longest time, which learns of it at once. Several slots are divided among those that wait.
//! - While others wait, a gateway gives back what it does not use. Of what it has beyond an equal part, it gives each slot
//!   back when a request ends, once the slot has had its *turn* here: a thirtieth of the lease, at most 1 s. If there are
//!   fewer slots than gateways that want some, all slots go round.
//! - While no other gateway waits, slots that were not needed for a third of the lease are given back.
//! - Within a gateway, the order of requests is that of its own waiting room. There is no order of requests over gateways.
//!
//! # When things go wrong
//!
//! - **A gateway dies**: its slots are others' when its lease ends, and at most a third of it later.
//! - **A gateway is stopped and goes on**, or its connection is cut: by its own monotonic clock it stops to use slots an
//!   eighth of the lease before their end. Each slot is looked at when it is taken, so nothing is sent after that, however
//!   threads are scheduled. Requests that run go on, though their slots may be others' by then; they use up what the gateway
//!   is leased next. On Linux the clock stands still while the whole machine is suspended; a virtual machine that was
//!   suspended may use old slots until it has talked to Redis.
//! - **Redis is away**: leased slots are used until their lease ends. Then each gateway goes on with an equal part of the
//!   slots, by the number of gateways that Redis last named, and with one slot if it has never reached Redis. At least one
//!   slot is used, so with more gateways than slots an endpoint may get more requests than it has slots; and while Redis is
//!   found again, for a second or two.
//! - **Redis loses its data**, as without an append-only file or in a failover: until the old leases have ended, slots may be
//!   leased twice.
//!
//! # What gateways must agree on
//!
//! Endpoints of one *name* share their slots, whatever their URLs: two machines need two names. The number of slots is
//! [`max_concurrent`](crate::endpoints::Endpoint::max_concurrent), or the upper bound of a limit that adapts; each gateway's
//! own measurements hold for it as well. If gateways give an endpoint different numbers, the lowest holds for all as long as
//! that gateway uses the endpoint, and the others log a warning.
//!
//! # The pure part
//!
//! [`Share`] is what one gateway decides about one endpoint, [`Ledger`] what Redis keeps of it. Both are state machines
//! without a clock or a connection, for tests, simulations, and other stores.

mod ledger;
mod redis;
mod share;
mod task;
#[cfg(all(test, not(loom)))]
mod tests;

pub use ledger::Ledger;
pub use share::{Ask, Grant, LeaseTimes, Need, Share, fallback};
pub use task::{SharedLimits, SharedLimitsConfig};

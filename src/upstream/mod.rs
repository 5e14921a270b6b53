//! The HTTP client of a router. [`Forward`] sends a routed request to its endpoint, and [`HealthChecks`] check the
//! endpoints.

mod answer_body;
mod body;
mod client_connection;
mod connect;
mod connection;
mod engine;
mod exchange;
mod failure;
mod first_piece;
mod forward;
mod future;
mod headers;
mod health;
mod http2;
mod lookups;
mod pool;
mod pools;
mod recallable_body;
mod redirect;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod upgrade;
mod upkeep;
mod upload;
mod websocket_frames;

pub use body::{BodyError, ForwardBody};
#[cfg(feature = "__fuzz")]
pub(crate) use engine::load as engine_load;
pub use forward::{Forward, OverTls, PeerAddr};
pub use future::ForwardFuture;
pub use health::HealthChecks;
#[cfg(all(feature = "swap", unix))]
pub(crate) use health::{CheckError, Prober};
pub use redirect::PathPrefix;
#[cfg(feature = "tls")]
pub use tls::TlsError;
pub use upgrade::WebsocketBytes;

//! The front, which stores requests, waits for their responses and shows their states.

mod accept;
mod admin;
mod answer;
mod answer_event;
mod body;
mod classify;
mod estimate;
mod event_body;
mod future;
mod handle;
mod layer;
mod object;
mod pages;
mod query;
mod read_body;
mod refused;
mod request_options;
mod service;
mod shared;
mod stored_body;

pub use body::DurableBody;
pub use classify::{Classified, Classifier, ClassifyHeaders};
pub use future::DurableFuture;
pub use handle::DurableHandle;
pub use layer::DurableLayer;
#[cfg(feature = "webhooks")]
pub(super) use object::to_json;
pub use service::Durable;

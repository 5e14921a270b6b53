//! A queue for each key of requests, for a limit per gRPC method or per matched path.

mod handle;
mod layer;
mod rooms;
mod service;

pub use handle::PerKeyHandle;
pub use layer::PerKeyLayer;
pub use service::PerKeyQueue;

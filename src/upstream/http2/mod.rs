//! HTTP/2 to the endpoints that are [configured](crate::endpoints::Endpoint::http2) for it. All requests to such an endpoint
//! share one connection, on which each has a stream of its own.

mod connection;
mod exchange;
mod interim;
mod request_body;
mod shared;

pub(super) use connection::Http2Connection;
pub(super) use exchange::send;
pub(super) use interim::HeadLimit;
pub(super) use shared::SharedConnection;

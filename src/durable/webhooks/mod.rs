//! Webhooks: the caller's address is told when its request has ended.
//!
//! [`WebhookSender`] sends a `POST` with the request's JSON object, signed as [Standard Webhooks] has it: the headers
//! `webhook-id`, `webhook-timestamp` and `webhook-signature`. Any status from 200 to 299 settles a webhook. Else it is sent
//! again, after 1 s at first and twice as long each time, up to one minute, for 24 hours; its `webhook-id` stays the same.
//! The tries are counted in the store, so they go on after a restart. A store keeps a request until its webhook is settled, also
//! beyond its [retention](super::StoreConfig::retention).
//!
//! A caller chooses the address, so it could make the server call what only the server can reach. Therefore a webhook goes to
//! public addresses only, unless [`WebhookAddresses::all`] allows the others, and redirects are not followed. The address
//! is checked when the request is stored and, once its name is resolved, at each connection.
//!
//! [Standard Webhooks]: https://www.standardwebhooks.com

mod address;
mod base64;
mod resolver;
mod secret;
mod sender;

pub use address::WebhookAddresses;
pub use secret::{InvalidWebhookSecret, WebhookSecret};
pub use sender::WebhookSender;

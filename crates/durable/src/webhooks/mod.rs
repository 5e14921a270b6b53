//! Webhooks, which tell a caller at an address of its choice that its request has ended.
//!
//! A `WebhookSender` (feature `webhooks`) sends a `POST` with the JSON object of the request, or of the batch that has ended. It signs the message as [Standard Webhooks]
//! specifies, in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`. Any status from 200 to 299
//! settles the webhook, and 410 ends it, too. After any other outcome the sender tries again for 24 hours, with the same
//! `webhook-id`. The first pause is 1 s, and each further one is twice as long, up to one minute, unless the receiver asks
//! for a longer one by `Retry-After`. The store counts the tries, so they go on after a restart. A request that an operator
//! retries ends again, with a `webhook-id` of its own.
//!
//! A receiver has up to 16 webhooks of a tenant to respond to at the same time, a tenant up to 64, and all tenants up to 256,
//! in turn. So a receiver that never responds holds up no other one. The store keeps a request until its webhook is
//! settled, even beyond the [retention](super::StoreConfig::retention).
//!
//! A caller chooses the address, so it could make the server call services that only the server can reach. Therefore
//! webhooks go only to public addresses, unless [`WebhookAddresses::all`] allows the others, and the sender does not
//! follow redirects. The address is checked when the request is stored. It is checked again at each connection, after
//! its name is resolved.
//!
//! [Standard Webhooks]: https://www.standardwebhooks.com

mod address;
mod outbox;
mod requested;
#[cfg(feature = "webhooks")]
mod sender;

pub use address::WebhookAddresses;
pub use outbox::post;
pub use requested::{CheckWebhook, requested};
#[cfg(feature = "webhooks")]
pub use sender::{InvalidWebhookSecret, WebhookSecret, WebhookSender};

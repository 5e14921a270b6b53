//! A resolver that returns only the addresses to which webhooks may go.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::webhooks::WebhookAddresses;

/// A resolver that looks a name up and leaves out the addresses that are not allowed.
///
/// The connection goes to the addresses that this look-up returned, so a name can't change its address between the
/// check and the connection.
#[derive(Debug, Clone)]
pub(super) struct CheckedResolver(pub(super) WebhookAddresses);

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allowed = self.0;
        let lookup = tokio::task::spawn_blocking(move || {
            let found: Vec<_> = (name.as_str(), 0).to_socket_addrs()?.collect();
            let (allowed, refused): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|address| allowed.allows(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                let error = "webhook_not_allowed: the name has no public address";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
            }
            Ok(allowed.into_iter())
        });
        Box::pin(async move { lookup.await.map_err(io::Error::other)? })
    }
}

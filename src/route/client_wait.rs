//! Counters of requests that wait for their clients, which do nothing without the feature `swap`.

#[cfg(feature = "swap")]
pub(super) use crate::endpoints::on_demand::ClientWait;

/// A stand-in without state, so that callers work without the feature `swap`.
#[cfg(not(feature = "swap"))]
#[derive(Debug, Default)]
pub(super) struct ClientWait(());

#[cfg(not(feature = "swap"))]
impl ClientWait {
    pub(super) fn at(_: &crate::endpoints::EndpointRef) -> Self {
        Self::default()
    }

    pub(super) fn set(&mut self, _: bool) {}

    pub(super) fn on_sent(&mut self) {}
}

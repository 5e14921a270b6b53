//! Requests that wait for their clients, where that is counted.

#[cfg(feature = "swap")]
pub(super) use crate::endpoints::on_demand::{ClientWait, UploadWait};

/// Counted for no endpoint.
#[cfg(not(feature = "swap"))]
#[derive(Debug, Default)]
pub(super) struct UploadWait(());

#[cfg(not(feature = "swap"))]
impl UploadWait {
    pub(super) fn at(_: &crate::endpoints::EndpointRef) -> Self {
        Self::default()
    }

    pub(super) fn set_waiting(&mut self, _: bool) {}

    pub(super) fn on_sent(&mut self) {}
}

/// Counted for no endpoint.
#[cfg(not(feature = "swap"))]
#[derive(Debug, Default)]
pub(super) struct ClientWait(());

#[cfg(not(feature = "swap"))]
impl ClientWait {
    pub(super) fn set(&mut self, _: bool, _: &crate::endpoints::EndpointRef) {}
}

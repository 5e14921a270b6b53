//! Whose turn it is in a request, where that matters.

#[cfg(feature = "swap")]
pub(super) use crate::endpoints::on_demand::{ClientsTurn, Turn};

/// It matters to no endpoint.
#[cfg(not(feature = "swap"))]
#[derive(Debug, Default)]
pub(super) struct Turn(());

#[cfg(not(feature = "swap"))]
impl Turn {
    pub(super) fn at(_: &crate::endpoints::EndpointRef) -> Self {
        Self::default()
    }

    pub(super) fn set_clients(&mut self, _: bool) {}

    pub(super) fn on_sent(&mut self) {}
}

/// It matters to no endpoint.
#[cfg(not(feature = "swap"))]
#[derive(Debug, Default)]
pub(super) struct ClientsTurn(());

#[cfg(not(feature = "swap"))]
impl ClientsTurn {
    pub(super) fn set(&mut self, _: bool, _: &crate::endpoints::EndpointRef) {}
}

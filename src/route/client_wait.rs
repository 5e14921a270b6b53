//! The wait of one direction of a request for its client. It is counted at the endpoint, where it is no silence of the
//! endpoint, and for the slot, which may be recalled for it.

use std::sync::Arc;

use crate::endpoints::EndpointRef;
#[cfg(feature = "swap")]
use crate::endpoints::on_demand::ClientWait as EndpointWait;
use crate::gate::ClientStall;

/// The wait of one direction of a request for its client, which ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct ClientWait {
    #[cfg(feature = "swap")]
    endpoint: EndpointWait,
    /// The stalls of the slot's client, and `true` while this wait is one of them. `None` if the slot is not recalled.
    stall: Option<(Arc<ClientStall>, bool)>,
}

impl ClientWait {
    /// Returns the wait of a request to this endpoint, which begins later.
    #[inline]
    pub(super) fn at(_endpoint: &EndpointRef, stall: Option<Arc<ClientStall>>) -> Self {
        Self {
            #[cfg(feature = "swap")]
            endpoint: EndpointWait::at(_endpoint),
            stall: stall.map(|stall| (stall, false)),
        }
    }

    /// Sets whether the request waits for its client, and not for the endpoint.
    #[inline]
    pub(super) fn set(&mut self, is_waiting: bool) {
        self.set_at_endpoint(is_waiting);
        match is_waiting {
            true => self.begin_stall(0),
            false => self.end_stall(0),
        }
    }

    #[inline]
    fn set_at_endpoint(&mut self, _is_waiting: bool) {
        #[cfg(feature = "swap")]
        self.endpoint.set(_is_waiting);
    }

    fn begin_stall(&mut self, bytes: usize) {
        if let Some((stall, is_stalled)) = &mut self.stall
            && !*is_stalled
        {
            *is_stalled = true;
            stall.begin(bytes);
        }
    }

    fn end_stall(&mut self, bytes: usize) {
        if let Some((stall, is_stalled)) = &mut self.stall
            && *is_stalled
        {
            *is_stalled = false;
            stall.end(bytes);
        }
    }

    /// Counts a part of the request that was sent, which ends the wait for the client.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        #[cfg(feature = "swap")]
        self.endpoint.on_sent();
        self.end_stall(bytes);
    }

    /// Records that the client has taken all that it was given so far.
    #[inline]
    pub(super) fn on_taken(&mut self) {
        self.end_stall(0);
    }

    /// Records that the client was given a piece of the response, and that the request waits until the client takes it.
    #[inline]
    pub(super) fn on_given(&mut self, bytes: usize) {
        self.set_at_endpoint(true);
        self.begin_stall(bytes);
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.end_stall(0);
    }
}

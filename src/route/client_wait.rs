//! The wait of one direction of a request for its client. It is counted at the endpoint, where it is no silence of the
//! endpoint, and for the slot, which may be recalled for it.

use std::sync::Arc;

use crate::endpoints::EndpointRef;
use crate::endpoints::on_demand::ClientWait as EndpointWait;
use crate::gate::ClientStall;

/// The wait of one direction of a request for its client, which ends when this is dropped. It is `None` if the wait matters
/// neither to the endpoint nor to the slot, as for most requests.
#[derive(Debug, Default)]
pub(super) struct ClientWait(Option<Box<Waits>>);

#[derive(Debug)]
struct Waits {
    endpoint: EndpointWait,
    /// The stalls of the slot's client, and `true` while this wait is one of them. `None` if the slot is not recalled.
    stall: Option<(Arc<ClientStall>, bool)>,
}

impl ClientWait {
    /// Returns the wait of a request to this endpoint, which begins later.
    #[inline]
    pub(super) fn at(endpoint: &EndpointRef, stall: Option<Arc<ClientStall>>) -> Self {
        let matters = endpoint.is_on_demand() || stall.is_some();
        Self(matters.then(|| Box::new(Waits::at(endpoint, stall))))
    }

    /// Sets whether the request waits for its client, and not for the endpoint.
    #[inline]
    pub(super) fn set(&mut self, is_waiting: bool) {
        if let Some(waits) = &mut self.0 {
            waits.set(is_waiting);
        }
    }

    /// Counts a part of the request that was sent, which ends the wait for the client.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: usize) {
        if let Some(waits) = &mut self.0 {
            waits.endpoint.on_sent();
            waits.end_stall(bytes);
        }
    }

    /// Records that the client has taken all that it was given so far.
    #[inline]
    pub(super) fn on_taken(&mut self) {
        if let Some(waits) = &mut self.0 {
            waits.end_stall(0);
        }
    }

    /// Records that the client was given a piece of the response, and that the request waits until the client takes it.
    #[inline]
    pub(super) fn on_given(&mut self, bytes: usize) {
        if let Some(waits) = &mut self.0 {
            waits.endpoint.set(true);
            waits.begin_stall(bytes);
        }
    }
}

impl Waits {
    #[cold]
    fn at(endpoint: &EndpointRef, stall: Option<Arc<ClientStall>>) -> Self {
        Self {
            endpoint: EndpointWait::at(endpoint),
            stall: stall.map(|stall| (stall, false)),
        }
    }

    fn set(&mut self, is_waiting: bool) {
        self.endpoint.set(is_waiting);
        match is_waiting {
            true => self.begin_stall(0),
            false => self.end_stall(0),
        }
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
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.end_stall(0);
    }
}

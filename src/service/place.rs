//! The token on a rejection by which its request keeps its place.

use std::time::Duration;

use http::{HeaderMap, Response};

use super::LayerState;
use crate::admit::Capacity;
use crate::gate;
use crate::http::X_TRIAGE_PLACE;

impl<C: Capacity> LayerState<C> {
    /// Adds the token to the rejection of a request that waited for `waited`, if its client is told when to come back and
    /// places are kept.
    pub(crate) fn insert_place<B>(
        &self,
        response: &mut Response<B>,
        request: &HeaderMap,
        retry_after: Option<Duration>,
        waited: Duration,
    ) {
        let settings = self.settings();
        let Some(retry_after) = retry_after.filter(|_| settings.classifier.keeps_places()) else {
            return;
        };
        let now = gate::now();
        let arrival = now.checked_sub(waited).unwrap_or(now);
        let token = settings
            .classifier
            .place_token(request, arrival, retry_after);
        if let Some(token) = token {
            // Fails if the map can hold no more headers. The response is sent without it then.
            let _ = response.headers_mut().try_insert(X_TRIAGE_PLACE, token);
        }
    }
}

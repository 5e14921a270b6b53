//! The status of an endpoint, which is a snapshot of its live numbers.

use std::time::Duration;

use super::{EndpointRef, EngineLoad};
use crate::admit::AdaptiveLimit;

/// A snapshot of an endpoint's live numbers, as [`EndpointRef::status`] returns it.
///
/// With feature `serde` a status can be serialised, for example as JSON. Durations are then written as seconds.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EndpointStatus {
    /// The name of the endpoint.
    pub name: String,
    /// The priority number of the endpoint, from 0 to 100. Endpoints with a lower number are preferred.
    pub priority: u32,
    /// The number of requests that the endpoint serves at this moment.
    pub in_flight: u32,
    /// The number of requests that the endpoint may serve at a time.
    pub limit: u32,
    /// The settings by which measurements find the limit. They are left out if the limit is fixed.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub adaptive: Option<AdaptiveLimit>,
    /// `true` while the endpoint passes its checks and is not ejected because of failed requests.
    pub healthy: bool,
    /// `true` while the operator keeps new requests away from the endpoint.
    pub draining: bool,
    /// The average time until the head of a response arrives. It is zero if the endpoint has not responded lately.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "first_byte_seconds", serialize_with = "seconds")
    )]
    pub first_byte_latency: Duration,
    /// The average time until a response has ended. It is zero if the endpoint has not responded lately.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "total_seconds", serialize_with = "seconds")
    )]
    pub total_latency: Duration,
    /// The last load that the endpoint's engine reported. It is left out if the engine is not asked or did not answer.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub engine: Option<EngineLoad>,
}

impl EndpointRef {
    /// Returns the live numbers of the endpoint, all read in one call.
    ///
    /// ```
    /// use tower_triage::endpoints::{Endpoint, Endpoints, Registry};
    ///
    /// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"));
    /// let endpoints = Endpoints::new(Registry::new(vec![gpu])?);
    /// let status = endpoints.endpoints()[0].status();
    /// assert_eq!((status.in_flight, status.limit), (0, 4));
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> EndpointStatus {
        EndpointStatus {
            name: self.name().to_owned(),
            priority: self.priority(),
            in_flight: self.in_flight(),
            limit: self.limit(),
            adaptive: self.config().limit,
            healthy: self.healthy(),
            draining: self.draining(),
            first_byte_latency: self.first_byte_latency(),
            total_latency: self.total_latency(),
            engine: self.engine(),
        }
    }
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::endpoints::{Endpoint, Endpoints, Registry};

    #[test]
    fn a_status_is_written_with_durations_in_seconds() {
        let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1"));
        let endpoints = Endpoints::new(Registry::new(vec![gpu]).unwrap());
        let status = EndpointStatus {
            first_byte_latency: Duration::from_millis(250),
            ..endpoints.endpoints()[0].status()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            serde_json::json!({
                "name": "gpu-1",
                "priority": 1,
                "in_flight": 0,
                "limit": 4,
                "healthy": true,
                "draining": false,
                "first_byte_seconds": 0.25,
                "total_seconds": 0.0,
            })
        );
    }
}

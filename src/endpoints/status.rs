//! The status of an endpoint: its live numbers at one moment.

use std::time::Duration;

use super::{EndpointRef, EngineLoad};
use crate::admit::AdaptiveLimit;

/// An endpoint's live numbers at one moment. Made by [`EndpointRef::status`].
///
/// With feature `serde` it can be written as JSON or in another format, its durations as seconds.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Its name.
    pub name: String,
    /// Lower is preferred: 0 to 100.
    pub priority: u32,
    /// How many requests it serves.
    pub in_flight: u32,
    /// How many requests it may serve at a time.
    pub limit: u32,
    /// How the limit is found, if it adapts. Absent otherwise.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub adaptive: Option<AdaptiveLimit>,
    /// Whether neither its checks nor its failures keep requests away.
    pub healthy: bool,
    /// Whether the operator keeps new requests away.
    pub draining: bool,
    /// The average time until the head of a response is there; zero if there was none of late.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "first_byte_seconds", serialize_with = "seconds")
    )]
    pub first_byte_latency: Duration,
    /// The average time until a response has ended; zero if there was none of late.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "total_seconds", serialize_with = "seconds")
    )]
    pub total_latency: Duration,
    /// What its engine said last of its load, if it is asked and answered. Absent otherwise.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub engine: Option<EngineLoad>,
}

impl EndpointRef {
    /// Its live numbers, read together.
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

//! The configuration of an endpoint, with its URL, its number of slots and the models that it serves.

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "serde")]
use super::params;
use super::{EngineMetrics, HealthCheck, SetParams};
use crate::admit::AdaptiveLimit;
use crate::setters::setters;

/// A model that an endpoint serves, with the abilities that it has there.
///
/// ```
/// use tower_triage::endpoints::Model;
///
/// let model = Model::new("llava:13b").context_length(8192).vision(true);
/// assert_eq!(model.tools, Some(false));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Model {
    /// The name by which requests ask for the model, compared exactly.
    pub name: String,
    /// The number of tokens that the model takes. Default 4096. `None` if that is not known: prompts of any length reach the
    /// endpoint, which decides.
    #[cfg_attr(
        feature = "serde",
        serde(default = "default_context_length", deserialize_with = "above_zero")
    )]
    pub context_length: Option<u32>,
    /// `true` if the model takes images. Default `false`. `None` if that is not known: images reach the endpoint.
    #[cfg_attr(feature = "serde", serde(default = "no"))]
    pub vision: Option<bool>,
    /// `true` if the model calls tools. Default `false`. `None` if that is not known: tools reach the endpoint.
    #[cfg_attr(feature = "serde", serde(default = "no"))]
    pub tools: Option<bool>,
    /// `true` if the model can be held to JSON. Default `false`. `None` if that is not known: the endpoint decides.
    #[cfg_attr(feature = "serde", serde(default = "no"))]
    pub json_mode: Option<bool>,
    /// The name that the endpoint gets as `model` in JSON, in forms, and in queries of requests whose body names no model.
    /// Default `None`, for the model's own name.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "params::read::model_name")
    )]
    pub use_model_name: Option<String>,
    /// The parameters that the endpoint gets at the top level of a JSON body, over those of the client. Default: none. A parameter
    /// that the body has keeps its place, and all others are added at the end. A body that is not read stays as it is.
    #[cfg_attr(feature = "serde", serde(default))]
    pub set_params: SetParams,
    /// The names of parameters to remove from the top level of a JSON body, in upper or lower case, unless they are set. Default:
    /// none. `model` always stays.
    ///
    /// Without `tools` or `response_format`, requests with these fields need neither `tools` nor `json_mode`, unless another
    /// endpoint of the model has the capability.
    #[cfg_attr(
        feature = "serde",
        serde(default, deserialize_with = "params::read::stripped")
    )]
    pub strip_params: Vec<String>,
}

impl Model {
    /// Makes a model with a context of 4096 tokens that takes only text.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            context_length: default_context_length(),
            vision: no(),
            tools: no(),
            json_mode: no(),
            use_model_name: None,
            set_params: SetParams::default(),
            strip_params: Vec::new(),
        }
    }

    setters! {
        context_length: u32,
        vision: bool,
        tools: bool,
        json_mode: bool,
        set_params: SetParams,
    }

    /// Sets the name that the endpoint gets as `model`.
    #[must_use]
    pub fn use_model_name(mut self, name: impl Into<String>) -> Self {
        self.use_model_name = Some(name.into());
        self
    }

    /// Sets the names of parameters to remove from JSON bodies.
    #[must_use]
    pub fn strip_params<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.strip_params = names.into_iter().map(Into::into).collect();
        self
    }

    /// Returns `true` if requests for the model reach the endpoint with another body.
    #[inline]
    pub(crate) fn changes_bodies(&self) -> bool {
        self.use_model_name.is_some()
            || !self.set_params.is_empty()
            || !self.strip_params.is_empty()
    }
}

/// The configuration of a backend, with its URL, its number of slots and the models that it serves.
///
/// [`Registry::new`](super::Registry::new) checks the configuration before it is used.
///
/// ```
/// use tower_triage::endpoints::{Endpoint, Model};
///
/// let endpoint = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .max_concurrent(8)
///     .model(Model::new("llama3:8b"));
/// assert_eq!(endpoint.priority, 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(try_from = "super::max_concurrent::EndpointFile")
)]
#[non_exhaustive]
pub struct Endpoint {
    /// The name of the endpoint in logs, metrics and response headers, which must be unique.
    pub name: String,
    /// The base URL, which begins with `http://` or `https://`. Its path is put before the path of every request. A
    /// `/v1` at its end, as in the base URLs of SDKs, is left out where the path of a request begins with `/v1`.
    pub url: Uri,
    /// The priority number from 0 to 100, where a larger number counts as 100. Endpoints with a lower number are
    /// preferred. Default 1.
    pub priority: u32,
    /// The number of requests that the endpoint serves at a time, where more than 2²⁴ − 1 counts as that. With 0 it
    /// serves none: requests wait for it as for a busy endpoint, until it has slots or their wait ends. Default 4.
    pub max_concurrent: u32,
    /// The settings by which measurements find the number of slots, in place of `max_concurrent`. Default `None`.
    ///
    /// The router measures the time until the head of each response. A status of 429 or 503 counts as overload, and so
    /// does a missing response. The measurements and the limit survive a change of the configuration, as far as the new
    /// bounds allow. For an engine of language models, use [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd),
    /// because the latency of such an engine grows with its batch by design.
    ///
    /// In a configuration file, this is `max_concurrent = "auto"`, with or without a table `limit`.
    pub limit: Option<AdaptiveLimit>,
    /// `true` if the endpoint gets its requests over HTTP/2. Default `false`, so that it gets them over HTTP/1.1.
    ///
    /// All requests then share one connection, for which an `https://` endpoint has to agree to `h2` by ALPN. An `http://`
    /// endpoint has to take HTTP/2 from the first byte on ("prior knowledge"). Health checks use HTTP/2 as well, and
    /// websockets stay with HTTP/1.1.
    pub http2: bool,
    /// The models that the endpoint serves. Default: empty.
    pub models: Vec<Model>,
    /// The check of the endpoint's health, which `Forward::checks` runs. Default `None`, so that the endpoint counts as
    /// healthy until requests fail. It is not read from a configuration file.
    ///
    /// In a router, a new endpoint with a check gets one request at a time, while all others are busy, until the first
    /// result.
    pub health: Option<HealthCheck>,
    /// The place where the endpoint's engine reports its load, for a [`limit`](Self::limit) that adapts. Default `None`.
    /// It is not read from a configuration file.
    pub load: Option<EngineMetrics>,
    /// The headers that are added to each request. The field is private because each value is marked as sensitive.
    pub(crate) headers: HeaderMap,
    /// The link to the driver that starts the endpoint when requests wait for it, unless it runs by itself.
    pub(crate) on_demand: Option<super::on_demand::OnDemand>,
    /// `true` if streams of chats that wait for the endpoint's start show the load.
    pub(crate) shows_load: bool,
    /// `true` if an open websocket holds no slot.
    pub(crate) ignores_websockets: bool,
}

impl Endpoint {
    /// Makes an endpoint with priority 1, 4 slots and an empty list of models.
    #[must_use]
    pub fn new(name: impl Into<String>, url: Uri) -> Self {
        Self {
            name: name.into(),
            url,
            priority: 1,
            max_concurrent: 4,
            limit: None,
            http2: false,
            models: Vec::new(),
            health: None,
            load: None,
            headers: HeaderMap::new(),
            on_demand: None,
            shows_load: false,
            ignores_websockets: false,
        }
    }

    setters! {
        priority: u32,
        max_concurrent: u32,
        http2: bool,
        health: HealthCheck,
        load: EngineMetrics,
        ///
        /// ```
        /// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
        /// use tower_triage::endpoints::Endpoint;
        ///
        /// let aimd = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd).max(64);
        /// let vllm = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:8000")).limit(aimd);
        /// ```
        limit: AdaptiveLimit,
    }

    /// Returns `true` if the endpoint is started when requests wait for it.
    #[must_use]
    pub fn is_on_demand(&self) -> bool {
        self.on_demand.is_some()
    }

    /// Returns the number of slots that the endpoint has before the first measurement.
    pub(super) fn initial_slots(&self) -> u32 {
        let slots = self.limit.map(|limit| limit.initial_limit());
        slots.map_or(self.max_concurrent, |slots| {
            u32::try_from(slots).unwrap_or(u32::MAX)
        })
    }

    /// Adds a model that the endpoint serves.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.models.push(model);
        self
    }

    /// Adds a header to every request and health check of this endpoint, such as its API key. It replaces the client's
    /// header of that name, or an earlier value. Headers are not read from a configuration file.
    ///
    /// The value is marked as [sensitive](HeaderValue::set_sensitive), so that it is never shown.
    ///
    /// ```
    /// use http::{HeaderValue, Uri, header::AUTHORIZATION};
    /// use tower_triage::endpoints::Endpoint;
    ///
    /// # let key = "sk-1234";
    /// let endpoint = Endpoint::new("cloud", Uri::from_static("https://api.example.com"))
    ///     .header(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))?);
    /// assert!(!format!("{endpoint:?}").contains(key));
    /// # Ok::<_, http::header::InvalidHeaderValue>(())
    /// ```
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.insert(name, value);
        self
    }
}

fn default_context_length() -> Option<u32> {
    Some(4096)
}

/// Returns the default of a capability.
fn no() -> Option<bool> {
    Some(false)
}

/// Reads a number of tokens, which must be above 0.
#[cfg(feature = "serde")]
fn above_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let tokens = <std::num::NonZeroU32 as serde::Deserialize>::deserialize(deserializer)?;
    Ok(Some(tokens.into()))
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_reads_from_toml_with_defaults() {
        let read: Endpoint = toml::from_str(
            r#"
            name = "gpu-1"
            url = "http://127.0.0.1:9001/base"
            models = [{ name = "llava", vision = true }]
            "#,
        )
        .unwrap();
        let built = Endpoint::new("gpu-1", Uri::from_static("http://127.0.0.1:9001/base"))
            .model(Model::new("llava").vision(true));
        assert_eq!(read, built);
        assert_eq!(read.models[0].context_length, Some(4096));
    }

    #[test]
    fn max_concurrent_is_a_number_or_auto_with_a_limit() {
        let read = |slots: &str| {
            let text = format!("name = 'a'\nurl = 'http://a'\n{slots}");
            let endpoint = toml::from_str::<Endpoint>(&text).map_err(|error| error.to_string());
            endpoint.map(|endpoint| (endpoint.max_concurrent, endpoint.limit))
        };
        let limit = AdaptiveLimit::default();
        assert_eq!(read(""), Ok((4, None)));
        assert_eq!(read("max_concurrent = 8"), Ok((8, None)));
        assert_eq!(read("max_concurrent = 'auto'"), Ok((4, Some(limit))));
        assert_eq!(
            read("max_concurrent = 'auto'\nlimit = { max = 9 }"),
            Ok((4, Some(limit.max(9))))
        );
        for (slots, said) in [
            ("limit = { max = 9 }", "without `max_concurrent = \"auto\"`"),
            (
                "max_concurrent = 3\nlimit = { max = 9 }",
                "without `max_concurrent",
            ),
            ("max_concurrent = 'many'", "or \"auto\""),
            ("max_concurrent = -1", "or \"auto\""),
            ("max_concurrent = 'auto'\nlimit = { maks = 9 }", "maks"),
        ] {
            let error = read(slots).expect_err(slots);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_urls_are_refused_by_name() {
        let error = |text: &str| toml::from_str::<Endpoint>(text).unwrap_err().to_string();
        assert!(error("name = 'a'\nurl = 'http://x'\nslots = 3").contains("unknown field `slots`"));
        assert!(error("name = 'a'\nurl = 'http://a b'").contains("\"http://a b\" is not a URL"));
        assert!(
            error("name = 'a'\nurl = 'http://x'\nmodels = [{ name = 'm', eyes = true }]")
                .contains("unknown field `eyes`")
        );
    }
}

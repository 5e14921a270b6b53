//! The configuration of an endpoint: where it is, how many requests it takes, and what it can do.

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{EngineMetrics, HealthCheck};
use crate::admit::AdaptiveLimit;

/// A model that an endpoint serves, and what the endpoint can do with it.
///
/// ```
/// use tower_triage::endpoints::Model;
///
/// let model = Model::new("llava:13b").context_length(8192).vision(true);
/// assert!(!model.tools);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Model {
    /// The name by which requests ask for it, compared exactly.
    pub name: String,
    /// How many tokens it takes. Default 4096.
    #[cfg_attr(
        feature = "serde",
        serde(default = "default_context_length", deserialize_with = "above_zero")
    )]
    pub context_length: u32,
    /// Whether it takes images. Default `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub vision: bool,
    /// Whether it calls tools. Default `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub tools: bool,
    /// Whether it can be held to JSON. Default `false`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub json_mode: bool,
}

impl Model {
    /// A model with a context of 4096 tokens and no capabilities.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            context_length: default_context_length(),
            vision: false,
            tools: false,
            json_mode: false,
        }
    }

    /// How many tokens it takes.
    #[must_use]
    pub fn context_length(mut self, tokens: u32) -> Self {
        self.context_length = tokens;
        self
    }

    /// Whether it takes images.
    #[must_use]
    pub fn vision(mut self, yes: bool) -> Self {
        self.vision = yes;
        self
    }

    /// Whether it calls tools.
    #[must_use]
    pub fn tools(mut self, yes: bool) -> Self {
        self.tools = yes;
        self
    }

    /// Whether it can be held to JSON.
    #[must_use]
    pub fn json_mode(mut self, yes: bool) -> Self {
        self.json_mode = yes;
        self
    }
}

/// A backend: where it is, how many requests it takes at a time, and which models it serves.
///
/// [`Registry::new`](super::Registry::new) checks it.
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
    /// Its name in logs, metrics and response headers. Unique.
    pub name: String,
    /// Where it is: `http://` or `https://`. A path is put before that of every request.
    pub url: Uri,
    /// Lower is preferred: 0 to 100, and above counts as 100. Default 1.
    pub priority: u32,
    /// How many requests it serves at a time: at least 1, and above 2²⁴ − 1 counts as that. Default 4.
    pub max_concurrent: u32,
    /// Finds by measurement how many requests it serves at a time, in place of `max_concurrent`. Default: it does not.
    ///
    /// Measured is the time until the head of each response. A status of 429 or 503, and no response at all, count as
    /// overload; a request that is dropped before its response counts for nothing. What was measured survives a change
    /// of the configuration, and so does the limit, within the new bounds.
    ///
    /// For an engine of language models, use [`LimitAlgorithm::Aimd`](crate::admit::LimitAlgorithm::Aimd): its latency
    /// grows with the batch by design.
    ///
    /// In a configuration file: `max_concurrent = "auto"`, with or without a table `limit`.
    pub limit: Option<AdaptiveLimit>,
    /// What it serves. Default: nothing.
    pub models: Vec<Model>,
    /// How its health is checked. Default: not at all, and it counts as healthy until requests fail.
    ///
    /// A router gives a new endpoint one request at a time until it has answered one or passed a check. One that has a
    /// check gets them only while no other endpoint that could serve them has a slot free.
    ///
    /// `Forward::checks` makes the checks. Not read from a configuration file.
    pub health: Option<HealthCheck>,
    /// Where its engine reports its load, for a [`limit`](Self::limit) that adapts. Default: nowhere. Not read from a
    /// configuration file.
    pub load: Option<EngineMetrics>,
    /// The headers of requests to it. Not public, because each value has to be marked as sensitive.
    pub(crate) headers: HeaderMap,
    /// What starts it when requests wait for it. `None`: it runs by itself.
    #[cfg(feature = "swap")]
    pub(crate) on_demand: Option<super::on_demand::OnDemand>,
}

impl Endpoint {
    /// An endpoint of priority 1 with 4 slots that serves no model yet.
    #[must_use]
    pub fn new(name: impl Into<String>, url: Uri) -> Self {
        Self {
            name: name.into(),
            url,
            priority: default_priority(),
            max_concurrent: default_max_concurrent(),
            limit: None,
            models: Vec::new(),
            health: None,
            load: None,
            headers: HeaderMap::new(),
            #[cfg(feature = "swap")]
            on_demand: None,
        }
    }

    /// Lower is preferred: 0 to 100, and above counts as 100.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// How many requests it serves at a time, at least 1.
    #[must_use]
    pub fn max_concurrent(mut self, slots: u32) -> Self {
        self.max_concurrent = slots;
        self
    }

    /// Finds by measurement how many requests it serves at a time.
    ///
    /// ```
    /// use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
    /// use tower_triage::endpoints::Endpoint;
    ///
    /// let aimd = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd).max(64);
    /// let vllm = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:8000")).limit(aimd);
    /// ```
    #[must_use]
    pub fn limit(mut self, limit: AdaptiveLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether it is started when requests wait for it.
    pub(crate) fn is_on_demand(&self) -> bool {
        #[cfg(feature = "swap")]
        return self.on_demand.is_some();
        #[cfg(not(feature = "swap"))]
        false
    }

    /// How many requests it serves at a time before anything is measured.
    pub(super) fn initial_slots(&self) -> u32 {
        let slots = self.limit.map(|limit| limit.initial_limit());
        slots.map_or(self.max_concurrent, |slots| {
            u32::try_from(slots).unwrap_or(u32::MAX)
        })
    }

    /// One more model that it serves.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.models.push(model);
        self
    }

    /// How its health is checked.
    #[must_use]
    pub fn health(mut self, check: HealthCheck) -> Self {
        self.health = Some(check);
        self
    }

    /// Where its engine reports its load.
    #[must_use]
    pub fn load(mut self, metrics: EngineMetrics) -> Self {
        self.load = Some(metrics);
        self
    }

    /// A header that every request to it carries, in place of the client's of that name: its API key.
    ///
    /// `Forward` sends it to this endpoint and to no other, with health checks, too. The value is marked
    /// [sensitive](HeaderValue::set_sensitive), so that it is never shown. A second value of the same name replaces the
    /// first. Headers are not read from a configuration file.
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

fn default_context_length() -> u32 {
    4096
}

pub(super) fn default_priority() -> u32 {
    1
}

fn default_max_concurrent() -> u32 {
    4
}

#[cfg(feature = "serde")]
pub(super) fn uri<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    // A `Uri` is parsed without it.
    if text.contains('#') {
        let message = "the URL must not contain a fragment";
        return Err(serde::de::Error::custom(message));
    }
    text.parse()
        .map_err(|error| serde::de::Error::custom(format_args!("{text:?} is not a URL: {error}")))
}

/// Reads a number of tokens.
#[cfg(feature = "serde")]
fn above_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    std::num::NonZeroU32::deserialize(deserializer).map(std::num::NonZeroU32::get)
}

#[cfg(feature = "serde")]
use serde::Deserialize as _;

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
        assert_eq!(read.models[0].context_length, 4096);
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

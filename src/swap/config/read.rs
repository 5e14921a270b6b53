//! The file format of a [`SwapConfig`]. Tables keep their order if the format's deserializer keeps it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use http::Uri;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{AbandonedLoad, LoadingState, StopSignal, SwapConfig, SwapModel, SwapPolicy};
use crate::endpoints::{SetParams, params};
use crate::short_number::Short;
use crate::swap::swapper::{Group, MatrixConfig};

/// The section of the file, before it becomes a [`SwapConfig`].
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwapFile {
    models: Option<Pairs<ModelFile>>,
    memory: Option<f64>,
    pools: Option<Pairs<f64>>,
    groups: Option<Pairs<Group>>,
    matrix: Option<MatrixConfig>,
    swap_after_seconds: Option<SecondsKey>,
    min_loaded_seconds: Option<SecondsKey>,
    #[serde(default)]
    abandoned_load: AbandonedLoad,
    health_timeout_seconds: Option<SecondsKey>,
    #[serde(default)]
    loading_state: LoadingState,
    default: Option<String>,
}

impl TryFrom<SwapFile> for SwapConfig {
    type Error = String;

    fn try_from(file: SwapFile) -> Result<Self, String> {
        let policies = [
            ("memory", file.memory.map(SwapPolicy::one_pool)),
            ("pools", file.pools.map(|it| SwapPolicy::Memory(it.0))),
            ("groups", file.groups.map(|it| SwapPolicy::Groups(it.0))),
            ("matrix", file.matrix.map(SwapPolicy::Matrix)),
        ];
        let mut given = policies
            .into_iter()
            .filter_map(|(key, policy)| Some((key, policy?)));
        let policy = given.next();
        if let (Some((first, _)), Some((second, _))) = (&policy, given.next()) {
            return Err(format!("`{first}` and `{second}` exclude each other"));
        }
        let models = file.models.into_iter().flat_map(|it| it.0);
        let mut config = Self {
            models: models.map(|(name, model)| model.named(name)).collect(),
            abandoned_load: file.abandoned_load,
            loading_state: file.loading_state,
            default: file.default,
            ..Self::default()
        };
        set(&mut config.policy, policy.map(|(_, policy)| policy));
        set(&mut config.swap_after, file.swap_after_seconds);
        set(&mut config.min_loaded, file.min_loaded_seconds);
        set(&mut config.health_timeout, file.health_timeout_seconds);
        Ok(config)
    }
}

/// A model in the file, without its name.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    cmd: String,
    #[serde(default, deserialize_with = "proxy")]
    proxy: Option<Uri>,
    #[serde(default, deserialize_with = "params::read::model_name")]
    use_model_name: Option<String>,
    #[serde(default)]
    set_params: SetParams,
    #[serde(default, deserialize_with = "params::read::stripped")]
    strip_params: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    context_length: Option<u32>,
    vision: Option<bool>,
    tools: Option<bool>,
    json_mode: Option<bool>,
    memory: Option<f64>,
    evict_cost: Option<u64>,
    concurrency: Option<u32>,
    instances: Option<u32>,
    health_path: Option<String>,
    health_interval_seconds: Option<SecondsKey>,
    hang_seconds: Option<SecondsKey>,
    ttl_seconds: Option<SecondsKey>,
    pinned: Option<bool>,
    preload: Option<bool>,
    stop_cmd: Option<String>,
    stop_signal: Option<StopSignal>,
    stop_grace_seconds: Option<SecondsKey>,
    settle_seconds: Option<SecondsKey>,
    start_timeout_seconds: Option<SecondsKey>,
    loading_state: Option<LoadingState>,
    progress_path: Option<String>,
    sleep_path: Option<String>,
    wake_path: Option<String>,
    ignore_paths: Option<Vec<String>>,
    ignore_websockets: Option<bool>,
}

impl ModelFile {
    fn named(self, name: String) -> SwapModel {
        let mut all = SwapModel::new(name, self.cmd);
        all.model.context_length = self.context_length;
        all.model.vision = self.vision;
        all.model.tools = self.tools;
        all.model.json_mode = self.json_mode;
        set(&mut all.evict_cost, self.evict_cost);
        set(&mut all.concurrency, self.concurrency);
        set(&mut all.instances, self.instances);
        all.model.use_model_name = self.use_model_name;
        all.model.set_params = self.set_params;
        all.model.strip_params = self.strip_params;
        let health_path = self
            .health_path
            .map(|path| (path != "none").then_some(path));
        set(&mut all.health_path, health_path);
        set(&mut all.health_interval, self.health_interval_seconds);
        set(&mut all.hang_timeout, self.hang_seconds);
        set(&mut all.ttl, self.ttl_seconds);
        set(&mut all.pinned, self.pinned);
        set(&mut all.preload, self.preload);
        set(&mut all.stop_signal, self.stop_signal);
        set(&mut all.stop_grace, self.stop_grace_seconds);
        set(&mut all.settle, self.settle_seconds);
        set(&mut all.ignore_paths, self.ignore_paths);
        set(&mut all.ignore_websockets, self.ignore_websockets);
        SwapModel {
            proxy: self.proxy,
            env: self.env,
            memory: self.memory,
            stop_cmd: self.stop_cmd,
            start_timeout: self.start_timeout_seconds.map(Duration::from),
            loading_state: self.loading_state,
            progress_path: self.progress_path,
            sleep_path: self.sleep_path,
            wake_path: self.wake_path,
            ..all
        }
    }
}

/// Sets a field if the file has its key.
fn set<T>(field: &mut T, value: Option<impl Into<T>>) {
    if let Some(value) = value {
        *field = value.into();
    }
}

/// Reads a URL.
fn proxy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uri>, D::Error> {
    let text = String::deserialize(from)?;
    let url = text.parse();
    url.map(Some).map_err(|_| {
        D::Error::custom("it is not a URL: it must be one such as `http://127.0.0.1:5801`")
    })
}

/// A number of seconds, whole or with a fraction.
struct SecondsKey(Duration);

impl From<SecondsKey> for Duration {
    fn from(SecondsKey(duration): SecondsKey) -> Self {
        duration
    }
}

/// Reads 0 seconds as `None`, which switches the key off.
impl From<SecondsKey> for Option<Duration> {
    fn from(SecondsKey(duration): SecondsKey) -> Self {
        Some(duration).filter(|duration| !duration.is_zero())
    }
}

impl<'de> Deserialize<'de> for SecondsKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        match Duration::try_from_secs_f64(seconds) {
            Ok(duration) => Ok(Self(duration)),
            Err(_) => Err(D::Error::custom(format_args!(
                "{} must be a number of seconds from 0",
                Short(seconds)
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for StopSignal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        match name.strip_prefix("SIG").unwrap_or(&name) {
            "TERM" => Ok(Self::Term),
            "INT" => Ok(Self::Int),
            "QUIT" => Ok(Self::Quit),
            "HUP" => Ok(Self::Hup),
            "KILL" => Ok(Self::Kill),
            _ => Err(D::Error::custom(format_args!(
                "{name:?} must be one of \"TERM\", \"INT\", \"QUIT\", \"HUP\", \"KILL\""
            ))),
        }
    }
}

/// A table in the order of the file.
struct Pairs<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(Entries(PhantomData))
    }
}

/// Deserializes a table, and keeps its order.
pub(in crate::swap) fn pairs<'de, T, D>(from: D) -> Result<Vec<(String, T)>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Pairs::deserialize(from)?.0)
}

#[cfg(all(test, not(loom)))]
mod tests;

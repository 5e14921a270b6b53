//! The changes to a request's body, and to the model in its query, that the configuration of its model and its alias ask for.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

use super::request_body::BufferedBody;
use crate::endpoints::{Alias, Decision, Model, RoutingConfig, Via};
use crate::openai::Edits;

/// The changes to the body of a request for one endpoint.
pub(super) struct Rewrite<'a> {
    /// The model that serves the request, as the endpoint lists it. `None` for an endpoint that serves any model.
    model: Option<&'a Model>,
    decision: &'a Decision,
    /// The routing, if the request may have asked by an alias.
    routing: Option<Arc<RoutingConfig>>,
}

/// The characters that are encoded in a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Decodes a value of a query.
fn decoded(value: &str) -> String {
    let spaced = value.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8_lossy();
    decoded.into_owned()
}

/// Returns the models that a query names, however the field's name is written.
pub(super) fn models_in_query(query: &str) -> impl Iterator<Item = String> {
    let pairs = query.split(['&', ';']);
    pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = decoded(name);
        let base = name.split('[').next().unwrap_or_default().trim();
        base.eq_ignore_ascii_case("model").then(|| decoded(value))
    })
}

impl<'a> Rewrite<'a> {
    /// Returns the changes that a decision asks for, or `None` if the body goes on as it is. `routing` is called only for a
    /// request that is served by another name than its own.
    #[inline]
    pub(super) fn new(
        decision: &'a Decision,
        routing: impl FnOnce() -> Arc<RoutingConfig>,
    ) -> Option<Self> {
        let models = &decision.endpoint.config().models;
        let model = models.get(usize::from(decision.nth_model));
        let is_renamed = decision.via != Via::Direct;
        if !is_renamed && model.is_none_or(|model| !model.changes_bodies()) {
            return None;
        }
        Some(Self {
            model,
            decision,
            routing: is_renamed.then(routing),
        })
    }

    /// Returns the name that the endpoint gets in place of the one that the request has.
    pub(super) fn model_name(&self) -> &str {
        // An alias knows the names at its own model's endpoints.
        let alias = self.alias().filter(|_| self.decision.via == Via::Alias);
        let of_alias = alias.and_then(|alias| alias.use_model_name.as_deref());
        let of_model = || self.model?.use_model_name.as_deref();
        of_alias.or_else(of_model).unwrap_or(&self.decision.model)
    }

    /// Puts the name that the endpoint gets in place of the one that was asked for, if a query names that as its `model`.
    pub(super) fn rename_in_query(&self, uri: &mut Uri) {
        let Some(query) = uri.query() else { return };
        let is_asked = |pair: &&str| {
            let name = pair.strip_prefix("model=");
            name.is_some_and(|name| decoded(name) == *self.decision.asked)
        };
        let named = || utf8_percent_encode(self.model_name(), ENCODED);
        let pairs = query.split('&').map(|pair| match is_asked(&pair) {
            true => format!("model={}", named()).into(),
            false => Cow::Borrowed(pair),
        });
        let query = pairs.collect::<Vec<_>>().join("&");
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = format!("{}?{query}", uri.path()).try_into().ok();
        // A query stays valid with a name in which all special characters are encoded.
        if let Ok(renamed) = Uri::from_parts(parts) {
            *uri = renamed;
        }
    }

    /// Returns a body in JSON with its parameters set and removed, or `None` if its name is all that changes.
    pub(super) fn with_params(&self, body: &BufferedBody) -> Option<Bytes> {
        let edits = self.edits()?;
        if body.is_form || body.bytes.is_empty() {
            return None;
        }
        let edited = edits.apply(std::str::from_utf8(&body.bytes).ok()?)?;
        Some(edited.into())
    }

    /// Returns the edits of the parameters and the name, unless no parameter changes.
    fn edits(&self) -> Option<Edits<'_>> {
        let (alias, model) = (self.alias(), self.model);
        let of_alias = alias.map(|alias| (&alias.set_params, &alias.strip_params));
        let of_model = model.map(|model| (&model.set_params, &model.strip_params));
        let mut edits = Edits::default();
        // The alias first, because the first value of a parameter counts.
        for (set, strip) in of_alias.into_iter().chain(of_model) {
            let set = set.iter().map(|(name, json)| (name, Cow::Borrowed(json)));
            edits.set.extend(set);
            edits.strip.extend(strip.iter().map(String::as_str));
        }
        if edits.set.is_empty() && edits.strip.is_empty() {
            return None;
        }
        edits.strip.retain(|name| *name != "model");
        let name = Value::from(self.model_name()).to_string(); // quoted and escaped
        edits.set.push(("model", name.into()));
        Some(edits)
    }

    fn alias(&self) -> Option<&Alias> {
        self.routing.as_ref()?.aliases.get(&*self.decision.asked)
    }
}

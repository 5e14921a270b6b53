//! Lanes, which group demands that the same endpoints can serve, and the capabilities that demands need.

use std::sync::Arc;

use bitflags::bitflags;

use super::endpoint_ref::{EndpointId, EndpointState};

/// The properties that demands share if the same endpoints can serve them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    pub(super) name: Arc<str>,
    pub(super) needs: Capabilities,
    /// The shortest sufficient context among the endpoints of the name. Demands share a lane although one of them needs
    /// a few tokens more.
    pub(super) context_length: u32,
    /// `true` if only the name itself and the target of its alias may serve the demand.
    pub(super) without_fallbacks: bool,
    /// The endpoints at which a retried request has failed, which may not serve it again.
    pub(super) failed_at: Option<Arc<[EndpointId]>>,
    /// The endpoints that refused the request a moment ago. They count as busy, so the request waits for them without
    /// getting a slot there.
    pub(super) refused_by: Option<Arc<[EndpointId]>>,
}

impl Lane {
    /// Returns `true` if a retried request has failed at `endpoint` before.
    #[inline]
    pub(super) fn excludes(&self, endpoint: &EndpointState) -> bool {
        let failed_at = self.failed_at.as_deref();
        failed_at.is_some_and(|failed_at| failed_at.contains(&endpoint.cold.id))
    }

    /// Returns `true` if `endpoint` refused the request a moment ago.
    #[inline]
    pub(super) fn avoids(&self, endpoint: &EndpointState) -> bool {
        let refused_by = self.refused_by.as_deref();
        refused_by.is_some_and(|refused_by| refused_by.contains(&endpoint.cold.id))
    }

    /// Returns the number of endpoints at which the request has failed.
    pub(super) fn failures(&self) -> u32 {
        self.failed_at.as_deref().unwrap_or_default().len() as u32
    }
}

bitflags! {
    /// A set of capabilities that a request may need of an endpoint, beyond the model itself.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) struct Capabilities: u8 {
        const VISION = 1;
        const TOOLS = 1 << 1;
        const JSON_MODE = 1 << 2;
        const CONTEXT_LENGTH = 1 << 3;
    }
}

impl Capabilities {
    pub(super) fn of(vision: bool, tools: bool, json_mode: bool) -> Self {
        let mut capabilities = Self::empty();
        capabilities.set(Self::VISION, vision);
        capabilities.set(Self::TOOLS, tools);
        capabilities.set(Self::JSON_MODE, json_mode);
        capabilities
    }

    /// Returns the capabilities that these fields of a body ask for.
    pub(super) fn of_fields(names: &[String]) -> Self {
        let has = |field| names.iter().any(|name| name.eq_ignore_ascii_case(field));
        Self::of(false, has("tools"), has("response_format"))
    }

    /// Returns the names of the capabilities as a rejection lists them.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (Self::VISION, "vision"),
            (Self::TOOLS, "tools"),
            (Self::JSON_MODE, "json_mode"),
            (Self::CONTEXT_LENGTH, "context_length"),
        ];
        let lacking = names
            .into_iter()
            .filter(move |&(one, _)| self.contains(one));
        lacking.map(|(_, name)| name)
    }
}

//! The requests that are being served, and the last refusals, for the operator's page.

/// A registry of the requests that are being served. This one stays empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {}

/// A request that is being served.
#[derive(Debug, Clone)]
#[allow(dead_code)]
pub(crate) struct LiveRequest {
    pub(crate) id: String,
    pub(crate) age_ms: u64,
    pub(crate) level: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// `reading`, `waiting`, `running` or `streaming`.
    pub(crate) phase: &'static str,
    pub(crate) wait_ms: u64,
    pub(crate) first_byte_ms: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) tokens: Option<u64>,
    pub(crate) tries: u32,
}

/// A request that was refused.
#[derive(Debug, Clone)]
#[allow(dead_code)]
pub(crate) struct Refusal {
    /// The time in seconds since 1970.
    pub(crate) at: u64,
    pub(crate) id: String,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) level: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
}

#[allow(dead_code)]
impl Live {
    /// Returns the requests that are being served, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<LiveRequest> {
        Vec::new()
    }

    /// Returns the last refusals, newest first.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        Vec::new()
    }

    /// Cancels the request `id`. Returns `true` if it was being served.
    pub(crate) fn cancel(&self, _id: &str) -> bool {
        false
    }
}

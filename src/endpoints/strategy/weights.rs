//! What `smart` weighs.

/// What `smart` weighs, in shares of 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Weights {
    /// The endpoint's priority number. Default 50.
    pub priority: u32,
    /// How many requests it has in flight. Default 30.
    pub load: u32,
    /// How long it takes to answer. Default 20.
    pub latency: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            priority: 50,
            load: 30,
            latency: 20,
        }
    }
}

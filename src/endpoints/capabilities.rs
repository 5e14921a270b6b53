//! The set of capabilities that a request may need of an endpoint.

use bitflags::bitflags;

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

    /// Returns the names of the capabilities as a rejection lists them.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (Self::VISION, "vision"),
            (Self::TOOLS, "tools"),
            (Self::JSON_MODE, "json_mode"),
            (Self::CONTEXT_LENGTH, "context_length"),
        ];
        let names = names.into_iter();
        names
            .filter(move |&(one, _)| self.contains(one))
            .map(|(_, name)| name)
    }
}

//! With a flag compared here and forgotten there, an image goes to a model without eyes. A set is
//! compared as a whole.

/// What a request may need of an endpoint beyond the model itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Capabilities(u8);

impl Capabilities {
    pub(super) const NONE: Self = Self(0);
    pub(super) const VISION: Self = Self(1);
    pub(super) const TOOLS: Self = Self(1 << 1);
    pub(super) const JSON_MODE: Self = Self(1 << 2);
    pub(super) const CONTEXT_LENGTH: Self = Self(1 << 3);

    const NAMED: [(Self, &str); 4] = [
        (Self::VISION, "vision"),
        (Self::TOOLS, "tools"),
        (Self::JSON_MODE, "json_mode"),
        (Self::CONTEXT_LENGTH, "context_length"),
    ];

    pub(super) fn with(self, other: Self, yes: bool) -> Self {
        if yes { self.or(other) } else { self }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMED.into_iter();
        named
            .filter(move |&(one, _)| self.and(one) != Self::NONE)
            .map(|(_, name)| name)
    }
}

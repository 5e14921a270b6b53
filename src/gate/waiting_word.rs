//! The atomic word that says without the lock whether anything is waiting.

use bitflags::bitflags;

use crate::admit::WaitingRoomConfig;

bitflags! {
    /// What the word says beside the number of waiters. Each flag keeps arrivals off the fast path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Flags: u64 {
        /// The gate is closed.
        const CLOSED = 1 << 63;
        /// Slots come from the inner service's readiness, so every arrival goes through the lock.
        const FROM_INNER = 1 << 62;
        /// The waiting room is full, and its [`FullNotice`](super::fast_reject::FullNotice) is valid.
        const FULL = 1 << 61;
        /// Slots are kept for some levels, so every arrival goes through the lock, where its ticket is read.
        const RESERVES = 1 << 60;
        /// Tenants have a limit, so every arrival goes through the lock, likewise.
        const TENANT_LIMIT = 1 << 59;
    }
}

impl Flags {
    /// Returns the flags of an open gate with this configuration.
    pub(crate) fn of(config: &WaitingRoomConfig) -> Self {
        let mut flags = Self::empty();
        flags.set(Self::RESERVES, !config.reserve.is_empty());
        let has_limit = config.max_concurrent_per_tenant.is_some();
        flags.set(Self::TENANT_LIMIT, has_limit);
        flags
    }
}

/// How many requests wait, and the [`Flags`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingWord(pub(crate) u64);

impl WaitingWord {
    pub(crate) fn new(waiting: usize, flags: Flags) -> Self {
        Self(waiting as u64 | flags.bits())
    }

    pub(crate) fn has(self, flag: Flags) -> bool {
        self.0 & flag.bits() != 0 // the count is below every flag
    }

    /// Whether no request waits and no flag is set: arrivals and releases need no lock.
    pub(crate) fn is_clear(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn waiting(self) -> usize {
        (self.0 & !Flags::all().bits()) as usize // fits: it was a `usize`
    }
}

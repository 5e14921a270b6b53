//! The atomic word that tells the number of waiters without the lock.

use bitflags::bitflags;

use crate::admit::WaitingRoomConfig;

bitflags! {
    /// The flags beside the number of waiters. Each flag keeps arrivals off the fast path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Flags: u64 {
        /// Set once the gate is closed.
        const CLOSED = 1 << 63;
        /// Set if slots come from the inner service's readiness, so that every arrival goes through the lock.
        const FROM_INNER = 1 << 62;
        /// Set while the waiting room is full and its [`FullNotice`](super::fast_reject::FullNotice) is valid.
        const FULL = 1 << 61;
        /// Set while slots are reserved for some levels. Every arrival goes through the lock then, where its ticket is
        /// read.
        const RESERVES = 1 << 60;
        /// Set while the slots of any tenant are limited. Every arrival goes through the lock then, where its ticket is read.
        const TENANT_LIMIT = 1 << 59;
    }
}

impl Flags {
    /// Returns the flags of an open gate with this configuration.
    pub(crate) fn of(config: &WaitingRoomConfig) -> Self {
        let mut flags = Self::empty();
        flags.set(Self::RESERVES, !config.reserve.is_empty());
        flags.set(Self::TENANT_LIMIT, config.limits_slots());
        flags
    }
}

/// The number of waiting requests, and the [`Flags`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingWord(pub(crate) u64);

impl WaitingWord {
    pub(crate) fn new(waiting: usize, flags: Flags) -> Self {
        Self(waiting as u64 | flags.bits())
    }

    /// Returns `true` if the flag is set.
    pub(crate) fn has(self, flag: Flags) -> bool {
        self.0 & flag.bits() != 0 // the bits of the count are below every flag
    }

    /// Returns `true` if the room is empty and all flags are clear, so that arrivals and releases need no lock.
    pub(crate) fn is_clear(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(self) -> usize {
        (self.0 & !Flags::all().bits()) as usize // fits, because the count was a `usize`
    }
}

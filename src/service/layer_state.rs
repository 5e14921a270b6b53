//! The state that all services of one layer share.
//!
//! axum creates a service per route and per connection, and clones it per request. If each service had a state of its
//! own, the limit would apply to each of them separately.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use bitflags::bitflags;
use tokio_util::sync::CancellationToken;

use super::ResponseOptions;
use crate::admit::{Capacity, Discipline, Limiter, WaitingRoomConfig};
use crate::gate::Gate;
use crate::http::{HeaderClassifier, HoldLimits};
use crate::on_cancel::OnCancel;
use crate::queue::{Hold, InvalidQueueConfig, Overflow, QueueConfig, Streaming};

/// The gate of a layer, and its configuration.
#[derive(Debug)]
pub(crate) struct LayerState<C: Capacity> {
    pub(crate) gate: Gate<C>,
    settings: ArcSwap<Settings>,
    /// A lock that is held while the configuration is changed.
    changing: Mutex<()>,
    /// The bits of [`Prepare`], the parts of a call that `poll_ready` prepares.
    prepare: AtomicU8,
    /// The search for the number of slots, if the limit adapts.
    pub(crate) limiter: Mutex<Option<Limiter>>,
    /// The layer's token, with the registration that closes the gate when it is cancelled.
    shutdown: Mutex<Option<(CancellationToken, Option<OnCancel>)>>,
}

bitflags! {
    /// The needs of the call that follows `poll_ready`, beyond a slot. Nearly always empty.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Prepare: u8 {
        /// A reserved place in the waiting room.
        const RESERVATION = 1;
        /// A measurement, for a limit that adapts.
        const MEASUREMENT = 1 << 1;
        /// Limits on the time for which the request may hold its slot.
        const HOLD_LIMITS = 1 << 2;
        /// The request's tenant, which is charged for the time with a slot that was free.
        const TENANT = 1 << 3;
    }
}

/// The configuration, and the classifier that was created from it.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: QueueConfig,
    pub(crate) classifier: HeaderClassifier,
}

impl<C: Capacity> LayerState<C> {
    /// Creates the state of a layer. `gate` creates its gate from the waiting room's configuration.
    pub(crate) fn new(
        config: QueueConfig,
        gate: impl FnOnce(WaitingRoomConfig) -> Gate<C>,
    ) -> Result<Arc<Self>, InvalidQueueConfig> {
        config.validate()?;
        let limiter = config.concurrency.adaptive().map(Limiter::new);
        let settings = Settings::new(config)?;
        let gate = gate(settings.config.effective_room());
        gate.set_layer_bits(settings.options().bits());
        Ok(Arc::new(Self {
            gate,
            prepare: AtomicU8::new(settings.prepare().bits()),
            limiter: Mutex::new(limiter.transpose()?),
            settings: ArcSwap::from_pointee(settings),
            changing: Mutex::default(),
            shutdown: Mutex::default(),
        }))
    }

    /// Changes the configuration, unless it is invalid or `change_slots` fails. `change_slots` gets the old and the new
    /// one.
    pub(crate) fn reconfigure(
        &self,
        config: QueueConfig,
        change_slots: impl FnOnce(&QueueConfig, &QueueConfig) -> Result<(), InvalidQueueConfig>,
    ) -> Result<(), InvalidQueueConfig> {
        config.validate()?;
        let new = Settings::new(config)?;
        let room = new.config.effective_room();
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        change_slots(&self.settings.load().config, &new.config)?;
        // Relaxed, because each value is read on its own. A request may see the old value for a moment.
        self.gate.set_layer_bits(new.options().bits());
        self.prepare.store(new.prepare().bits(), Relaxed);
        // Stored before the waiters are woken, because a waiter may read the settings at once.
        self.settings.store(Arc::new(new));
        self.gate.reconfigure(room);
        Ok(())
    }

    #[inline]
    pub(crate) fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Returns the options for responses. They are bits of the gate, because a permit reads them without the settings.
    #[inline]
    pub(crate) fn options(&self) -> ResponseOptions {
        ResponseOptions::from_bits_retain(self.gate.layer_bits())
    }

    /// Returns `true` if no request may wait.
    #[cfg(feature = "route")]
    pub(crate) fn sheds(&self) -> bool {
        self.options().contains(ResponseOptions::SHED)
    }

    /// Returns `true` if `poll_ready` reserves a place in the waiting room.
    #[cfg(feature = "route")]
    #[inline]
    pub(crate) fn has_backpressure(&self) -> bool {
        self.prepare().contains(Prepare::RESERVATION)
    }

    /// Returns the parts of a call that `poll_ready` prepares.
    #[inline]
    pub(crate) fn prepare(&self) -> Prepare {
        Prepare::from_bits_retain(self.prepare.load(Relaxed)) // relaxed, because it is read on its own
    }

    /// Returns the limits on the time for which a request may hold its slot, if there are any.
    #[inline]
    pub(crate) fn hold_limits(&self) -> Option<HoldLimits> {
        match self.prepare().contains(Prepare::HOLD_LIMITS) {
            true => self.read_hold_limits(),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn read_hold_limits(&self) -> Option<HoldLimits> {
        self.settings().config.hold_limits()
    }

    /// Closes the gate inside the token's `cancel`, or at once if the token has been cancelled already.
    ///
    /// The token replaces the previous one, and does not keep the gate alive.
    pub(crate) fn close_on(self: &Arc<Self>, token: CancellationToken) {
        let state = Arc::downgrade(self);
        let registration = OnCancel::new(token.clone(), move || {
            if let Some(state) = state.upgrade() {
                state.gate.close();
            }
        });
        // The token was cancelled before, so the action has not run.
        if registration.is_none() {
            self.gate.close();
        }
        let mut shutdown = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = shutdown.replace((token, registration));
        drop(shutdown);
        drop(replaced); // after the lock was released
    }

    /// Returns the token that closes the gate, if there is one.
    pub(crate) fn shutdown_token(&self) -> Option<CancellationToken> {
        let shutdown = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        shutdown.as_ref().map(|(token, _)| token.clone())
    }
}

impl Settings {
    fn new(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        Ok(Self {
            classifier: config.classifier()?,
            config,
        })
    }

    fn options(&self) -> ResponseOptions {
        let mut options = ResponseOptions::empty();
        let hold = self.config.hold;
        options.set(ResponseOptions::HOLD_BODY, hold != Hold::Headers);
        options.set(
            ResponseOptions::EXCEPT_EVENTS,
            hold == Hold::ExceptEventStreams,
        );
        options.set(ResponseOptions::SERVER_TIMING, self.config.server_timing);
        options.set(
            ResponseOptions::SHED,
            self.config.overflow == Overflow::Shed,
        );
        options
    }

    fn prepare(&self) -> Prepare {
        let backpressure = self.config.overflow == Overflow::Backpressure;
        let mut prepare = Prepare::empty();
        prepare.set(Prepare::RESERVATION, backpressure);
        prepare.set(
            Prepare::MEASUREMENT,
            self.config.concurrency.adaptive().is_some(),
        );
        prepare.set(Prepare::HOLD_LIMITS, self.config.hold_limits().is_some());
        let is_fair = self.config.room.discipline == Discipline::Fair;
        prepare.set(Prepare::TENANT, is_fair);
        prepare
    }

    /// Returns the number of seconds for `retry-after`.
    #[inline]
    pub(crate) fn retry_after(&self, estimated_wait: Option<Duration>) -> u64 {
        let retry_after = &self.config.retry_after;
        retry_after.seconds(estimated_wait, fastrand::f64())
    }

    pub(crate) fn rejects_streams(&self) -> bool {
        self.config.streaming == Streaming::Reject
    }
}

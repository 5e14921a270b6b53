//! What all services of one layer share.
//!
//! axum makes a service per route and per connection, and clones it per request. State that a service made
//! for itself would be a limit of its own for each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Hold, InvalidQueueConfig, Overflow, QueueConfig, Streaming};
use crate::admission::Tail;
use crate::admit::Capacity;
use crate::gate::Gate;
use crate::http::HeaderClassifier;
use crate::on_cancel::OnCancel;

#[derive(Debug)]
pub(crate) struct Common<C: Capacity> {
    pub(crate) gate: Gate<C>,
    settings: RwLock<Arc<Settings>>,
    /// Held by the one who changes the configuration.
    changing: Mutex<()>,
    holds_body: AtomicBool,
    server_timing: AtomicBool,
    backpressure: AtomicBool,
    /// What closes the gate when the layer's token is cancelled.
    shutdown: Mutex<Option<OnCancel>>,
}

/// What a request is read and answered by, once it has to wait.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: QueueConfig,
    pub(crate) classifier: HeaderClassifier,
}

impl<C: Capacity> Common<C> {
    pub(crate) fn new(capacity: C, config: QueueConfig) -> Result<Arc<Self>, InvalidQueueConfig> {
        config.validate()?;
        let settings = Settings::new(config)?;
        Ok(Arc::new(Self {
            gate: Gate::new(capacity, settings.config.effective_room()),
            holds_body: AtomicBool::new(settings.config.hold == Hold::Body),
            server_timing: AtomicBool::new(settings.config.server_timing),
            backpressure: AtomicBool::new(settings.config.overflow == Overflow::Backpressure),
            settings: RwLock::new(Arc::new(settings)),
            changing: Mutex::default(),
            shutdown: Mutex::default(),
        }))
    }

    /// Changes the configuration, unless `slots`, which changes the slots, has something against it.
    pub(crate) fn reconfigure(
        &self,
        config: QueueConfig,
        slots: impl FnOnce(&QueueConfig, &QueueConfig) -> Result<(), InvalidQueueConfig>,
    ) -> Result<(), InvalidQueueConfig> {
        config.validate()?;
        let new = Settings::new(config)?;
        let room = new.config.effective_room();
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        slots(&self.settings().config, &new.config)?;
        self.holds_body
            .store(new.config.hold == Hold::Body, Ordering::Relaxed);
        self.server_timing
            .store(new.config.server_timing, Ordering::Relaxed);
        let backpressure = new.config.overflow == Overflow::Backpressure;
        self.backpressure.store(backpressure, Ordering::Relaxed);
        // Whoever is woken below may look at the settings at once.
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.gate.reconfigure(room);
        Ok(())
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// In how many seconds a client is told to come back.
    pub(crate) fn retry_after(&self, estimated_wait: Option<Duration>) -> u64 {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        let retry_after = &settings.config.retry_after;
        retry_after.seconds(estimated_wait, fastrand::f64())
    }

    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        Tail {
            hold: if self.holds_body.load(Ordering::Relaxed) {
                Hold::Body
            } else {
                Hold::Headers
            },
            server_timing: self.server_timing.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(crate) fn backpressure(&self) -> bool {
        self.backpressure.load(Ordering::Relaxed)
    }

    /// Closes the gate inside the token's `cancel`, or at once if that has been called already. The token takes the
    /// place of the one before, and does not keep the gate alive.
    pub(crate) fn close_on(self: &Arc<Self>, token: CancellationToken) {
        let common = Arc::downgrade(self);
        let registration = OnCancel::new(token, move || {
            if let Some(common) = common.upgrade() {
                common.gate.close();
            }
        });
        if registration.is_none() {
            self.gate.close();
        }
        let mut shutdown = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *shutdown, registration);
        drop(shutdown);
        drop(replaced);
    }
}

impl Settings {
    fn new(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        Ok(Self {
            classifier: config.classifier()?,
            config,
        })
    }

    pub(crate) fn rejects_streams(&self) -> bool {
        self.config.streaming == Streaming::Reject
    }
}

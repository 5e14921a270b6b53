//! How far the load of a model has come.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // a number for reports
use std::time::{Duration, Instant};

use crate::gate;

/// How far a load has come. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU32>);

impl Progress {
    /// Sets how far the load has come, from 0 to 1.
    pub fn set(&self, share: f32) {
        // In millionths, plus 1: 0 stands for unknown.
        self.0
            .store((share.clamp(0.0, 1.0) * 1e6) as u32 + 1, Relaxed);
    }

    /// How far the load has come, if that was told.
    #[must_use]
    pub fn get(&self) -> Option<f32> {
        let share = self.0.load(Relaxed).checked_sub(1)?;
        Some(share as f32 / 1e6)
    }
}

/// A load on its way.
#[derive(Debug, Clone)]
pub(crate) struct Loading {
    /// What its engine says.
    pub(crate) told: Progress,
    pub(crate) began: Instant,
    /// How long loads took so far, on average, if there were any.
    pub(crate) usual: Option<Duration>,
}

/// Of a load that takes longer than usual.
const NEARLY: f32 = 0.99;

impl Loading {
    /// How far it has come: what its engine says, or else by how long loads took so far.
    pub(crate) fn progress(&self) -> Option<f32> {
        let by_time = || {
            let took = gate::now().saturating_duration_since(self.began);
            let share = took.as_secs_f32() / self.usual?.as_secs_f32();
            Some(share.min(NEARLY)) // also if it is no number: loads that take no time
        };
        self.told.get().or_else(by_time)
    }
}

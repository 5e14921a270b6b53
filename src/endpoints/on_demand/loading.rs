//! The progress of a model's load.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // a number for reports
use std::time::{Duration, Instant};

use crate::gate;

/// The progress of a load. Clones refer to the same load.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU32>);

impl Progress {
    /// Sets the share of the load that is done, from 0 to 1.
    pub fn set(&self, share: f32) {
        // The value is stored in millionths plus 1, because 0 stands for unknown.
        self.0
            .store((share.clamp(0.0, 1.0) * 1e6) as u32 + 1, Relaxed);
    }

    /// Returns the share of the load that is done, if it was set.
    #[must_use]
    pub fn get(&self) -> Option<f32> {
        let share = self.0.load(Relaxed).checked_sub(1)?;
        Some(share as f32 / 1e6)
    }
}

/// A load that is under way.
#[derive(Debug, Clone)]
pub(crate) struct Loading {
    /// The progress that the engine reports.
    pub(crate) told: Progress,
    pub(crate) began: Instant,
    /// The average duration of earlier loads, if there were any.
    pub(crate) usual: Option<Duration>,
}

/// The share that a load shows if it takes longer than usual.
const NEARLY: f32 = 0.99;

impl Loading {
    /// Returns the share of the load that is done. If the engine does not report it, it is estimated by the duration of
    /// earlier loads.
    pub(crate) fn progress(&self) -> Option<f32> {
        let by_time = || {
            let took = gate::now().saturating_duration_since(self.began);
            let share = took.as_secs_f32() / self.usual?.as_secs_f32();
            Some(share.min(NEARLY)) // covers loads of duration 0, where the share is not a number
        };
        self.told.get().or_else(by_time)
    }
}

//! The progress of the load of a model.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed; // a number for reports
use std::time::{Duration, Instant};

use crate::gate;

/// The progress of a load, which all clones share.
#[derive(Debug, Clone, Default)]
pub struct LoadProgress(Arc<AtomicU32>);

impl LoadProgress {
    /// Sets the share of the load that is done, from 0 to 1.
    pub fn set(&self, share: f32) {
        // In millionths, plus 1: 0 stands for unknown.
        self.0
            .store((share.clamp(0.0, 1.0) * 1e6) as u32 + 1, Relaxed);
    }

    /// Returns the share of the load that is done, if it was [set](Self::set).
    #[must_use]
    pub fn get(&self) -> Option<f32> {
        let share = self.0.load(Relaxed).checked_sub(1)?;
        Some(share as f32 / 1e6)
    }
}

/// A load in progress, from which its share is reported or estimated.
#[derive(Debug, Clone)]
pub(crate) struct Loading {
    /// The progress that the engine reports.
    pub(crate) reported: LoadProgress,
    began: Instant,
    /// The mean time of the model's earlier loads, if there were any.
    usual: Option<Duration>,
}

/// The estimated progress of a load that takes longer than usual.
const NEARLY: f32 = 0.99;

impl Loading {
    /// Returns a load that begins now.
    pub(super) fn begin(usual: Option<Duration>) -> Self {
        Self {
            reported: LoadProgress::default(),
            began: gate::now(),
            usual,
        }
    }

    /// Returns the progress that the engine reports, or else an estimate by the time of earlier loads.
    pub(crate) fn progress(&self) -> Option<f32> {
        let by_time = || {
            let took = gate::now().saturating_duration_since(self.began);
            let share = took.as_secs_f32() / self.usual?.as_secs_f32();
            Some(share.min(NEARLY)) // also if `share` is NaN, because loads take no time
        };
        self.reported.get().or_else(by_time)
    }
}

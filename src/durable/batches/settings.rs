//! The settings of the files' and batches' API.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use tokio::sync::{Notify, Semaphore};

use super::super::Store;
use crate::rejection::Rejection;

type TenantOf = Arc<dyn Fn(&Parts) -> Vec<u8> + Send + Sync>;
type QueueOf = Arc<dyn Fn(&Request<Bytes>) -> Result<String, Rejection> + Send + Sync>;

/// OpenAI's files and batches over a [`Store`]: a Tower layer in front of a service, and a [task](Self::run) that drives
/// batches.
///
/// The layer answers `/v1/files` and `/v1/batches`; every other request goes to the inner service. Each line of a batch is
/// stored as a request of its own, which a worker runs when a slot is free, so a batch survives the process.
///
/// Clones share everything.
#[derive(Clone)]
pub struct BatchApi {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Arc<Settings>,
    /// Told of new and of cancelled batches.
    pub(super) changed: Arc<Notify>,
    /// The right to look through an input file: each look takes a core.
    pub(super) validations: Arc<Semaphore>,
    /// The right to have a response in memory, to write it into a file.
    pub(super) responses: Arc<Semaphore>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) level: u8,
    pub(super) file_limit: u64,
    pub(super) line_limit: usize,
    pub(super) retention: Duration,
    pub(super) tenant: TenantOf,
    pub(super) queue: QueueOf,
}

/// The number of input files that are looked through at a time.
const VALIDATIONS: usize = 4;
/// The number of responses that are written into files at a time: as many as one commit of a store takes with profit.
const RESPONSES: usize = 64;

impl BatchApi {
    /// Returns an API whose clients are all one tenant, and whose requests all belong to the empty queue.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let settings = Settings {
            level: 0,
            file_limit: 200 << 20,
            line_limit: 100 << 20,
            retention: Duration::from_secs(24 * 60 * 60),
            tenant: Arc::new(|_| Vec::new()),
            queue: Arc::new(|_| Ok(String::new())),
        };
        Self {
            store,
            settings: Arc::new(settings),
            changed: Arc::new(Notify::new()),
            validations: Arc::new(Semaphore::new(VALIDATIONS)),
            responses: Arc::new(Semaphore::new(RESPONSES)),
        }
    }

    /// Sets the index of the level at which the requests of batches wait: the lowest, so that they take the slots that all
    /// others leave. Default 0.
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.settings_mut().level = level;
        self
    }

    /// Sets the size of the largest file that a client may upload, in bytes. Default 200 MiB.
    #[must_use]
    pub fn file_limit(mut self, bytes: u64) -> Self {
        self.settings_mut().file_limit = bytes;
        self
    }

    /// Sets the length of the longest line of an input file, in bytes. Default 100 MiB.
    #[must_use]
    pub fn line_limit(mut self, bytes: usize) -> Self {
        self.settings_mut().line_limit = bytes;
        self
    }

    /// Sets the time for which an ended batch and its output files are kept. It has to be the store's
    /// [retention](super::super::StoreConfig::retention). Default 24 h.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings_mut().retention = retention;
        self
    }

    /// Sets how the tenant of a call is read: it sees only its own files and batches.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Fn(&Parts) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.settings_mut().tenant = Arc::new(tenant);
        self
    }

    /// Sets how the queue of a batch's request is found, such as the model that its body names.
    ///
    /// The request has the batch's endpoint as its path, and the headers of the call that created the batch. A rejection
    /// fails the whole batch if it comes while the input file is validated, and that request alone if it comes later.
    #[must_use]
    pub fn queue(
        mut self,
        queue: impl Fn(&Request<Bytes>) -> Result<String, Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.settings_mut().queue = Arc::new(queue);
        self
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl std::fmt::Debug for BatchApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchApi")
            .field("level", &self.settings.level)
            .field("file_limit", &self.settings.file_limit)
            .field("line_limit", &self.settings.line_limit)
            .field("retention", &self.settings.retention)
            .finish_non_exhaustive()
    }
}

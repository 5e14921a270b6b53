//! The settings of the API for files and batches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Uri};
use tokio::sync::{Notify, Semaphore};

use super::files::file_usage;
use tower_triage::rejection::Rejection;
use tower_triage_durable::webhooks::CheckWebhook;
use tower_triage_durable::{StorageQuota, Store};

type TenantOf = Arc<dyn Fn(&Parts) -> Vec<u8> + Send + Sync>;
type EndpointCheck = Arc<dyn Fn(&Parts, &str) -> bool + Send + Sync>;
type QueueOf = Arc<dyn Fn(&Request<Bytes>) -> Result<String, Rejection> + Send + Sync>;

/// OpenAI's API for files and batches over a [`Store`]. It is a Tower layer in front of a service, and a
/// [task](Self::run) that drives the batches.
///
/// The layer answers `/v1/files` and `/v1/batches`, and passes every other request to the inner service. Each line of a
/// batch is stored as a request of its own. A worker runs the request when a slot is free, so a batch survives the
/// process.
///
/// All clones share the same state.
#[derive(Clone)]
pub struct BatchApi {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Arc<Settings>,
    /// A signal that is sent for each new batch and each cancellation.
    pub(super) changed: Arc<Notify>,
    /// The permits to validate an input file. They are limited because each validation occupies a CPU core.
    pub(super) validations: Arc<Semaphore>,
    /// The permits to hold a response in memory while it is written to a file.
    pub(super) responses: Arc<Semaphore>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) level: u8,
    pub(super) file_limit: u64,
    pub(super) line_limit: usize,
    pub(super) retention: Duration,
    /// The time after which a file expires that says none itself.
    pub(super) file_retention: Option<Duration>,
    pub(super) quota: Option<StorageQuota>,
    pub(super) tenant: TenantOf,
    /// Returns `true` if the client of a call may send requests to an endpoint.
    pub(super) serves: EndpointCheck,
    pub(super) queue: QueueOf,
    /// A check of webhook addresses, or `None` if no webhook is sent.
    pub(super) check_webhook: Option<Arc<CheckWebhook>>,
}

/// The number of input files that are validated at a time.
const VALIDATIONS: usize = 4;
/// The number of responses that are written to files at a time. More of them would hardly make a commit of a store
/// cheaper.
const RESPONSES: usize = 64;

impl BatchApi {
    /// Returns an API that treats all clients as one tenant and puts all requests into the queue with the empty name.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let settings = Settings {
            level: 0,
            file_limit: 200 << 20,
            line_limit: 100 << 20,
            retention: Duration::from_secs(24 * 60 * 60),
            file_retention: None,
            quota: None,
            tenant: Arc::new(|_| Vec::new()),
            serves: Arc::new(|_, _| true),
            queue: Arc::new(|_| Ok(String::new())),
            check_webhook: None,
        };
        Self {
            store,
            settings: Arc::new(settings),
            changed: Arc::new(Notify::new()),
            validations: Arc::new(Semaphore::new(VALIDATIONS)),
            responses: Arc::new(Semaphore::new(RESPONSES)),
        }
    }

    /// Sets the index of the level at which the requests of batches wait. This should be the lowest level, so that
    /// batches use only the slots that other requests leave free. The default is 0.
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.settings_mut().level = level;
        self
    }

    /// Sets the maximum size of an uploaded file, in bytes. The default is 200 MiB.
    #[must_use]
    pub fn file_limit(mut self, bytes: u64) -> Self {
        self.settings_mut().file_limit = bytes;
        self
    }

    /// Sets the maximum length of a line of an input file, in bytes. The default is 100 MiB.
    #[must_use]
    pub fn line_limit(mut self, bytes: usize) -> Self {
        self.settings_mut().line_limit = bytes;
        self
    }

    /// Sets the time for which an ended batch and its output files are kept. It must equal the store's
    /// [retention](tower_triage_durable::StoreConfig::retention). The default is 24 h.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings_mut().retention = retention;
        self
    }

    /// Sets the time after which an uploaded file expires that has no `expires_after`. Without this setting, such a file is
    /// kept until it is deleted.
    #[must_use]
    pub fn file_retention(mut self, retention: Duration) -> Self {
        self.settings_mut().file_retention = Some(retention);
        self
    }

    /// Sets the limits on what each tenant may store. An upload beyond them gets 413 `tenant_storage_full` or
    /// `tenant_files_full`, and lines of batches wait until there is room.
    #[must_use]
    pub fn quota(mut self, quota: StorageQuota) -> Self {
        quota.count_files(|store, tenant| Box::pin(file_usage(store, tenant)));
        self.settings_mut().quota = Some(quota);
        self
    }

    /// Sets the function that reads the tenant of a call. A tenant sees only its own files and batches.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Fn(&Parts) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.settings_mut().tenant = Arc::new(tenant);
        self
    }

    /// Sets the function that decides on the `endpoint` of a new batch, from the head of the call that creates it. The
    /// creation of a batch for any other endpoint gets 400 `invalid_endpoint`. By default, each path of requests will do.
    #[must_use]
    pub fn serves(mut self, serves: impl Fn(&Parts, &str) -> bool + Send + Sync + 'static) -> Self {
        self.settings_mut().serves = Arc::new(serves);
        self
    }

    /// Sets the function that determines the queue of a request, for instance from the model that its body names.
    ///
    /// The request has the batch's endpoint as its path, and the headers of the call that created the batch. A
    /// rejection during the validation of the input file fails the whole batch. A later rejection fails only the
    /// request itself.
    #[must_use]
    pub fn queue(
        mut self,
        queue: impl Fn(&Request<Bytes>) -> Result<String, Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.settings_mut().queue = Arc::new(queue);
        self
    }

    /// Allows `Webhook-URL` at the creation of a batch, for the addresses that `check` accepts. A
    /// `WebhookSender` sends the object of the batch when that has ended. Without this
    /// setting, such a batch is rejected with 400 `webhook_not_allowed`.
    #[must_use]
    pub fn webhooks(
        mut self,
        check: impl Fn(&Uri) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.settings_mut().check_webhook = Some(Arc::new(check));
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

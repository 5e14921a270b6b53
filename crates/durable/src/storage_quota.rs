//! Limits on what each tenant may store, so that one of them can't fill the storage of all.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::{Store, StoreError, StoreFuture};
use tower_triage::rejection::Rejection;

/// The limits on what one tenant may store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageLimits {
    /// The largest number of bytes of files, stored requests and stored responses. `None` leaves it to
    /// [`shares`](Self::shares).
    pub bytes: Option<u64>,
    /// The largest number of files, or `None` for no limit.
    pub files: Option<u64>,
    /// Without a limit in `bytes`, `true` refuses what would make the tenant store more than half of what the storage has
    /// left for all others. So a single tenant fills at most a third of it, and some always remains. It is not more because
    /// a log-structured store may have new data twice for a while.
    pub shares: bool,
}

/// A check of the [`StorageLimits`] of tenants. Clones share what they know of the use.
///
/// It belongs to a [`DurableLayer`](super::DurableLayer), and to whatever else stores for tenants in the same store. It
/// looks up the use of a tenant at most once a second, and counts what is stored meanwhile through this process.
#[derive(Clone)]
pub struct StorageQuota(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    limits: Box<LimitsOf>,
    files: OnceLock<Box<FilesOf>>,
    tenants: Mutex<HashMap<Vec<u8>, Known>>,
    free: Mutex<Free>,
}

type LimitsOf = dyn Fn(&[u8]) -> StorageLimits + Send + Sync;
type FilesOf =
    dyn for<'a> Fn(&'a Arc<dyn Store>, &'a [u8]) -> StoreFuture<'a, FileUsage> + Send + Sync;

/// The files that a tenant stores beside its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileUsage {
    /// The bytes of all of them.
    pub bytes: u64,
    /// Their number.
    pub files: u64,
}

/// The bytes that the storage has left.
#[derive(Debug, Default)]
struct Free {
    /// The time and the result of the latest look-up.
    known: Option<(Instant, Option<u64>)>,
    /// The look-up that is under way.
    flight: Option<Flight<Option<u64>>>,
}

/// The use of a tenant.
#[derive(Debug, Clone)]
struct Known {
    /// The time of the latest look-up. `None` before the first one.
    at: Option<Instant>,
    /// The look-up that is under way.
    flight: Option<Flight<()>>,
    /// The bytes of files, requests and responses.
    bytes: u64,
    files: u64,
    /// The tenant's share of the storage in bytes, as of the latest look-up. `None` if it is unknown.
    share: Option<u64>,
    /// The bytes and the number of the files that are being uploaded through this process.
    uploaded: u64,
    uploads: u64,
}

/// The time between two look-ups of the use of a tenant.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The number of tenants whose use is remembered.
const REMEMBERED: usize = 10_000;

impl StorageQuota {
    /// Returns a check with these limits for each tenant of a store.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        limits: impl Fn(&[u8]) -> StorageLimits + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            limits: Box::new(limits),
            files: OnceLock::new(),
            tenants: Mutex::default(),
            free: Mutex::default(),
        }))
    }

    /// Sets the function that looks up the files of a tenant, which count towards its limits. Only the first call has an effect.
    /// Without it, tenants have no files. `BatchApi::quota` of `tower-triage-batches` calls it.
    pub fn count_files(
        &self,
        files: impl for<'a> Fn(&'a Arc<dyn Store>, &'a [u8]) -> StoreFuture<'a, FileUsage>
        + Send
        + Sync
        + 'static,
    ) {
        _ = self.0.files.set(Box::new(files));
    }

    /// Checks that a tenant may store a request of `bytes`, and counts them.
    ///
    /// # Errors
    ///
    /// Returns the rejection of a request that does not fit.
    pub(super) async fn take(&self, tenant: &[u8], bytes: u64) -> Result<(), QuotaError> {
        let Some(limits) = self.look_up(tenant).await? else {
            return Ok(());
        };
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.to_vec()).or_insert(Known::UNKNOWN);
        if let Some(limit) = known.exceeded(limits, bytes) {
            return Err(QuotaError::Full(requests_full(known.used(), limit)));
        }
        known.bytes += bytes;
        Ok(())
    }

    /// Returns `true` if a tenant may store `bytes` more.
    ///
    /// # Errors
    ///
    /// Returns an error if the use of the tenant could not be looked up.
    pub async fn has_room(&self, tenant: &[u8], bytes: u64) -> Result<bool, StoreError> {
        let Some(limits) = self.look_up(tenant).await? else {
            return Ok(true);
        };
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.to_vec()).or_insert(Known::UNKNOWN);
        Ok(known.exceeded(limits, bytes).is_none())
    }

    /// Begins the upload of a file, whose bytes count as they [come](FileUpload::grow).
    ///
    /// # Errors
    ///
    /// Returns an error if the tenant may not store one more file, or stores as many bytes as it may.
    pub async fn upload(&self, tenant: &[u8]) -> Result<FileUpload, QuotaError> {
        let limits = self.look_up(tenant).await?.unwrap_or_default();
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.to_vec()).or_insert(Known::UNKNOWN);
        let files = known.files + known.uploads;
        if let Some(limit) = limits.files
            && files >= limit
        {
            return Err(QuotaError::Full(files_full(files, limit)));
        }
        known.uploads += 1;
        drop(tenants);
        let mut upload = FileUpload {
            quota: self.clone(),
            tenant: tenant.to_vec(),
            limits,
            bytes: 0,
            is_kept: false,
        };
        upload.grow(0)?;
        Ok(upload)
    }

    /// Looks the use of a tenant up, unless that was done lately. Returns the limits, or `None` if there are none.
    async fn look_up(&self, tenant: &[u8]) -> Result<Option<StorageLimits>, StoreError> {
        let limits = (self.0.limits)(tenant);
        if limits == StorageLimits::default() {
            return Ok(None);
        }
        let known = self.tenants().get(tenant).and_then(|known| known.at);
        if known.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return Ok(Some(limits));
        }
        let free = match limits.bytes {
            Some(_) => None,
            None if limits.shares => self.free_bytes().await?,
            None => None,
        };
        if (limits.bytes, limits.files, free) == (None, None, None) {
            return Ok(None);
        }
        let flight = flight(&mut self.tenants(), tenant);
        let looked_up = fly(&flight, self.look(tenant, free)).await;
        if let Some(known) = self.tenants().get_mut(tenant)
            && is_same(known.flight.as_ref(), &flight)
        {
            known.flight = None;
            known.at = looked_up.is_ok().then(Instant::now);
        }
        looked_up.map(|()| Some(limits))
    }

    /// Looks the use of a tenant up.
    async fn look(&self, tenant: &[u8], free: Option<u64>) -> Result<(), StoreError> {
        let FileUsage { bytes, files } = match self.0.files.get() {
            Some(files) => files(&self.0.store, tenant).await?,
            None => FileUsage::default(),
        };
        let requests = self.0.store.stored_bytes(tenant).await?;
        let mut tenants = self.tenants();
        let known = tenants.entry(tenant.to_vec()).or_insert(Known::UNKNOWN);
        (known.bytes, known.files) = (bytes + requests, files);
        known.share = free.map(|free| share(free, known.bytes));
        Ok(())
    }

    /// Returns the bytes that the storage has left. They are looked up at most once a second, for all tenants together.
    async fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        let flight = {
            let mut free = lock(&self.0.free);
            if let Some((at, free)) = free.known
                && at.elapsed() < LOOK_AGAIN
            {
                return Ok(free);
            }
            Arc::clone(free.flight.get_or_insert_default())
        };
        let looked_up = fly(&flight, self.0.store.free_bytes()).await;
        let mut free = lock(&self.0.free);
        if is_same(free.flight.as_ref(), &flight) {
            free.flight = None;
            free.known = looked_up.clone().ok().map(|free| (Instant::now(), free));
        }
        looked_up
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Known>> {
        lock(&self.0.tenants)
    }

    /// Forgets the use of a tenant that has deleted something.
    pub fn freed(&self, tenant: &[u8]) {
        if let Some(known) = self.tenants().get_mut(tenant) {
            (known.at, known.flight) = (None, None);
        }
        *lock(&self.0.free) = Free::default();
    }
}

/// A look-up that all callers share that need its result meanwhile.
type Flight<T> = Arc<tokio::sync::Mutex<Option<Result<T, StoreError>>>>;

/// Returns the look-up of a tenant's use that is under way, or a new one.
fn flight(tenants: &mut HashMap<Vec<u8>, Known>, tenant: &[u8]) -> Flight<()> {
    if tenants.len() >= REMEMBERED && !tenants.contains_key(tenant) {
        // The callers of a flight that nobody shares any more are gone.
        let is_awaited = |flight: &Flight<()>| Arc::strong_count(flight) > 1;
        tenants
            .retain(|_, known| known.uploads > 0 || known.flight.as_ref().is_some_and(is_awaited));
    }
    let known = tenants.entry(tenant.to_vec()).or_insert(Known::UNKNOWN);
    Arc::clone(known.flight.get_or_insert_default())
}

/// Returns the result of a look-up. The first caller carries it out, or the next one if that goes away.
async fn fly<T: Clone>(
    flight: &Flight<T>,
    look_up: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut result = flight.lock().await;
    if let Some(result) = &*result {
        return result.clone();
    }
    let looked_up = look_up.await;
    *result = Some(looked_up.clone());
    looked_up
}

fn is_same<T>(one: Option<&Flight<T>>, other: &Flight<T>) -> bool {
    one.is_some_and(|one| Arc::ptr_eq(one, other))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    const UNKNOWN: Self = Self {
        at: None,
        flight: None,
        bytes: 0,
        files: 0,
        share: None,
        uploaded: 0,
        uploads: 0,
    };

    fn used(&self) -> u64 {
        self.bytes + self.uploaded
    }

    /// Returns the limit that the tenant would exceed with `more` bytes.
    fn exceeded(&self, limits: StorageLimits, more: u64) -> Option<u64> {
        let share = self.share.filter(|_| limits.shares);
        let limit = limits.bytes.or(share)?;
        (self.used().saturating_add(more) > limit).then_some(limit)
    }
}

/// Returns the share of a tenant that stores `used` bytes of a storage that has `free` bytes left.
fn share(free: u64, used: u64) -> u64 {
    free.saturating_add(used) / 3
}

/// A file that is being uploaded. Its bytes count until it is dropped, and then as those of the file.
#[derive(Debug)]
pub struct FileUpload {
    quota: StorageQuota,
    tenant: Vec<u8>,
    limits: StorageLimits,
    bytes: u64,
    is_kept: bool,
}

impl FileUpload {
    /// Counts `bytes` more of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the tenant may not store them. They do not count then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), QuotaError> {
        let mut tenants = self.quota.tenants();
        let Some(known) = tenants.get_mut(&self.tenant) else {
            return Ok(());
        };
        // A file has at least one byte, so that a tenant at its limit uploads none.
        if let Some(limit) = known.exceeded(self.limits, bytes.max(1)) {
            return Err(QuotaError::Full(storage_full(known.used(), limit)));
        }
        known.uploaded += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Counts the upload as a file of its tenant from now on.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for FileUpload {
    fn drop(&mut self) {
        if let Some(known) = self.quota.tenants().get_mut(&self.tenant) {
            known.uploads -= 1;
            known.uploaded -= self.bytes;
            if self.is_kept {
                known.files += 1;
                known.bytes += self.bytes;
            }
        }
    }
}

/// The reason why a tenant may not store something now.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The tenant has no room for it. The rejection says what to delete.
    #[error("{}", .0.message())]
    Full(Rejection),
    /// The use of the tenant could not be looked up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const FREE: &str =
    "delete files with `DELETE /v1/files/{id}`, or wait until stored requests are forgotten";

fn storage_full(used: u64, limit: u64) -> Rejection {
    let message = format!("the tenant stores {used} of the {limit} bytes that it may: {FREE}");
    Rejection::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "tenant_storage_full",
        message,
    )
}

fn requests_full(used: u64, limit: u64) -> Rejection {
    let message = format!("the tenant stores {used} of the {limit} bytes that it may: {FREE}");
    let status = StatusCode::TOO_MANY_REQUESTS;
    let rejection = Rejection::new(status, "tenant_storage_full", message);
    rejection.with_retry_after(Duration::from_secs(60))
}

fn files_full(files: u64, limit: u64) -> Rejection {
    let message = format!(
        "the tenant stores {files} of the {limit} files that it may: delete some with `DELETE /v1/files/{{id}}`"
    );
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "tenant_files_full", message)
}

impl fmt::Debug for StorageQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageQuota").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    fn known(bytes: u64, free: u64) -> Known {
        Known {
            bytes,
            share: Some(share(free, bytes)),
            ..Known::UNKNOWN
        }
    }

    #[tokio::test]
    async fn the_next_caller_carries_out_an_abandoned_look_up() {
        let flight = Flight::default();
        let mut abandoned = Box::pin(fly(&flight, std::future::pending()));
        assert!(poll!(&mut abandoned).is_pending());
        let mut next = pin!(fly(&flight, async { Ok(1) }));
        assert!(poll!(&mut next).is_pending());
        drop(abandoned);
        assert_eq!(poll!(next), Poll::Ready(Ok(1)));
    }

    #[test]
    fn abandoned_look_ups_are_forgotten() {
        let mut tenants = HashMap::new();
        let awaited = flight(&mut tenants, b"awaited");
        for tenant in 0..REMEMBERED {
            drop(flight(&mut tenants, &tenant.to_be_bytes()));
        }
        assert_eq!(tenants.len(), 2);
        assert!(is_same(Some(&awaited), &flight(&mut tenants, b"awaited")));
    }

    #[test]
    fn a_share_leaves_twice_as_much_for_all_others() {
        let limits = StorageLimits {
            shares: true,
            ..StorageLimits::default()
        };
        assert_eq!(known(0, 300).exceeded(limits, 100), None);
        assert_eq!(known(0, 300).exceeded(limits, 101), Some(100));
        assert_eq!(known(100, 200).exceeded(limits, 1), Some(100));
        assert_eq!(known(0, 200).exceeded(limits, 66), None);
    }

    #[test]
    fn a_limit_of_bytes_takes_the_place_of_a_share() {
        let limits = StorageLimits {
            bytes: Some(10),
            ..StorageLimits::default()
        };
        assert_eq!(known(9, 1_000).exceeded(limits, 1), None);
        assert_eq!(known(9, 1_000).exceeded(limits, 2), Some(10));
    }
}

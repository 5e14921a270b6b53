//! The removal of expired files and batches.

use std::time::Duration;

use tokio::time::sleep;

use super::records::{self, Active, End, FileRecord, Unreferenced};
use super::scan::Scan;
use super::{BatchApi, files, id, keys};
use tower_triage_durable::StoreError;

/// The time limit for an upload. Older pieces without a file are removed.
const MAX_UPLOAD: Duration = Duration::from_secs(24 * 60 * 60);
const AT_ONCE: usize = 100;

/// The time between two sweeps.
const SWEEP: Duration = Duration::from_secs(3_600);

/// Runs a sweep every hour. This future never ends.
pub(super) async fn sweep_forever(api: &BatchApi) {
    loop {
        if let Err(error) = sweep(api).await {
            tracing::warn!(%error, "not all that is over could be removed; trying again in an hour");
        }
        sleep(SWEEP).await;
    }
}

/// Removes expired files, ended batches after their retention, and the pieces of broken uploads.
async fn sweep(api: &BatchApi) -> Result<(), StoreError> {
    remove_files(api).await?;
    remove_broken_uploads(api).await?;
    remove_batches(api).await
}

async fn remove_files(api: &BatchApi) -> Result<(), StoreError> {
    let mut scan = Scan::new(&api.store, keys::FILES, AT_ONCE);
    while let Some((key, value)) = scan.next().await? {
        let file: FileRecord = records::read(&key, &value)?;
        if let (true, Some((tenant, id))) =
            (files::has_expired(&*api.store, &file), key.split_once('/'))
        {
            let uses = api.store.values(&keys::file_uses(id), None, 1);
            if uses.await?.is_empty() {
                files::remove(&api.store, tenant, id).await?;
            }
        }
    }
    Ok(())
}

async fn remove_broken_uploads(api: &BatchApi) -> Result<(), StoreError> {
    let now = id::seconds(api.store.now());
    let mut scan = Scan::new(&api.store, keys::UPLOADS, AT_ONCE);
    while let Some((id, value)) = scan.next().await? {
        let upload: Unreferenced = records::read(&id, &value)?;
        if upload.since.saturating_add(MAX_UPLOAD.as_secs()) > now {
            continue;
        }
        if api
            .store
            .value(&keys::file(&upload.tenant, &id))
            .await?
            .is_none()
        {
            files::remove_pieces(&api.store, &id).await?;
        }
        api.store.remove(&keys::upload(&id)).await?;
    }
    Ok(())
}

async fn remove_batches(api: &BatchApi) -> Result<(), StoreError> {
    let now = id::seconds(api.store.now());
    let mut scan = Scan::new(&api.store, keys::BATCHES, AT_ONCE);
    while let Some((key, _)) = scan.next().await? {
        let Some((tenant, id)) = key.split_once('/') else {
            continue;
        };
        let Some(end) = api.record::<End>(&keys::end(id)).await? else {
            resume(api, tenant, id).await?;
            continue;
        };
        if end.at.saturating_add(api.settings.retention.as_secs()) <= now {
            // The batch itself is removed first, because the other records are invisible without it.
            for key in [
                keys::batch(tenant, id),
                keys::progress(id),
                keys::cancel(id),
                keys::end(id),
            ] {
                api.store.remove(&key).await?;
            }
        }
    }
    Ok(())
}

/// Marks a batch as unfinished if its process died before it could do so, so that the batch is driven.
async fn resume(api: &BatchApi, tenant: &str, id: &str) -> Result<(), StoreError> {
    if api.store.value(&keys::active(id)).await?.is_none() {
        let active = Active {
            tenant: tenant.to_owned(),
            at: id::millis(api.store.now()),
            ..Active::default()
        };
        api.store
            .put(&keys::active(id), records::write(&active))
            .await?;
    }
    Ok(())
}

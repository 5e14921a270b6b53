//! The calls of the API and their responses.

use std::error::Error;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use serde_json::{Value, json};

use super::error::{Failure, bad_request, conflict, not_found};
use super::list::{ListPage, ListQuery};
use super::records::{self, BatchRecord, End, FileRecord, Progress};
use super::scan::Scan;
use super::{BatchApi, BatchBody, files, id, keys, upload};
use tower_triage::rejection::Rejection;
use tower_triage_durable::StoreError;

/// The calls of the API, by their paths.
enum Page<'a> {
    Files,
    File(&'a str),
    Content(&'a str),
    Batches,
    Batch(&'a str),
    Cancel(&'a str),
}

impl<'a> Page<'a> {
    /// Returns the page of a path, or `None` for an unknown path.
    fn find(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix("/v1/")?.split('/');
        let parts = (parts.next()?, parts.next(), parts.next(), parts.next());
        Some(match parts {
            ("files", None, ..) => Self::Files,
            ("files", Some(id), None, _) => Self::File(id),
            ("files", Some(id), Some("content"), None) => Self::Content(id),
            ("batches", None, ..) => Self::Batches,
            ("batches", Some(id), None, _) => Self::Batch(id),
            ("batches", Some(id), Some("cancel"), None) => Self::Cancel(id),
            _ => return None,
        })
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Files | Self::Batches => "GET, POST",
            Self::File(_) => "GET, DELETE",
            Self::Content(_) | Self::Batch(_) => "GET",
            Self::Cancel(_) => "POST",
        }
    }
}

impl BatchApi {
    /// Returns `true` for the paths that the API answers itself.
    pub(super) fn answers(path: &str) -> bool {
        ["/v1/files", "/v1/batches"].iter().any(|prefix| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    pub(super) async fn respond<B, R>(&self, request: Request<B>) -> Response<BatchBody<R>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        match self.answer(request).await {
            Ok(response) => response,
            Err(failure) => failure
                .into_rejection()
                .into_response()
                .map(BatchBody::whole),
        }
    }

    async fn answer<B, R>(&self, request: Request<B>) -> Result<Response<BatchBody<R>>, Failure>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let owner = (self.settings.tenant)(&head);
        let tenant = files::hex(&owner);
        let path = head.uri.path();
        let page = Page::find(path).ok_or_else(|| {
            Rejection::new(
                StatusCode::NOT_FOUND,
                "not_found",
                format!("no such page: {path}"),
            )
        })?;
        if head.method == Method::POST {
            refuse_options(&head.headers)?;
        }
        let object = match (&head.method, &page) {
            (&Method::POST, Page::Files) => {
                let uploaded = upload::upload(self, &owner, &head.headers, body);
                let (id, file) = uploaded.await?;
                records::file_object(&*self.store, &id, &file)
            }
            (&Method::GET, Page::Files) => {
                let query = ListQuery::of_files(&head.uri)?;
                return list_response(ListPage::files(self, &tenant, query).await?).await;
            }
            (&Method::GET, Page::File(id)) => {
                records::file_object(&*self.store, id, &self.file(&tenant, id).await?)
            }
            (&Method::GET, Page::Content(id)) => {
                let file = self.file(&tenant, id).await?;
                return Ok(self.content(id, &file));
            }
            (&Method::DELETE, Page::File(id)) => {
                let deleted = self.delete_file(&tenant, id).await?;
                if let Some(quota) = &self.settings.quota {
                    quota.freed(&owner);
                }
                deleted
            }
            (&Method::POST, Page::Batches) => self.create(&tenant, &head, body).await?,
            (&Method::GET, Page::Batches) => {
                let query = ListQuery::of_batches(&head.uri)?;
                return list_response(ListPage::batches(self, &tenant, query)).await;
            }
            (&Method::GET, Page::Batch(id)) => self.show(&tenant, id).await?,
            (&Method::POST, Page::Cancel(id)) => self.cancel(&tenant, id).await?,
            _ => {
                let message = format!("{path} is for {}", page.methods());
                let status = StatusCode::METHOD_NOT_ALLOWED;
                let rejection = Rejection::new(status, "method_not_allowed", message);
                let mut response = rejection.into_response().map(BatchBody::whole);
                let methods = HeaderValue::from_static(page.methods());
                response.headers_mut().insert(ALLOW, methods);
                return Ok(response);
            }
        };
        Ok(json_response(&object))
    }

    /// Returns a file of this tenant.
    pub(super) async fn file(&self, tenant: &str, id: &str) -> Result<FileRecord, Failure> {
        let file = match id::is_id("file-", id) {
            true => files::find(&*self.store, tenant, id).await?,
            false => None,
        };
        file.ok_or_else(|| not_found("file", id).into())
    }

    fn content<R>(&self, id: &str, file: &FileRecord) -> Response<BatchBody<R>> {
        let body = BatchBody::file(&self.store, id, file.bytes);
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        headers.insert(CONTENT_LENGTH, file.bytes.into());
        response
    }

    async fn delete_file(&self, tenant: &str, id: &str) -> Result<Value, Failure> {
        self.file(tenant, id).await?;
        let mut uses = Scan::new(&self.store, keys::file_uses(id), 100);
        let mut is_used = false;
        while let Some((batch, state)) = uses.next().await? {
            if *state == *keys::UNREAD {
                let message =
                    format!("the batch {batch} has not read this file yet: cancel it first");
                return Err(conflict("file_in_use", message).into());
            }
            is_used = true;
        }
        // A running batch may read the file again after a restart, so its content stays until the batch ends.
        match is_used {
            true => drop(self.store.remove(&keys::file(tenant, id)).await?),
            false => files::remove(&self.store, tenant, id).await?,
        }
        Ok(json!({ "id": id, "object": "file", "deleted": true }))
    }

    async fn show(&self, tenant: &str, id: &str) -> Result<Value, Failure> {
        let batch = self.batch(tenant, id).await?;
        Ok(self.object(id, &batch).await?)
    }

    async fn cancel(&self, tenant: &str, id: &str) -> Result<Value, Failure> {
        let batch = self.batch(tenant, id).await?;
        if self.store.value(&keys::end(id)).await?.is_some() {
            let status = self.object(id, &batch).await?["status"].clone();
            let message = format!("the batch {id} has ended: its status is {status}");
            return Err(conflict("batch_ended", message).into());
        }
        if self.store.value(&keys::cancel(id)).await?.is_none() {
            let now = records::write(&id::seconds(self.store.now()));
            self.store.put(&keys::cancel(id), now).await?;
            self.changed.notify_waiters();
        }
        Ok(self.object(id, &batch).await?)
    }

    /// Returns a batch of this tenant.
    async fn batch(&self, tenant: &str, id: &str) -> Result<BatchRecord, Failure> {
        let key = keys::batch(tenant, id);
        let value = match id::is_id("batch_", id) {
            true => self.store.value(&key).await?,
            false => None,
        };
        let value = value.ok_or_else(|| not_found("batch", id))?;
        Ok(records::read(&key, &value)?)
    }

    /// Returns the batch as a JSON object with its current state.
    pub(super) async fn object(&self, id: &str, batch: &BatchRecord) -> Result<Value, StoreError> {
        // The end is read last, so that a batch which ends meanwhile is shown with all its earlier records.
        let progress: Option<Progress> = self.record(&keys::progress(id)).await?;
        let cancelled: Option<u64> = self.record(&keys::cancel(id)).await?;
        let end: Option<End> = self.record(&keys::end(id)).await?;
        let object = records::batch_object(id, batch, progress.as_ref(), cancelled, end.as_ref());
        Ok(records::shown(&*self.store, object))
    }

    /// Returns the record of a key.
    pub(super) async fn record<T: serde::de::DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<T>, StoreError> {
        let value = self.store.value(key).await?;
        value.map(|value| records::read(key, &value)).transpose()
    }
}

/// Refuses the options of stored requests that a call has no use for, because its client relies on them.
fn refuse_options(headers: &HeaderMap) -> Result<(), Rejection> {
    let options = ["idempotency-key", "not-before", "cancel-after"];
    match options.iter().find(|option| headers.contains_key(**option)) {
        None => Ok(()),
        Some(option) => {
            let message = format!("calls for files and batches have no `{option}`");
            Err(bad_request("unsupported_header", message))
        }
    }
}

fn json_response<R>(object: &Value) -> Response<BatchBody<R>> {
    with_json(BatchBody::whole(object.to_string()))
}

/// Returns a list. Its first piece is read before the response begins, so that most failures are a response of their own.
async fn list_response<R>(mut list: ListPage) -> Result<Response<BatchBody<R>>, Failure> {
    let first = list.next().await?.unwrap_or_default();
    Ok(with_json(match list.has_ended() {
        true => BatchBody::whole(first),
        false => BatchBody::list(first, list),
    }))
}

fn with_json<R>(body: BatchBody<R>) -> Response<BatchBody<R>> {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_paths_are_answered() {
        for path in [
            "/v1/files",
            "/v1/files/",
            "/v1/files/a/content",
            "/v1/batches/b/cancel",
        ] {
            assert!(BatchApi::answers(path), "{path}");
        }
        for path in ["/v1/filesystem", "/v1/chat/completions", "/files", "/v1"] {
            assert!(!BatchApi::answers(path), "{path}");
        }
        for path in ["/v1/files/a/b", "/v1/files/a/content/b", "/v1/batches/a/b"] {
            assert!(Page::find(path).is_none(), "{path}");
        }
    }
}

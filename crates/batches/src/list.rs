//! Lists of files and batches, which are written piece by piece.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use http::Uri;
use serde_json::{Value, json};

use super::error::bad_request;
use super::records::{self, BatchRecord, FileRecord};
use super::scan::Scan;
use super::{BatchApi, files, id, keys};
use tower_triage::rejection::Rejection;
use tower_triage_durable::{Store, StoreError};

/// The number of bytes from which on a piece of a list gets no further object.
const PIECE: usize = 16 << 10;
/// The number of records that are read at a time.
const AT_ONCE: usize = 100;
/// The largest number of files in a page of their list, which is also the default, as in OpenAI's API.
const MOST_FILES: usize = 10_000;
/// The largest and the default number of batches in a page of their list, as in OpenAI's API.
const MOST_BATCHES: usize = 100;
const DEFAULT_BATCHES: usize = 20;

/// A page of a list that is being written.
pub(super) struct ListPage {
    api: BatchApi,
    tenant: String,
    query: ListQuery,
    objects: Objects,
    /// The number of objects that were written.
    written: usize,
    first_id: Option<String>,
    last_id: Option<String>,
    has_ended: bool,
}

/// The source of the objects of a list.
enum Objects {
    Files(Scan),
    /// The ids of files from the oldest to the newest.
    OldestFiles(VecDeque<String>),
    Batches(Scan),
}

/// The read of a further piece of a list, which returns the piece together with the rest of the list.
pub(super) type NextOfList =
    Pin<Box<dyn Future<Output = Result<Option<(Bytes, ListPage)>, StoreError>> + Send>>;

impl ListPage {
    /// Begins the list of a tenant's files.
    pub(super) async fn files(
        api: &BatchApi,
        tenant: &str,
        query: ListQuery,
    ) -> Result<Self, StoreError> {
        let prefix = keys::file(tenant, "");
        let objects = match query.is_oldest_first {
            true => Objects::OldestFiles(oldest_files(api, prefix, &query).await?),
            false => {
                let after = query.after.as_ref().map(|id| format!("{prefix}{id}"));
                Objects::Files(Scan::new(&api.store, prefix, AT_ONCE).after(after))
            }
        };
        Ok(Self::new(api, tenant, query, objects))
    }

    /// Begins the list of a tenant's batches.
    pub(super) fn batches(api: &BatchApi, tenant: &str, query: ListQuery) -> Self {
        let prefix = keys::batches(tenant);
        let after = query.after.as_ref().map(|id| format!("{prefix}{id}"));
        let objects = Objects::Batches(Scan::new(&api.store, prefix, AT_ONCE).after(after));
        Self::new(api, tenant, query, objects)
    }

    fn new(api: &BatchApi, tenant: &str, query: ListQuery, objects: Objects) -> Self {
        Self {
            api: api.clone(),
            tenant: tenant.to_owned(),
            query,
            objects,
            written: 0,
            first_id: None,
            last_id: None,
            has_ended: false,
        }
    }

    /// Returns `true` once the last piece was returned.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next piece of the list as JSON, or `None` after its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.has_ended {
            return Ok(None);
        }
        let mut text = Vec::new();
        if self.written == 0 {
            text.extend_from_slice(br#"{"object":"list","data":["#);
        }
        while text.len() < PIECE {
            let object = self.next_object().await?;
            let has_more = object.is_some();
            match object {
                Some((id, object)) if self.written < self.query.limit => {
                    if self.written > 0 {
                        text.push(b',');
                    }
                    text.extend_from_slice(object.to_string().as_bytes());
                    self.written += 1;
                    self.first_id.get_or_insert_with(|| id.clone());
                    self.last_id = Some(id);
                }
                _ => {
                    let (first, last) = (json!(self.first_id), json!(self.last_id));
                    let end =
                        format!(r#"],"first_id":{first},"last_id":{last},"has_more":{has_more}}}"#);
                    text.extend_from_slice(end.as_bytes());
                    self.has_ended = true;
                    break;
                }
            }
        }
        Ok(Some(text.into()))
    }

    /// Returns the future of the next piece together with the rest of the list.
    pub(super) fn next_boxed(mut self) -> NextOfList {
        Box::pin(async move {
            let piece = self.next().await?;
            Ok(piece.map(|piece| (piece, self)))
        })
    }

    async fn next_object(&mut self) -> Result<Option<(String, Value)>, StoreError> {
        match &mut self.objects {
            Objects::Files(scan) => {
                while let Some((id, value)) = scan.next().await? {
                    let file: FileRecord = records::read(&id, &value)?;
                    if self.query.is_meant(&*self.api.store, &file) {
                        let object = records::file_object(&*self.api.store, &id, &file);
                        return Ok(Some((id, object)));
                    }
                }
                Ok(None)
            }
            Objects::OldestFiles(ids) => {
                while let Some(id) = ids.pop_front() {
                    let file = files::find(&*self.api.store, &self.tenant, &id).await?;
                    if let Some(file) = file {
                        let object = records::file_object(&*self.api.store, &id, &file);
                        return Ok(Some((id, object)));
                    }
                }
                Ok(None)
            }
            Objects::Batches(scan) => {
                let Some((id, value)) = scan.next().await? else {
                    return Ok(None);
                };
                let batch: BatchRecord = records::read(&id, &value)?;
                let object = self.api.object(&id, &batch).await?;
                Ok(Some((id, object)))
            }
        }
    }
}

/// Returns the ids of the files of a page in ascending order, and that of the next file.
async fn oldest_files(
    api: &BatchApi,
    prefix: String,
    query: &ListQuery,
) -> Result<VecDeque<String>, StoreError> {
    // Ids sort from the newest to the oldest, so the page is the last part of the ids before `after`.
    let mut page = VecDeque::new();
    let mut scan = Scan::new(&api.store, prefix, AT_ONCE);
    while let Some((id, value)) = scan.next().await?
        && query.after.as_ref().is_none_or(|after| id < *after)
    {
        let file: FileRecord = records::read(&id, &value)?;
        if query.is_meant(&*api.store, &file) {
            page.push_front(id);
            page.truncate(query.limit + 1);
        }
    }
    Ok(page)
}

/// The query parameters of a list.
pub(super) struct ListQuery {
    limit: usize,
    after: Option<String>,
    purpose: Option<String>,
    is_oldest_first: bool,
}

impl ListQuery {
    /// Reads the parameters of the list of files.
    pub(super) fn of_files(uri: &Uri) -> Result<Self, Rejection> {
        let mut query = Self::read(uri, "file-", MOST_FILES, MOST_FILES)?;
        for (name, value) in pairs(uri) {
            match (name, value) {
                ("purpose", value) => query.purpose = Some(value.to_owned()),
                ("order", "asc") => query.is_oldest_first = true,
                ("order", "desc") => query.is_oldest_first = false,
                ("order", _) => {
                    let message = "`order` must be `asc` or `desc`";
                    return Err(bad_request("invalid_order", message).with_param("order"));
                }
                _ => {}
            }
        }
        Ok(query)
    }

    /// Reads the parameters of the list of batches.
    pub(super) fn of_batches(uri: &Uri) -> Result<Self, Rejection> {
        Self::read(uri, "batch_", DEFAULT_BATCHES, MOST_BATCHES)
    }

    fn read(uri: &Uri, prefix: &str, default: usize, most: usize) -> Result<Self, Rejection> {
        let mut read = Self {
            limit: default,
            after: None,
            purpose: None,
            is_oldest_first: false,
        };
        for pair in pairs(uri) {
            match pair {
                ("limit", value) => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=most).contains(limit));
                    read.limit = limit.ok_or_else(|| {
                        let message = format!("`limit` must be 1 to {most}");
                        bad_request("invalid_limit", message).with_param("limit")
                    })?;
                }
                ("after", value) if id::is_id(prefix, value) => read.after = Some(value.to_owned()),
                ("after", _) => {
                    let message = format!("`after` must be an id that begins with `{prefix}`");
                    return Err(bad_request("invalid_after", message).with_param("after"));
                }
                _ => {}
            }
        }
        Ok(read)
    }

    fn is_meant(&self, store: &dyn Store, file: &FileRecord) -> bool {
        let purpose = self.purpose.as_ref();
        purpose.is_none_or(|purpose| *purpose == file.purpose) && !files::has_expired(store, file)
    }
}

/// Returns the names and the values of the query of a URI.
fn pairs(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

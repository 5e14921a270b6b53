//! The upload of a file as `multipart/form-data`, which is written to the store piece by piece.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyDataStream;
use multer::{Field, Multipart};
use pin_project_lite::pin_project;
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};

use super::error::{Failure, bad_request};
use super::expires_after::read_expires_after;
use super::files::PIECE;
use super::records::{self, FileRecord, Unreferenced};
use super::{BatchApi, files, id, keys};
use tower_triage::rejection::{BodyFault, Rejection};
use tower_triage_durable::{FileUpload, QuotaError};
use tower_triage_durable::{Store, StoreError};

/// The number of pieces that are written at a time, so that they share a sync of the disk.
const WRITTEN_AT_ONCE: usize = 8;
/// The largest number of fields in an upload.
const MAX_FIELDS: usize = 16;
/// The longest name of a file, in bytes.
const MAX_FILENAME: usize = 512;
/// The longest value of a field other than the file, in bytes.
const MAX_FIELD: usize = 1 << 10;
/// The number of unparsed bytes that the parser may hold beside the latest frame. It is enough for the heads of fields.
const MAX_UNPARSED: usize = 256 << 10;
/// The number of bytes that are still read from a file that is too large. Over HTTP/1, a client that is refused while
/// it is sending would get a connection reset instead of the response.
const MAX_EXCESS: u64 = 64 << 20;

/// Reads an upload and stores its file. Returns the id and the record of the file.
pub(super) async fn upload<B>(
    api: &BatchApi,
    owner: &[u8],
    headers: &HeaderMap,
    body: B,
) -> Result<(String, FileRecord), Failure>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (store, tenant) = (&api.store, &*files::hex(owner));
    let quota = match &api.settings.quota {
        Some(quota) => Some(quota.upload(owner).await?),
        None => None,
    };
    let boundary = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let boundary = boundary.and_then(|value| multer::parse_boundary(value).ok());
    let boundary = boundary.ok_or_else(|| {
        bad_request(
            "invalid_multipart",
            "a file is uploaded as multipart/form-data with the fields `purpose` and `file`",
        )
    })?;
    let unparsed = Arc::new(AtomicUsize::new(0));
    let body = OneByOne {
        body,
        unparsed: Arc::clone(&unparsed),
        yields: false,
    };
    let now = store.now();
    let file_id = id::new_id("file-", now).map_err(Failure::no_random)?;
    store
        .put(
            &keys::upload(&file_id),
            records::write(&Unreferenced::new(tenant, now)),
        )
        .await?;
    let unfinished = Unfinished {
        store: Arc::clone(store),
        id: Some(file_id.clone()),
    };
    let mut upload = Upload {
        store,
        id: &file_id,
        writes: JoinSet::new(),
        limit: api.settings.file_limit,
        quota,
        refused: None,
        unparsed,
        bytes: 0,
        pieces: 0,
        filename: None,
        purpose: None,
        anchor: None,
        seconds: None,
    };
    upload
        .read(Multipart::new(BodyDataStream::new(body), boundary))
        .await?;
    let purpose = upload.purpose.ok_or_else(|| missing("purpose"))?;
    if purpose != "batch" {
        let message = format!("`purpose` must be \"batch\", not {purpose:?}");
        return Err(bad_request("invalid_purpose", message)
            .with_param("purpose")
            .into());
    }
    let filename = upload.filename.ok_or_else(|| missing("file"))?;
    let lifetime = match (&upload.anchor, &upload.seconds) {
        (None, None) => api
            .settings
            .file_retention
            .map(|time| time.as_secs().max(1)),
        (anchor, seconds) => Some(read_expires_after(
            "expires_after",
            anchor.as_ref(),
            seconds.as_ref(),
        )?),
    };
    let created_at = id::seconds(now);
    let file = FileRecord {
        bytes: upload.bytes,
        created_at,
        filename,
        purpose,
        expires_at: lifetime.map(|lifetime| created_at.saturating_add(lifetime)),
    };
    store
        .put(&keys::file(tenant, &file_id), records::write(&file))
        .await?;
    unfinished.keep();
    upload.quota.into_iter().for_each(FileUpload::keep);
    store.remove(&keys::upload(&file_id)).await?;
    Ok((file_id, file))
}

fn missing(field: &'static str) -> Rejection {
    bad_request(
        "missing_required_parameter",
        format!("the field `{field}` is missing"),
    )
    .with_param(field)
}

/// An upload that is being read.
struct Upload<'a> {
    store: &'a Arc<dyn Store>,
    id: &'a str,
    /// The pieces that are being written.
    writes: JoinSet<Result<(), StoreError>>,
    limit: u64,
    /// The count of the file's bytes against the limits of its tenant.
    quota: Option<FileUpload>,
    /// The reason why the rest of the file is read and discarded.
    refused: Option<QuotaError>,
    unparsed: Arc<AtomicUsize>,
    bytes: u64,
    pieces: u64,
    filename: Option<String>,
    purpose: Option<String>,
    /// The `anchor` of `expires_after`.
    anchor: Option<Value>,
    /// The `seconds` of `expires_after`.
    seconds: Option<Value>,
}

impl Upload<'_> {
    async fn read(&mut self, mut form: Multipart<'static>) -> Result<(), Failure> {
        let mut fields = 0;
        while let Some(field) = form.next_field().await.map_err(unreadable)? {
            fields += 1;
            if fields > MAX_FIELDS {
                let message = format!("the upload has more than {MAX_FIELDS} fields");
                return Err(bad_request("invalid_multipart", message).into());
            }
            self.unparsed.store(0, Relaxed); // the heads are parsed
            match field.name() {
                Some("file") if self.filename.is_some() => {
                    return Err(
                        bad_request("invalid_multipart", "there are two fields `file`").into(),
                    );
                }
                Some("file") => self.read_file(field).await?,
                Some("purpose") => self.purpose = Some(self.read_text(field).await?),
                Some("expires_after[anchor]") => {
                    self.anchor = Some(self.read_text(field).await?.into());
                }
                Some("expires_after[seconds]") => {
                    self.seconds = Some(self.read_text(field).await?.into());
                }
                _ => drop(self.read_text(field).await?),
            }
        }
        Ok(())
    }

    async fn read_file(&mut self, mut field: Field<'static>) -> Result<(), Failure> {
        let filename = field.file_name().unwrap_or("file");
        if filename.len() > MAX_FILENAME {
            let message = format!("the name of the file has more than {MAX_FILENAME} bytes");
            return Err(bad_request("invalid_filename", message)
                .with_param("file")
                .into());
        }
        self.filename = Some(filename.to_owned());
        let mut piece = BytesMut::new();
        while let Some(data) = field.chunk().await.map_err(unreadable)? {
            self.unparsed.store(0, Relaxed);
            self.bytes += data.len() as u64;
            if let Some(quota) = &mut self.quota
                && let Err(refused) = quota.grow(data.len() as u64)
            {
                // What is discarded needs no room, so it is not counted any more.
                (self.quota, self.refused) = (None, Some(refused));
                self.limit = self.limit.min(self.bytes - data.len() as u64);
            }
            if self.bytes > self.limit {
                piece = BytesMut::new();
                match self.bytes - self.limit > MAX_EXCESS {
                    true => break,
                    false => continue,
                }
            }
            piece.extend_from_slice(&data);
            while piece.len() >= PIECE {
                self.store_piece(piece.split_to(PIECE).freeze()).await?;
            }
        }
        if let Some(refused) = self.refused.take() {
            return Err(refused.into());
        }
        if self.bytes > self.limit {
            let message = format!("the file has more than {} bytes", self.limit);
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Rejection::new(status, "file_too_large", message)
                .with_param("file")
                .into());
        }
        if !piece.is_empty() {
            self.store_piece(piece.freeze()).await?;
        }
        while !self.writes.is_empty() {
            self.written().await?;
        }
        Ok(())
    }

    /// Begins to write a piece, and waits while too many are being written.
    async fn store_piece(&mut self, piece: Bytes) -> Result<(), StoreError> {
        if self.writes.len() >= WRITTEN_AT_ONCE {
            self.written().await?;
        }
        let (store, key) = (Arc::clone(self.store), keys::piece(self.id, self.pieces));
        self.writes
            .spawn(async move { store.put(&key, piece).await });
        self.pieces += 1;
        Ok(())
    }

    /// Waits until one of the pieces is written.
    async fn written(&mut self) -> Result<(), StoreError> {
        let failed =
            |error: JoinError| StoreError::Unavailable(format!("a write has failed: {error}"));
        let written = self.writes.join_next().await;
        written.map_or(Ok(()), |written| written.map_err(failed)?)
    }

    async fn read_text(&self, mut field: Field<'static>) -> Result<String, Failure> {
        let mut text = Vec::new();
        while let Some(data) = field.chunk().await.map_err(unreadable)? {
            self.unparsed.store(0, Relaxed);
            if text.len() + data.len() > MAX_FIELD {
                let message = format!("a field other than `file` has more than {MAX_FIELD} bytes");
                return Err(bad_request("invalid_multipart", message).into());
            }
            text.extend_from_slice(&data);
        }
        String::from_utf8(text)
            .map_err(|_| bad_request("invalid_multipart", "a field is not UTF-8").into())
    }
}

fn unreadable(error: multer::Error) -> Failure {
    if let Some(fault) = BodyFault::of(&error) {
        return fault.to_rejection().into();
    }
    bad_request(
        "invalid_multipart",
        format!("the upload can't be read: {error}"),
    )
    .into()
}

/// A guard that removes the pieces of an upload without a file, even if the client disconnects.
struct Unfinished {
    store: Arc<dyn Store>,
    id: Option<String>,
}

impl Unfinished {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return; // the sweep removes the pieces a day later
        };
        let store = Arc::clone(&self.store);
        runtime.spawn(async move {
            let removed = async {
                files::remove_pieces(&store, &id).await?;
                store.remove(&keys::upload(&id)).await
            };
            if let Err(error) = removed.await {
                tracing::warn!(%error, file = %id, "the pieces of a broken upload are removed later");
            }
        });
    }
}

pin_project! {
    /// A body that returns `Pending` once between two frames. The parser reads until its source is pending, so it would
    /// otherwise read all data of a fast client into memory. This body also limits the heads of fields, which the
    /// parser does not limit.
    struct OneByOne<B> {
        #[pin]
        body: B,
        // The number of bytes since the parser last returned data.
        unparsed: Arc<AtomicUsize>,
        yields: bool,
    }
}

impl<B> Body for OneByOne<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        if std::mem::take(this.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = std::task::ready!(this.body.poll_frame(cx));
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        };
        *this.yields = true;
        let length = frame.data_ref().map_or(0, Bytes::len);
        // Relaxed is enough, because the task that reads the body is also the one that parses it.
        let unparsed = this.unparsed.fetch_add(length, Relaxed);
        match unparsed > MAX_UNPARSED {
            true => Poll::Ready(Some(Err("the head of a field is too long".into()))),
            false => Poll::Ready(Some(Ok(frame))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

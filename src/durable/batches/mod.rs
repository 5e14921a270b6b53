//! OpenAI's files and batches: many requests in one file, run when there is room for them.
//!
//! [`BatchApi`] is a Tower layer that answers these calls, in the shapes of OpenAI's API, and leaves all others to the inner
//! service:
//!
//! | call | does |
//! |---|---|
//! | `POST /v1/files` | stores an input file, `multipart/form-data` with `purpose=batch`; `expires_after` of an hour to 30 days |
//! | `GET /v1/files`, `GET`, `DELETE /v1/files/{id}`, `GET /v1/files/{id}/content` | lists, shows, deletes and reads files |
//! | `POST /v1/batches` | creates a batch: `input_file_id`, `endpoint`, `completion_window`, `metadata`, `output_expires_after` |
//! | `GET /v1/batches`, `GET /v1/batches/{id}`, `POST /v1/batches/{id}/cancel` | lists, shows and cancels batches |
//!
//! [`BatchApi::run`] drives the batches. It looks through the whole input file first: if one line is bad, nothing runs and the
//! batch has `failed`, with the lines at fault in `errors`. Then each line is stored as a request, at the level of batches,
//! and a [worker](super) runs it when a slot is free. Responses go to the output file by `custom_id`; those with a status
//! from 400, and the lines without a response, go to the error file. `completion_window` (`90`, `90s`, `1.5m`, `24h`, `7d`)
//! is a deadline: lines that have not ended by then are `batch_expired`.
//!
//! Lists are newest first, in pages of 1 to 100 (`limit`, 20), from `after` on; files oldest first with `order=asc`, for which
//! all files of the tenant are read. An input file is kept until it is deleted or has expired, and for a batch that was created
//! before until that has read it; output files are kept for the [retention](BatchApi::retention), unless the batch says
//! otherwise.
//!
//! All state is in the store, so a batch goes on after a restart, on any front. A line has the same name each time that it is
//! stored, so no line is stored twice. Of an input file, a few MiB are in memory at a time.
//!
//! ```
//! use std::sync::Arc;
//! use tower::Layer;
//! use tower_triage::durable::Store;
//! use tower_triage::durable::batches::{BatchApi, BatchService};
//!
//! # fn serve<S>(store: Arc<dyn Store>, service: S) -> BatchService<S> {
//! let api = BatchApi::new(store)
//!     .level(2) // the lowest
//!     .tenant(|head| head.headers.get("x-tenant-id").map_or(Vec::new(), |id| id.as_bytes().to_vec()));
//! tokio::spawn(api.clone().run());
//! api.layer(service)
//! # }
//! ```

mod api;
mod body;
mod coordinator;
mod create;
mod driver;
mod error;
mod expires_after;
mod files;
mod id;
mod keys;
mod line;
mod line_splitter;
mod records;
mod result;
mod scan;
mod service;
mod settings;
mod sweep;
mod upload;
mod validator;

pub use body::BatchBody;
pub use service::{BatchFuture, BatchService};
pub use settings::BatchApi;

//! OpenAI's API for files and batches, with which clients send many requests in one file. They run when slots are free.
//!
//! [`BatchApi`] is a Tower layer that answers these calls in the format of OpenAI's API. It passes all other requests
//! to the inner service:
//!
//! | call | does |
//! |---|---|
//! | `POST /v1/files` | stores an input file, `multipart/form-data` with `purpose=batch`; `expires_after` of an hour to 30 days |
//! | `GET /v1/files`, `GET`, `DELETE /v1/files/{id}`, `GET /v1/files/{id}/content` | lists, shows, deletes and reads files |
//! | `POST /v1/batches` | creates a batch: `input_file_id`, `endpoint`, `completion_window`, `metadata`, `output_expires_after` |
//! | `GET /v1/batches`, `GET /v1/batches/{id}`, `POST /v1/batches/{id}/cancel` | lists, shows and cancels batches |
//!
//! [`BatchApi::run`] drives the batches. It validates the whole input file first. If one line is invalid, the batch is
//! `failed` before any line runs, and `errors` lists the invalid lines. Otherwise it stores each line as a request at
//! the level of batches, and a [worker](tower_triage_durable::Worker) runs the request when a slot is free. Responses go to the output file
//! and carry the `custom_id` of their line. Responses with a status from 400 on, and lines without a response, go to
//! the error file. `completion_window` (`90`, `90s`, `1.5m`, `24h`, `7d`) is a deadline, and unfinished lines become
//! `batch_expired`.
//!
//! Lists are sorted from the newest to the oldest. A page has up to `limit` entries that come after `after`: 1 to 10,000
//! files, by default 10,000, or 1 to 100 batches, by default 20. With `order=asc`, files are sorted from the oldest to the newest, for which all files of the tenant are
//! read. An input file is kept until it is deleted or expires. A batch that was created before that can still read it
//! to the end. Output files are kept for the [retention](BatchApi::retention), unless the batch specifies another time.
//!
//! All state is in the store, so a batch continues after a restart, in any process. A line always has the same request
//! id, so each line is stored only once. Only a few MiB of an input file are in memory at a time.
//!
//! ```
//! use std::sync::Arc;
//! use tower::Layer;
//! use tower_triage_durable::Store;
//! use tower_triage_batches::{BatchApi, BatchService};
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
mod list;
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

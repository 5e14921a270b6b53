//! One line of a running batch, which is stored as a request. Its result is written to the output file or the error
//! file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use super::driver::Stop;
use super::files::PIECE;
use super::line::{Line, LineError};
use super::records::BatchRecord;
use super::{BatchApi, id, keys};
use tower_triage_durable::{
    NewRequest, RequestId, RequestInfo, RequestStatus, StoreError, decode_response, encode_request,
    reason,
};

/// The time between two attempts to store a line while the store is full.
const FULL: Duration = Duration::from_secs(1);

/// The settings that all lines of a batch share.
pub(super) struct LineContext {
    api: BatchApi,
    tenant: Vec<u8>,
    endpoint: Uri,
    endpoint_text: String,
    headers: HeaderMap,
    deadline: u64,
    output_file_id: String,
    error_file_id: String,
}

impl LineContext {
    pub(super) fn new(api: &BatchApi, tenant: &str, batch: &BatchRecord) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &batch.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
                headers.append(name, value);
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self {
            api: api.clone(),
            tenant: unhex(tenant),
            endpoint: batch.endpoint.parse().unwrap_or_default(),
            endpoint_text: batch.endpoint.clone(),
            headers,
            deadline: batch.deadline,
            output_file_id: batch.output_file_id.clone(),
            error_file_id: batch.error_file_id.clone(),
        }
    }

    /// Returns the request of a line with this body.
    pub(super) fn request(&self, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Returns `true` if the tenant may store a line of `bytes`.
    async fn has_room(&self, bytes: u64) -> Result<bool, StoreError> {
        match &self.api.settings.quota {
            Some(quota) => quota.has_room(&self.tenant, bytes).await,
            None => Ok(true),
        }
    }

    /// Returns the name of the queue for a line.
    pub(super) fn queue(&self, request: &Request<Bytes>) -> Result<String, LineError> {
        (self.api.settings.queue)(request).map_err(|rejection| {
            let message = rejection.message().to_owned();
            LineError::new(rejection.code(), rejection.param(), message)
        })
    }
}

/// Returns the bytes of a tenant from its hexadecimal form in keys.
fn unhex(tenant: &str) -> Vec<u8> {
    let digits = tenant.as_bytes().chunks_exact(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.filter_map(byte).collect()
}

/// A line that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) is_success: bool,
    /// The size in bytes of the line's result in the output file or the error file.
    pub(super) bytes: u64,
    /// `true` if the batch's window was over before the line had a response.
    pub(super) has_expired: bool,
}

/// A line that is about to run.
pub(super) struct LineTask {
    pub(super) context: Arc<LineContext>,
    pub(super) batch: String,
    pub(super) number: u64,
    /// `true` if the line may have been stored earlier, and forgotten after its end.
    pub(super) may_be_forgotten: bool,
    pub(super) stopped: watch::Receiver<Option<Stop>>,
}

impl LineTask {
    /// Stores the line, waits for its end, and records the result. The permit is released as soon as the line is
    /// stored.
    pub(super) async fn run(
        mut self,
        line: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Result<Ended, StoreError> {
        let context = Arc::clone(&self.context);
        let parsed = Line::parse(&line, &context.endpoint_text)
            .map(|line| (line.custom_id, Bytes::copy_from_slice(line.body.as_bytes())));
        drop(line); // it may keep the whole buffer alive that it was read into
        let (custom_id, body) = match parsed {
            Ok(line) => line,
            // This happens only if another version of the crate validated the file by different rules.
            Err(error) => return self.fail("", &error.code, &error.message).await,
        };
        let request = context.request(body);
        let queue = match context.queue(&request) {
            Ok(queue) => queue,
            Err(error) => return self.fail(&custom_id, &error.code, &error.message).await,
        };
        let id = id::line_id(&self.batch, self.number);
        if self.may_be_forgotten && context.api.store.get(id).await?.is_none() {
            return self.fail(&custom_id, "request_lost", LOST).await;
        }
        let mut new = NewRequest::new(id, encode_request(&request));
        drop(request);
        new.queue = queue;
        new.level = context.api.settings.level;
        new.tenant = context.tenant.clone();
        new.is_listed = false;
        self.store(new).await?;
        drop(permit);
        self.ended(id, &custom_id).await
    }

    /// Stores the line as a request. Waits while the store is full, unless the batch is stopped.
    async fn store(&mut self, mut new: NewRequest) -> Result<(), StoreError> {
        let context = Arc::clone(&self.context);
        let bytes = new.request.len() as u64;
        while self.stopped.borrow().is_none() {
            if !context.has_room(bytes).await? {
                // A line that was stored before a restart takes no more room.
                let drain = context.api.store.drain();
                if let Some(drain) = drain
                    && drain.known(&new).await?.is_some()
                {
                    return Ok(());
                }
                self.pause().await;
                continue;
            }
            new.cancel_after = Some(
                id::until(&*context.api.store, context.deadline).max(Duration::from_millis(1)),
            );
            match context.api.store.enqueue(new.clone()).await {
                // A request that lacks replicas is stored all the same.
                Ok(_) | Err(StoreError::NotReplicated { .. }) => return Ok(()),
                Err(
                    StoreError::QueueFull { .. }
                    | StoreError::TenantQueueFull { .. }
                    | StoreError::StorageFull(_),
                ) => {}
                Err(error) => return Err(error),
            }
            self.pause().await;
        }
        Ok(())
    }

    /// Waits for a while, or until the batch is stopped.
    async fn pause(&mut self) {
        tokio::select! {
            () = sleep(FULL) => {}
            _ = self.stopped.changed() => {}
        }
    }

    /// Waits until the line has ended, and records its result.
    async fn ended(&mut self, id: RequestId, custom_id: &str) -> Result<Ended, StoreError> {
        let context = Arc::clone(&self.context);
        let store = &context.api.store;
        loop {
            let stop = *self.stopped.borrow_and_update();
            let info = match stop {
                Some(_) => store.cancel(id).await?,
                None => {
                    tokio::select! {
                        ended = store.ended(id) => drop(ended?),
                        _ = self.stopped.changed() => continue,
                    }
                    store.get(id).await?
                }
            };
            return match (info, stop) {
                (Some(info), _) if info.status.has_ended() => {
                    self.record(&info, stop, custom_id).await
                }
                // An operator has put the request back into its queue meanwhile, so the wait begins again.
                (Some(_), None) => continue,
                (Some(_), Some(stop)) | (None, Some(stop)) => {
                    self.stopped_by(stop, custom_id).await
                }
                (None, None) => self.fail(custom_id, "request_lost", LOST).await,
            };
        }
    }

    /// Records the result of a line that was stored and has ended.
    async fn record(
        &self,
        info: &RequestInfo,
        stop: Option<Stop>,
        custom_id: &str,
    ) -> Result<Ended, StoreError> {
        let _permit = self.context.api.responses.acquire().await;
        let response = match info.response_status {
            Some(_) => self.context.api.store.response(info.id).await?,
            None => None,
        };
        if let Some(response) = response {
            return match decode_response(response) {
                Ok(response) => self.respond(custom_id, info.id, &response).await,
                Err(error) => {
                    let message = format!("the stored response can't be read: {error}");
                    self.fail(custom_id, "response_unreadable", &message).await
                }
            };
        }
        let is_late = info.reason.as_deref() == Some(reason::DEADLINE_EXCEEDED);
        match (info.status, stop) {
            (RequestStatus::Canceled | RequestStatus::Aborted, Some(stop)) => {
                self.stopped_by(stop, custom_id).await
            }
            (RequestStatus::Aborted, None) => self.stopped_by(Stop::Expired, custom_id).await,
            (RequestStatus::Canceled, None) if is_late => {
                self.stopped_by(Stop::Expired, custom_id).await
            }
            (RequestStatus::Canceled, None) => {
                let message = "this request was cancelled";
                self.fail(custom_id, "request_canceled", message).await
            }
            _ => {
                let reason = info.reason.as_deref().unwrap_or("request_failed");
                let message = format!("this request has no response: {reason}");
                self.fail(custom_id, reason, &message).await
            }
        }
    }

    async fn respond(
        &self,
        custom_id: &str,
        id: RequestId,
        response: &http::Response<Bytes>,
    ) -> Result<Ended, StoreError> {
        let request_id = response.headers().get("x-request-id");
        let request_id = request_id
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        let response = ResponseObject {
            status_code: response.status().as_u16(),
            request_id: request_id.unwrap_or_else(|| id.to_string()),
            body: json_body(response.body()),
        };
        let is_success = response.status_code < 400;
        self.write(custom_id, is_success, Some(response), None)
            .await
    }

    async fn stopped_by(&self, stop: Stop, custom_id: &str) -> Result<Ended, StoreError> {
        match stop {
            Stop::Cancelled => {
                let message = "this request did not run, because its batch was cancelled";
                self.fail(custom_id, "batch_cancelled", message).await
            }
            Stop::Expired => {
                let message = "this request was not done before the completion window was over";
                self.fail(custom_id, EXPIRED, message).await
            }
        }
    }

    async fn fail(&self, custom_id: &str, code: &str, message: &str) -> Result<Ended, StoreError> {
        let error = ErrorObject { code, message };
        let mut ended = self.write(custom_id, false, None, Some(error)).await?;
        ended.has_expired = code == EXPIRED;
        Ok(ended)
    }

    /// Writes the result of the line to the output file or the error file.
    async fn write(
        &self,
        custom_id: &str,
        is_success: bool,
        response: Option<ResponseObject>,
        error: Option<ErrorObject<'_>>,
    ) -> Result<Ended, StoreError> {
        let mut line = serde_json::to_vec(&ResultLine {
            id: format!("batch_req_{}", id::line_id(&self.batch, self.number)),
            custom_id,
            response,
            error,
        })
        .expect("its keys are strings and its values can't fail");
        line.push(b'\n');
        let file = match is_success {
            true => &self.context.output_file_id,
            false => &self.context.error_file_id,
        };
        let bytes = line.len() as u64;
        let mut rest = Bytes::from(line);
        let first = rest.split_to(rest.len().min(PIECE));
        let store = &self.context.api.store;
        for part in 1.. {
            let more = rest.split_to(rest.len().min(PIECE));
            if more.is_empty() {
                break;
            }
            let key = keys::piece_part(file, self.number, part);
            store.put(&key, more).await?;
        }
        // The line counts as written once its first part is there, so that comes last.
        store.put(&keys::piece(file, self.number), first).await?;
        Ok(Ended {
            is_success,
            bytes,
            has_expired: false,
        })
    }
}

const EXPIRED: &str = "batch_expired";
const LOST: &str = "the end of this request was forgotten before its batch could record it";

/// Returns `true` for a line of an error file that was written because of [`Stop::Expired`].
pub(super) fn has_expired(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Read<'a> {
        #[serde(borrow)]
        error: Option<Error<'a>>,
    }
    #[derive(Deserialize)]
    struct Error<'a> {
        code: &'a str,
    }
    let line = serde_json::from_slice::<Read<'_>>(line).ok();
    line.and_then(|line| line.error)
        .is_some_and(|error| error.code == EXPIRED)
}

#[derive(Serialize)]
struct ResultLine<'a> {
    id: String,
    custom_id: &'a str,
    response: Option<ResponseObject>,
    error: Option<ErrorObject<'a>>,
}

#[derive(Serialize)]
struct ResponseObject {
    status_code: u16,
    request_id: String,
    body: Box<RawValue>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: &'a str,
    message: &'a str,
}

/// Returns a body as JSON on one line. A body that is not JSON becomes a JSON string.
fn json_body(body: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(body);
    // In valid JSON these characters are white space outside strings, because strings must escape them.
    let line = text.replace(['\n', '\r'], " ");
    RawValue::from_string(line.trim().to_owned()).unwrap_or_else(|_| {
        let text = serde_json::to_string(&text).expect("a string is JSON");
        RawValue::from_string(text).expect("a string is JSON")
    })
}

impl fmt::Debug for LineTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineTask")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_takes_one_line() {
        assert_eq!(
            json_body(b"{\n  \"a\": 1.50\r\n}\n").get(),
            r#"{   "a": 1.50  }"#
        );
        assert_eq!(json_body(b"bad\ngateway").get(), r#""bad\ngateway""#);
        assert_eq!(json_body(b"").get(), r#""""#);
    }

    #[test]
    fn tenants_read_back_from_keys() {
        assert_eq!(unhex("00ff61"), [0, 255, b'a']);
        assert!(unhex("").is_empty());
    }
}

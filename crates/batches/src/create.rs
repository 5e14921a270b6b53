//! The creation of a batch.

use std::error::Error;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{Failure, bad_request};
use super::expires_after::read_expires_after;
use super::records::{self, Active, BatchRecord};
use super::{BatchApi, id, keys};
use tower_triage::rejection::{BodyFault, Rejection};
use tower_triage_durable::parse_duration;
use tower_triage_durable::webhooks;

/// The largest body of a call that creates a batch, in bytes. OpenAI's limits on metadata fit into it several times.
const MAX_BODY: usize = 128 << 10;
/// The longest window in milliseconds, which is a year.
const MAX_WINDOW: u64 = 366 * 24 * 60 * 60 * 1_000;
/// The largest size of the headers of each line, in bytes. It is limited because each line is stored with these
/// headers.
const MAX_HEADERS: usize = 8 << 10;
/// OpenAI's limit on the number of metadata entries. The limits on keys and values are in characters.
const MAX_METADATA: usize = 16;
const MAX_METADATA_KEY: usize = 64;
const MAX_METADATA_VALUE: usize = 512;

#[derive(Deserialize)]
struct NewBatch {
    input_file_id: Option<Value>,
    endpoint: Option<Value>,
    completion_window: Option<Value>,
    metadata: Option<Map<String, Value>>,
    output_expires_after: Option<Map<String, Value>>,
}

impl BatchApi {
    pub(super) async fn create<B>(
        &self,
        tenant: &str,
        head: &Parts,
        body: B,
    ) -> Result<Value, Failure>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let body = Limited::new(body, MAX_BODY)
            .collect()
            .await
            .map_err(unreadable)?;
        let asked: NewBatch = serde_json::from_slice(&body.to_bytes()).map_err(|error| {
            bad_request("invalid_json", format!("the body can't be read: {error}"))
        })?;
        let input_file_id = text(asked.input_file_id, "input_file_id")?;
        let endpoint = text(asked.endpoint, "endpoint")?;
        let completion_window = text(asked.completion_window, "completion_window")?;
        check_endpoint(&endpoint)?;
        if !(self.settings.serves)(head, &endpoint) {
            let message = format!("requests to `endpoint` {endpoint:?} are not served here");
            return Err(bad_request("invalid_endpoint", message)
                .with_param("endpoint")
                .into());
        }
        check_metadata(asked.metadata.as_ref())?;
        let output_lifetime = asked.output_expires_after.map(|after| {
            let (anchor, seconds) = (after.get("anchor"), after.get("seconds"));
            read_expires_after("output_expires_after", anchor, seconds)
        });
        let output_lifetime = output_lifetime.transpose()?;
        let window = parse_duration(&completion_window).map(|window| window.as_millis() as u64);
        let window = window.filter(|window| (1..=MAX_WINDOW).contains(window));
        let window = window.ok_or_else(|| {
            let message = "`completion_window` must be a time of a year at most, such as `90s`, `1.5m`, `24h` or `7d`";
            bad_request("invalid_completion_window", message).with_param("completion_window")
        })?;
        let check = self.settings.check_webhook.as_deref();
        let webhook = webhooks::requested(&head.headers, check)?;
        let headers = headers_of_lines(&head.headers);
        if headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            > MAX_HEADERS
        {
            let message =
                format!("the headers of a batch's requests have more than {MAX_HEADERS} bytes");
            let status = http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Rejection::new(status, "headers_too_large", message).into());
        }
        let now = self.store.now();
        let new_id = |prefix| id::new_id(prefix, now).map_err(Failure::no_random);
        let id = new_id("batch_")?;
        let batch = BatchRecord {
            input_file_id,
            endpoint,
            completion_window,
            created_at: id::seconds(now),
            deadline: id::millis(now).saturating_add(window),
            metadata: asked.metadata,
            output_lifetime,
            headers,
            webhook,
            output_file_id: new_id("file-")?,
            error_file_id: new_id("file-")?,
        };
        // The use of the file is recorded between two checks, so a deletion of the file at the same time is noticed.
        self.check_input(tenant, &batch.input_file_id).await?;
        let file_use = keys::file_use(&batch.input_file_id, &id);
        self.store
            .put(&file_use, Bytes::from_static(keys::UNREAD))
            .await?;
        if let Err(failure) = self.check_input(tenant, &batch.input_file_id).await {
            self.store.remove(&file_use).await?;
            return Err(failure);
        }
        self.store
            .put(&keys::batch(tenant, &id), records::write(&batch))
            .await?;
        let active = Active {
            tenant: tenant.to_owned(),
            at: id::millis(now),
            ..Active::default()
        };
        self.store
            .put(&keys::active(&id), records::write(&active))
            .await?;
        self.changed.notify_waiters();
        // As it was created, even if it is driven already.
        let object = records::batch_object(&id, &batch, None, None, None);
        Ok(records::shown(&*self.store, object))
    }

    async fn check_input(&self, tenant: &str, file_id: &str) -> Result<(), Failure> {
        let file = match self.file(tenant, file_id).await {
            Err(Failure::Rejected(rejection)) => {
                return Err(rejection.with_param("input_file_id").into());
            }
            file => file?,
        };
        if file.purpose != "batch" {
            let message = format!(
                "the purpose of {file_id} is {:?}, not \"batch\"",
                file.purpose
            );
            return Err(bad_request("invalid_purpose", message)
                .with_param("input_file_id")
                .into());
        }
        Ok(())
    }
}

fn unreadable(error: Box<dyn Error + Send + Sync>) -> Rejection {
    match BodyFault::of(&*error) {
        Some(BodyFault::TooLarge) => Rejection::new(
            http::StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body has more than {MAX_BODY} bytes"),
        ),
        Some(fault) => fault.to_rejection(),
        None => bad_request("malformed_body", format!("the body can't be read: {error}")),
    }
}

fn text(value: Option<Value>, field: &'static str) -> Result<String, Rejection> {
    match value {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => {
            let message = format!("`{field}` is missing");
            Err(bad_request("missing_required_parameter", message).with_param(field))
        }
        Some(_) => {
            let message = format!("`{field}` must be a string");
            Err(bad_request("invalid_type", message).with_param(field))
        }
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), Rejection> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.');
    let is_good = endpoint.starts_with("/v1/")
        && endpoint.bytes().all(is_plain)
        && !endpoint.contains("..")
        && !BatchApi::answers(endpoint);
    match is_good {
        true => Ok(()),
        false => {
            let message = "`endpoint` must be the path of requests such as `/v1/chat/completions`";
            Err(bad_request("invalid_endpoint", message).with_param("endpoint"))
        }
    }
}

fn check_metadata(metadata: Option<&Map<String, Value>>) -> Result<(), Rejection> {
    let is_good = metadata.is_none_or(|metadata| {
        metadata.len() <= MAX_METADATA
            && metadata.iter().all(|(key, value)| {
                let value = value.as_str();
                key.chars().count() <= MAX_METADATA_KEY
                    && value.is_some_and(|value| value.chars().count() <= MAX_METADATA_VALUE)
            })
    });
    match is_good {
        true => Ok(()),
        false => {
            let message = format!(
                "`metadata` may have {MAX_METADATA} strings of {MAX_METADATA_VALUE} characters, with names of {MAX_METADATA_KEY}"
            );
            Err(bad_request("invalid_metadata", message).with_param("metadata"))
        }
    }
}

/// Returns the headers that each request of the batch takes from the call that created it. These include the client's
/// keys and its tenant, but exclude headers about the body, the response and the timing of that call.
fn headers_of_lines(headers: &HeaderMap) -> Vec<(String, String)> {
    let is_left_out = |name: &str| {
        let of_the_call = [
            "host",
            "connection",
            "keep-alive",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "expect",
            "proxy-connection",
            "proxy-authorization",
            "cookie",
            "prefer",
            "idempotency-key",
            "cancel-after",
            "not-before",
            "webhook-url",
            "x-cancel-on-disconnect",
            "x-request-timeout",
            "grpc-timeout",
            "x-request-id",
            "traceparent",
            "tracestate",
            "range",
        ];
        let prefixes = ["content-", "accept", "x-stainless-", "if-", "x-triage-"];
        of_the_call.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let kept = headers
        .iter()
        .filter(|(name, _)| !is_left_out(name.as_str()));
    kept.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_paths_of_requests() {
        for endpoint in ["/v1/chat/completions", "/v1/embeddings", "/v1/rerank"] {
            assert!(check_endpoint(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in [
            "",
            "/admin",
            "/v1/files",
            "/v1/batches/x",
            "/v1/../admin",
            "/v1/a?b",
            "v1/chat",
        ] {
            assert!(check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn lines_get_the_clients_keys_and_nothing_of_the_call() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "x-tenant",
            "content-length",
            "accept-encoding",
            "x-stainless-read-timeout",
            "prefer",
        ] {
            headers.insert(name, "x".parse().unwrap());
        }
        let kept = headers_of_lines(&headers);
        let mut names: Vec<_> = kept.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-tenant"]);
    }
}

//! Parsers for the replies of the scripts.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redis::Value;

use crate::durable::{Found, QueueHead, RequestId, RequestInfo, RequestStatus};

/// An error for a reply that does not have the format of its script.
#[derive(Debug, thiserror::Error)]
#[error("an unexpected reply")]
pub(super) struct Unexpected;

pub(super) fn items(value: Value) -> Result<Vec<Value>, Unexpected> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        _ => Err(Unexpected),
    }
}

/// Returns the items of an array with a known length.
pub(super) fn parts<const N: usize>(value: Value) -> Result<[Value; N], Unexpected> {
    items(value)?.try_into().map_err(|_| Unexpected)
}

pub(super) fn bytes(value: Value) -> Result<Vec<u8>, Unexpected> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        _ => Err(Unexpected),
    }
}

pub(super) fn text(value: Value) -> Result<String, Unexpected> {
    String::from_utf8(bytes(value)?).map_err(|_| Unexpected)
}

/// Reads an optional value. Returns `None` if it is absent.
pub(super) fn maybe<T>(
    value: Value,
    read: impl FnOnce(Value) -> Result<T, Unexpected>,
) -> Result<Option<T>, Unexpected> {
    match value {
        Value::Nil => Ok(None),
        value => read(value).map(Some),
    }
}

pub(super) fn number<T: std::str::FromStr>(value: Value) -> Result<T, Unexpected> {
    text(value)?.parse().map_err(|_| Unexpected)
}

pub(super) fn data(value: Value) -> Result<Bytes, Unexpected> {
    bytes(value).map(Bytes::from)
}

pub(super) fn id(value: Value) -> Result<RequestId, Unexpected> {
    text(value)?.parse().map_err(|_| Unexpected)
}

/// Returns a time from milliseconds since 1970.
pub(super) fn time(value: Value) -> Result<SystemTime, Unexpected> {
    let ms = number(value)?;
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .ok_or(Unexpected)
}

/// The hash fields that describe a request, in the order in which the function `info` of the scripts returns them.
pub(super) const FIELDS: &[&str] = &[
    "q", "l", "t", "st", "at", "c", "s", "e", "d", "nb", "r", "rs", "li",
];

/// Reads a request from its fields in the order of [`FIELDS`], with its id at the end.
pub(super) fn info(value: Value) -> Result<RequestInfo, Unexpected> {
    let [
        queue,
        level,
        tenant,
        status,
        attempts,
        created,
        started,
        ended,
        deadline,
        not_before,
        reason,
        response_status,
        listed,
        name,
    ] = parts(value)?;
    let mut info = RequestInfo::queued(id(name)?, time(created)?);
    info.queue = text(queue)?;
    info.level = number(level)?;
    info.tenant = bytes(tenant)?;
    info.status = RequestStatus::from_name(&text(status)?).ok_or(Unexpected)?;
    info.attempts = number(attempts)?;
    info.started = maybe(started, time)?;
    info.ended = maybe(ended, time)?;
    info.deadline = maybe(deadline, time)?;
    info.not_before = maybe(not_before, time)?;
    info.reason = maybe(reason, text)?;
    info.response_status = maybe(response_status, number)?;
    info.is_listed = number::<u8>(listed)? == 1;
    Ok(info)
}

/// Reads an ended request from a notification: its id, and then its fields and response. Empty fields count as absent.
pub(super) fn found(id: Value, told: impl Iterator<Item = Value>) -> Result<Found, Unexpected> {
    let mut fields: Vec<Value> = told.collect();
    let response = fields.pop().ok_or(Unexpected)?;
    // The first three fields are queue, level and tenant. The names may be empty, so an empty one is kept.
    for field in fields.iter_mut().skip(3) {
        *field = unless_empty(std::mem::replace(field, Value::Nil));
    }
    fields.push(id);
    let response = data(response)?;
    Ok(Found {
        info: info(Value::Array(fields))?,
        response: Some(response).filter(|response| !response.is_empty()),
    })
}

/// Reads the head of a queue from a notification. Returns `None` if the notification only names the queue, for instance
/// because the queue already had a head.
pub(super) fn new_head(
    queue: Value,
    told: impl Iterator<Item = Value>,
) -> Result<Option<QueueHead>, Unexpected> {
    let fields: Vec<Value> = told.collect();
    if fields.is_empty() {
        return Ok(None);
    }
    let [
        name,
        level,
        tenant,
        created,
        deadline,
        listed,
        cost,
        runnable,
    ] = fields.try_into().map_err(|_| Unexpected)?;
    let mut info = RequestInfo::queued(id(name)?, time(created)?);
    info.queue = text(queue)?;
    info.level = number(level)?;
    info.tenant = bytes(tenant)?;
    info.deadline = maybe(unless_empty(deadline), time)?;
    info.is_listed = number::<u8>(listed)? == 1;
    let mut head = QueueHead::new(info);
    head.cost = number(cost)?;
    head.runnable = number(runnable)?;
    Ok(Some(head))
}

/// Returns the field, or `Nil` if it is empty.
fn unless_empty(field: Value) -> Value {
    match field {
        Value::BulkString(text) if text.is_empty() => Value::Nil,
        field => field,
    }
}

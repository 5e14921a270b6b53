//! Parsers for the replies of the scripts.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redis::Value;

use super::level;
use tower_triage::PriorityLevels;
use tower_triage_durable::{Found, NewRequest, QueueHead, RequestId, RequestInfo, RequestStatus};

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
    parse(&text(value)?)
}

pub(super) fn data(value: Value) -> Result<Bytes, Unexpected> {
    bytes(value).map(Bytes::from)
}

pub(super) fn id(value: Value) -> Result<RequestId, Unexpected> {
    text(value)?.parse().map_err(|_| Unexpected)
}

/// Returns a time from milliseconds since 1970.
pub(super) fn time(value: Value) -> Result<SystemTime, Unexpected> {
    parse_time(&text(value)?)
}

pub(super) fn parse_time(ms: &str) -> Result<SystemTime, Unexpected> {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(parse(ms)?))
        .ok_or(Unexpected)
}

/// Reads a request from its id, its facts and its state, as the function `info` of the scripts returns them.
pub(super) fn info(value: Value, levels: &PriorityLevels) -> Result<RequestInfo, Unexpected> {
    let [name, facts, state] = parts(value)?;
    let facts = Facts::read(&bytes(facts)?, levels)?;
    describe(id(name)?, facts, &text(state)?)
}

/// Reads the head of a queue from its id, its facts, its state, and the number of requests of the queue that may begin.
pub(super) fn head(value: Value, levels: &PriorityLevels) -> Result<QueueHead, Unexpected> {
    let [name, facts, state, runnable] = parts(value)?;
    let facts = Facts::read(&bytes(facts)?, levels)?;
    let cost = facts.cost;
    let mut head = QueueHead::new(describe(id(name)?, facts, &text(state)?)?);
    head.cost = cost;
    head.runnable = number(runnable)?;
    Ok(head)
}

fn describe(id: RequestId, facts: Facts, state: &str) -> Result<RequestInfo, Unexpected> {
    // The parts are in the order in which the function `pack` of the scripts joins them.
    let parts: Vec<&str> = state.split('\0').collect();
    let part = |index: usize| parts.get(index).copied().filter(|part| !part.is_empty());
    let time_at = |index: usize| part(index).map(parse_time).transpose();
    let mut info = RequestInfo::queued(id, time_at(7)?.ok_or(Unexpected)?);
    info.queue = facts.queue;
    info.level = facts.level;
    info.tenant = facts.tenant;
    info.is_listed = facts.is_listed;
    info.status = part(0)
        .and_then(RequestStatus::from_name)
        .ok_or(Unexpected)?;
    info.attempts = part(1).map_or(Err(Unexpected), parse)?;
    info.started = time_at(8)?;
    info.ended = time_at(9)?;
    info.deadline = time_at(10)?;
    info.not_before = time_at(11)?;
    info.response_status = part(12).map(parse).transpose()?;
    info.reason = part(13).map(str::to_owned);
    Ok(info)
}

/// The facts of a request that never change and that a front reads again.
struct Facts {
    level: u8,
    cost: u32,
    is_listed: bool,
    queue: String,
    tenant: Vec<u8>,
}

impl Facts {
    /// Reads facts from the form in which [`facts`] packs them.
    fn read(packed: &[u8], levels: &PriorityLevels) -> Result<Self, Unexpected> {
        let mut parts = packed.splitn(4, |byte| *byte == 0);
        let mut next = || parts.next().ok_or(Unexpected);
        let number = |part| {
            let text = std::str::from_utf8(part).map_err(|_| Unexpected)?;
            parse::<u32>(text)
        };
        let level = level::read(next()?, levels)?;
        let (cost, listed) = (number(next()?)?, number(next()?)?);
        let mut rest = next()?;
        let mut sized = || {
            let (size, others) = rest.split_first_chunk().ok_or(Unexpected)?;
            let size = u32::from_be_bytes(*size) as usize;
            let (part, others) = others.split_at_checked(size).ok_or(Unexpected)?;
            rest = others;
            Ok(part.to_vec())
        };
        Ok(Self {
            level,
            cost,
            is_listed: listed == 1,
            queue: String::from_utf8(sized()?).map_err(|_| Unexpected)?,
            tenant: sized()?,
        })
    }
}

/// Packs the facts of a request that never change, in the form that the function `job_of` of the scripts reads.
/// `level` is the name of its level, and `idempotency` is the key of its idempotency key, or empty.
pub(super) fn facts(request: &NewRequest, level: &str, idempotency: &[u8]) -> Vec<u8> {
    let listed = u8::from(request.is_listed);
    let level = level::stored(level);
    let mut packed = format!("{level}\0{}\0{listed}\0", request.cost).into_bytes();
    let webhook = request.webhook.as_deref().unwrap_or_default();
    for part in [
        request.queue.as_bytes(),
        &request.tenant,
        webhook.as_bytes(),
        idempotency,
    ] {
        packed.extend((part.len() as u32).to_be_bytes());
        packed.extend(part);
    }
    packed
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, Unexpected> {
    text.parse().map_err(|_| Unexpected)
}

/// Reads an ended request from its notice: its id, and then its facts, its state and its response under a name.
pub(super) fn found(
    id: Value,
    notice: &mut impl Iterator<Item = Value>,
    levels: &PriorityLevels,
) -> Result<Found, Unexpected> {
    let mut next = || notice.next().ok_or(Unexpected);
    let (facts, state, _, response) = (next()?, next()?, next()?, data(next()?)?);
    Ok(Found {
        info: info(Value::Array(vec![id, facts, state]), levels)?,
        // A response that is too large for a notice is empty here.
        response: Some(response).filter(|response| !response.is_empty()),
    })
}

/// Reads the head of a queue from a notification. Returns `None` if the notification only names the queue, for instance
/// because the queue already had a head.
pub(super) fn new_head(
    told: impl Iterator<Item = Value>,
    levels: &PriorityLevels,
) -> Result<Option<QueueHead>, Unexpected> {
    let told: Vec<Value> = told.collect();
    if told.is_empty() {
        return Ok(None);
    }
    head(Value::Array(told), levels).map(Some)
}

//! The keys of rows, which contain the number of their request.
//!
//! Numbers grow with time and come first in most keys. So rows are written in about the order in which they are sorted.

use sha2::{Digest, Sha256};

use tower_triage_durable::{RequestId, RequestStatus};

/// A hash of 16 bytes that stands for a longer name.
pub(crate) type Name = [u8; 16];

/// The kind of a row of a request, which is the first byte of the row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The row of the constant fields of a request that is listed.
    Listed = b'q',
    /// The row of the constant fields of a request that lists omit.
    Unlisted = b'u',
    /// The row of the fields that change.
    State = b's',
}

/// Returns the key of a row of a request.
pub(crate) fn row(kind: Kind, seq: u64) -> Vec<u8> {
    key(&[&[kind as u8], &seq.to_be_bytes()])
}

/// Returns the number of the request that a row belongs to, from the end of the row's key.
pub(crate) fn seq(key: &[u8]) -> Option<u64> {
    let seq = key.last_chunk()?;
    Some(u64::from_be_bytes(*seq))
}

/// Returns the key that maps the id of a request to its number.
pub(crate) fn id(id: RequestId) -> Vec<u8> {
    key(&[b"i", &id.bits().to_be_bytes()])
}

/// Returns the key that maps an idempotency key to the number of its request.
pub(crate) fn idempotency(name: &Name) -> Vec<u8> {
    key(&[b"k", name])
}

/// Returns the common beginning of the keys of a list, which the number of a request follows. There are lists of all
/// listed requests, of the requests of one tenant, and of requests that ended with one status.
pub(crate) fn list(tenant: Option<&Name>, ended: Option<RequestStatus>) -> Vec<u8> {
    match (tenant, ended) {
        (None, None) => vec![Kind::Listed as u8],
        (Some(tenant), None) => key(&[b"t", tenant]),
        (None, Some(status)) => vec![b'e', status as u8],
        (Some(tenant), Some(status)) => key(&[b"y", tenant, &[status as u8]]),
    }
}

/// Returns the key of a request's entry in a list.
pub(crate) fn entry(list: &[u8], seq: u64) -> Vec<u8> {
    key(&[list, &seq.to_be_bytes()])
}

/// Returns the key of a request's body.
pub(crate) fn body(seq: u64) -> Vec<u8> {
    key(&[&seq.to_be_bytes(), b"b"])
}

/// Returns the key of the body of a request in the table of rows, to which it moves when the table of bytes is dropped.
pub(crate) fn kept_body(seq: u64) -> Vec<u8> {
    key(&[b"b", &seq.to_be_bytes()])
}

/// Returns the key of a request's response.
pub(crate) fn response(seq: u64) -> Vec<u8> {
    key(&[&seq.to_be_bytes(), b"r"])
}

/// Returns the key of a part of a long response. The first part has the index 0.
pub(crate) fn response_part(seq: u64, index: u64) -> Vec<u8> {
    key(&[&seq.to_be_bytes(), b"p", &index.to_be_bytes()])
}

/// Returns the key of the length of a response that is stored in parts.
pub(crate) fn response_length(seq: u64) -> Vec<u8> {
    key(&[&seq.to_be_bytes(), b"n"])
}

/// Returns the key of a piece of a response. The keys are sorted by the numbers of the pieces.
pub(crate) fn chunk(seq: u64, number: u64) -> Vec<u8> {
    key(&[&seq.to_be_bytes(), b"c", &number.to_be_bytes()])
}

/// Returns the hashed name of a tenant.
pub(crate) fn tenant(tenant: &[u8]) -> Name {
    name(&[tenant])
}

/// Returns the hashed name of an idempotency key. Equal keys of different tenants have different names.
pub(crate) fn tenant_and_key(tenant: &[u8], idempotency: &str) -> Name {
    // The length separates the tenant from the key, so that different pairs can't have the same bytes.
    let length = (tenant.len() as u64).to_be_bytes();
    name(&[&length, tenant, idempotency.as_bytes()])
}

fn name(parts: &[&[u8]]) -> Name {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    let digest: [u8; 32] = digest.finalize().into();
    let mut name = Name::default();
    name.copy_from_slice(&digest[..16]);
    name
}

fn key(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

//! The keys of rows.

use crate::durable::RequestId;

/// The kind of a row with the fields of a request that never change.
pub(crate) const REQUEST: u8 = b'q';
/// The kind of a row with the fields of a request that change.
pub(crate) const STATE: u8 = b's';
const BODY: u8 = b'b';
const RESPONSE: u8 = b'r';
const CHUNK: u8 = b'c';

pub(crate) type Key = [u8; 17];

pub(crate) fn request(id: RequestId) -> Key {
    key(REQUEST, id)
}

pub(crate) fn state(id: RequestId) -> Key {
    key(STATE, id)
}

pub(crate) fn body(id: RequestId) -> Key {
    key(BODY, id)
}

pub(crate) fn response(id: RequestId) -> Key {
    key(RESPONSE, id)
}

/// Returns the beginning of the keys of all pieces of a response.
pub(crate) fn chunks(id: RequestId) -> Key {
    key(CHUNK, id)
}

/// Returns the key of a piece. Keys of pieces are in the order of their numbers.
pub(crate) fn chunk(id: RequestId, number: u64) -> [u8; 25] {
    let mut chunk = [0; 25];
    chunk[..17].copy_from_slice(&chunks(id));
    chunk[17..].copy_from_slice(&number.to_be_bytes());
    chunk
}

/// Returns the number in the key of a piece.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    let number = key.get(17..)?.try_into().ok()?;
    Some(u64::from_be_bytes(number))
}

/// Returns the request that a key belongs to.
pub(crate) fn id(key: &[u8]) -> Option<RequestId> {
    let id = key.get(1..17)?.try_into().ok()?;
    Some(RequestId::from_bits(u128::from_be_bytes(id)))
}

fn key(kind: u8, id: RequestId) -> Key {
    let mut key = [kind; 17];
    key[1..].copy_from_slice(&id.bits().to_be_bytes());
    key
}

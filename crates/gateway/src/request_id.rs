//! The id of a request, by which logs of clients, gateway and backends are joined.

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client that is kept, in bytes.
const LONGEST: usize = 128;

/// Returns the id of a request with these headers. An id that is missing or not well-formed is replaced by a random one, also
/// in the headers, so that the backend gets the same.
pub(crate) fn of(headers: &mut HeaderMap) -> HeaderValue {
    let mut given = headers.get_all(&X_REQUEST_ID).iter();
    if let (Some(id), None) = (given.next(), given.next())
        && is_well_formed(id.as_bytes())
        // A copy, because the value is a part of the buffer with the whole head.
        && let Ok(id) = HeaderValue::from_bytes(id.as_bytes())
    {
        return id;
    }
    let id = random();
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// Returns `true` for an id of visible ASCII characters. One of dots alone would be another path in a URL.
fn is_well_formed(id: &[u8]) -> bool {
    (1..=LONGEST).contains(&id.len())
        && id.iter().all(u8::is_ascii_graphic)
        && id.iter().any(|&byte| byte != b'.')
}

/// Returns 128 random bits in hexadecimal digits.
fn random() -> HeaderValue {
    let mut id = [0; 32];
    let (first, second) = id.split_at_mut(16);
    for half in [first, second] {
        let mut bits = fastrand::u64(..);
        for digit in half {
            *digit = b"0123456789abcdef"[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    HeaderValue::from_bytes(&id).expect("digits are valid in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(ids: &[&[u8]]) -> HeaderMap {
        let value = |id: &&[u8]| (X_REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        ids.iter()
            .map(value)
            .fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            })
    }

    #[test]
    fn well_formed_ids_of_clients_are_kept() {
        for id in [&b"req_1"[..], b"a/b?c=\"d\"", b"~", &[b'x'; LONGEST]] {
            let mut headers = headers(&[id]);
            assert_eq!(of(&mut headers).as_bytes(), id);
            assert_eq!(headers[X_REQUEST_ID].as_bytes(), id);
        }
    }

    #[test]
    fn all_others_are_replaced_by_random_ids() {
        let long = [b'x'; LONGEST + 1];
        let mut made = Vec::new();
        for ids in [
            &[][..],
            &[&b""[..]],
            &[&b"a b"[..]],
            &[&b".."[..]],
            &[&b"a\tb"[..]],
            &[&b"\xc3\xa9"[..]],
            &[&long[..]],
            &[&b"a"[..], b"b"],
        ] {
            let mut headers = headers(ids);
            let id = of(&mut headers);
            assert_eq!(id.len(), 32, "{ids:?}");
            let sent: Vec<_> = headers.get_all(X_REQUEST_ID).iter().collect();
            assert_eq!(sent, [&id], "{ids:?}");
            made.push(id);
        }
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 8);
    }
}

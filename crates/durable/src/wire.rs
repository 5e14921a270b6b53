//! The stored form of requests and responses, which is a head of lengths and bytes followed by the body.
//!
//! The first byte is the version of the form. All lengths and counts are 32 bits and the status of a response 16 bits,
//! with the most significant byte first.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use sha2::{Digest, Sha256};

use super::headers::{self, named_by_connection};

/// Encodes a request into the form in which a store keeps it.
///
/// It omits the headers that concern a single connection, those that steer the storing, and the length of the body,
/// which follows from the body itself.
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use tower_triage_durable::{decode_request, encode_request};
///
/// let request = Request::post("/v1/completions")
///     .header("prefer", "respond-async")
///     .header("x-tenant-id", "team-a")
///     .body(Bytes::from("{}"))?;
/// let read = decode_request(encode_request(&request))?;
/// assert_eq!(read.body(), "{}");
/// assert_eq!(read.headers().len(), 1); // the tenant
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn encode_request(request: &Request<Bytes>) -> Bytes {
    let uri = request.uri().to_string();
    let mut bytes = BytesMut::with_capacity(512 + uri.len() + request.body().len());
    bytes.put_u8(VERSION);
    put(&mut bytes, request.method().as_str().as_bytes());
    put(&mut bytes, uri.as_bytes());
    put_headers(&mut bytes, request.headers());
    bytes.put_slice(request.body());
    bytes.freeze()
}

/// Decodes a request that [`encode_request`] has encoded.
///
/// # Errors
///
/// Returns an error if the bytes have another form or version.
pub fn decode_request(stored: Bytes) -> Result<Request<Bytes>, InvalidStored> {
    let mut rest = Reader::new(stored)?;
    let method = Method::from_bytes(&rest.take()?).map_err(|_| InvalidStored(()))?;
    let uri = Uri::from_maybe_shared(rest.take()?).map_err(|_| InvalidStored(()))?;
    let headers = rest.headers()?;
    let mut request = Request::new(rest.0);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Encodes a response into the form in which a store keeps it. It omits the same headers as [`encode_request`].
#[must_use]
pub fn encode_response(response: &Response<Bytes>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512 + response.body().len());
    bytes.put_u8(VERSION);
    bytes.put_u16(response.status().as_u16());
    put_headers(&mut bytes, response.headers());
    bytes.put_slice(response.body());
    bytes.freeze()
}

/// Decodes a response that [`encode_response`] has encoded.
///
/// # Errors
///
/// Returns an error if the bytes have another form or version.
pub fn decode_response(stored: Bytes) -> Result<Response<Bytes>, InvalidStored> {
    let mut rest = Reader::new(stored)?;
    let status = rest.u16()?;
    let status = StatusCode::from_u16(status).map_err(|_| InvalidStored(()))?;
    let headers = rest.headers()?;
    let mut response = Response::new(rest.0);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Returns the SHA-256 digest of a request's method, path, query and body. A store compares it to tell a repetition
/// from another request under the same [idempotency key](super::Idempotency).
#[must_use]
pub fn fingerprint(request: &Request<Bytes>) -> [u8; 32] {
    let path = request.uri().path_and_query();
    let path = path.map_or("", |path| path.as_str());
    let mut digest = Sha256::new();
    for part in [request.method().as_str(), path] {
        digest.update(part);
        digest.update([0]); // a separator, because a method and a path never contain a zero byte
    }
    digest.update(request.body());
    digest.finalize().into()
}

/// The error of bytes that do not hold a stored request or response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a stored request or response of version {VERSION}")]
pub struct InvalidStored(());

const VERSION: u8 = 1;

fn put(bytes: &mut BytesMut, part: &[u8]) {
    // Servers bound the size of a head, so a part is always far below 4 GiB.
    bytes.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
    bytes.put_slice(part);
}

fn put_headers(bytes: &mut BytesMut, headers: &HeaderMap) {
    let named: Vec<_> = named_by_connection(headers).collect();
    let kept = headers
        .iter()
        .filter(|(name, _)| headers::is_stored(name) && !named.contains(name));
    // The count comes before the headers, so it is filled in once they are counted.
    let count_at = bytes.len();
    bytes.put_u32(0);
    let mut count = 0_u32;
    for (name, value) in kept {
        put(bytes, name.as_str().as_bytes());
        put(bytes, value.as_bytes());
        count += 1;
    }
    bytes[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
}

/// The part of the stored bytes that is still to be read.
struct Reader(Bytes);

impl Reader {
    fn new(bytes: Bytes) -> Result<Self, InvalidStored> {
        let mut reader = Self(bytes);
        match reader.split(1)?[0] {
            VERSION => Ok(reader),
            _ => Err(InvalidStored(())),
        }
    }

    fn split(&mut self, length: usize) -> Result<Bytes, InvalidStored> {
        if self.0.len() < length {
            return Err(InvalidStored(()));
        }
        Ok(self.0.split_to(length))
    }

    fn u16(&mut self) -> Result<u16, InvalidStored> {
        let bytes = self.split(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, InvalidStored> {
        let bytes = self.split(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn take(&mut self) -> Result<Bytes, InvalidStored> {
        let length = self.u32()?;
        self.split(usize::try_from(length).map_err(|_| InvalidStored(()))?)
    }

    fn headers(&mut self) -> Result<HeaderMap, InvalidStored> {
        let count = self.u32()?;
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let name = HeaderName::from_bytes(&self.take()?).map_err(|_| InvalidStored(()))?;
            let value = HeaderValue::from_maybe_shared(self.take()?);
            let value = value.map_err(|_| InvalidStored(()))?;
            headers
                .try_append(name, value)
                .map_err(|_| InvalidStored(()))?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn any_headers() -> impl Strategy<Value = HeaderMap> {
        // Any bytes that a value may have, 0x80 and above included.
        let byte = prop_oneof![Just(b'\t'), 0x20_u8..=0x7e, 0x80_u8..];
        let header = ("x-[a-z]{1,8}", vec(byte, 0..20));
        vec(header, 0..8).prop_map(|headers| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                map.append(name, HeaderValue::from_bytes(&value).unwrap());
            }
            map
        })
    }

    proptest! {
        #[test]
        fn a_request_reads_back_as_it_was(
            headers in any_headers(),
            method in "[A-Z]{1,10}",
            path in "(https?://[a-z]{1,5}(:[1-9][0-9]{0,3})?)?/[a-zA-Z0-9/%.~_-]{0,20}(\\?[a-z=&]{0,9})?",
            body in vec(any::<u8>(), 0..200),
        ) {
            let mut request = Request::new(Bytes::from(body));
            *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
            *request.uri_mut() = path.parse().unwrap();
            *request.headers_mut() = headers;
            let read = decode_request(encode_request(&request)).unwrap();
            prop_assert_eq!(read.method(), request.method());
            prop_assert_eq!(read.uri(), request.uri());
            prop_assert_eq!(read.headers(), request.headers());
            prop_assert_eq!(read.body(), request.body());
        }

        #[test]
        fn a_response_reads_back_as_it_was(
            headers in any_headers(),
            status in 100_u16..1000,
            body in vec(any::<u8>(), 0..200),
        ) {
            let mut response = Response::new(Bytes::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            *response.headers_mut() = headers;
            let read = decode_response(encode_response(&response)).unwrap();
            prop_assert_eq!(read.status(), response.status());
            prop_assert_eq!(read.headers(), response.headers());
            prop_assert_eq!(read.body(), response.body());
        }

        #[test]
        fn foreign_bytes_are_an_error_and_no_panic(
            mut bytes in vec(any::<u8>(), 0..100),
            is_versioned: bool,
        ) {
            if is_versioned {
                bytes.insert(0, VERSION);
            }
            let _ = decode_request(bytes.clone().into());
            let _ = decode_response(bytes.into());
        }
    }

    #[test]
    fn headers_of_the_connection_and_of_storing_are_left_out() {
        let request = Request::post("/")
            .header("connection", "keep-alive, x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("content-length", "2")
            .header("prefer", "respond-async")
            .header("idempotency-key", "k")
            .header("cancel-after", "1m")
            .header("not-before", "1")
            .header("webhook-url", "https://example.com")
            .header("x-cancel-on-disconnect", "true")
            .header("x-triage-attempt", "7")
            .header("content-type", "application/json")
            .body(Bytes::from("{}"))
            .unwrap();
        let read = decode_request(encode_request(&request)).unwrap();
        let names: Vec<_> = read.headers().keys().collect();
        assert_eq!(names, ["content-type"]);
    }

    #[test]
    fn method_path_query_and_body_make_the_fingerprint() {
        let print = |method: &str, path: &str, body: &'static str| {
            let request = Request::builder().method(method).uri(path);
            fingerprint(&request.body(Bytes::from(body)).unwrap())
        };
        let first = print("POST", "/a", "b");
        assert_eq!(first, print("POST", "/a", "b"));
        assert_eq!(first, print("POST", "http://host/a", "b"));
        for other in [
            print("PUT", "/a", "b"),
            print("POST", "/b", "b"),
            print("POST", "/a?x", "b"),
            print("POST", "/a", "c"),
        ] {
            assert_ne!(first, other);
        }
    }
}

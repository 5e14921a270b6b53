//! The head of a request, as closures of the layers see it.

#[cfg(feature = "route")]
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request: its method, URI, version, headers and extensions.
///
/// The extensions have what the layers outside of the queue and the server put there: axum's `MatchedPath` and
/// `ConnectInfo`, the identity of a client, a trace id.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    #[cfg(feature = "route")]
    pub(crate) fn of_parts(head: &'a Parts) -> Self {
        Self {
            method: &head.method,
            uri: &head.uri,
            version: head.version,
            headers: &head.headers,
            extensions: &head.extensions,
        }
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI. Inside a nested router of axum, it lacks the prefix of that router.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the version of HTTP.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

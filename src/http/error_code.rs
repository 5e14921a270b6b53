//! The code of an error response, for the layers around the one that made it.

/// The `code` of an error response in OpenAI's form, as an extension of the response.
///
/// The response of a [`Rejection`](super::Rejection) has it, and `Forward` sets it on those that take the place of an
/// endpoint's, such as `upstream_timeout`. Where a queue or a router rejects a request, the response has its
/// [`RejectReason`](crate::RejectReason) instead. A layer that logs reads both, and layers that make errors of their own may
/// set it, too.
///
/// ```
/// use http::Response;
/// use tower_triage::rejection::ErrorCode;
///
/// fn code<B>(response: &Response<B>) -> Option<&'static str> {
///     response.extensions().get().map(|&ErrorCode(code)| code)
/// }
/// let mut response = Response::new(());
/// response.extensions_mut().insert(ErrorCode("upstream_timeout"));
/// assert_eq!(code(&response), Some("upstream_timeout"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub &'static str);

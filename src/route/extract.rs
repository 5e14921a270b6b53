//! The source of a request's demand, which is its body or its head.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::endpoints::{Requirements, RouteError};

/// The part of a request that its demand is read from.
#[derive(Clone)]
pub(super) enum DemandSource {
    /// The body of the request, in OpenAI's format.
    Body,
    /// The head of the request. The body is then streamed.
    Head(Arc<Extract>),
}

type Extract = dyn Fn(&Parts) -> Result<Requirements<'static>, RouteError> + Send + Sync;

/// Returns requirements that consist only of a model's `name`. If the name is missing, the error says in which `place`
/// it was expected.
pub(super) fn named(
    name: Option<&str>,
    place: impl FnOnce() -> String,
) -> Result<Requirements<'static>, RouteError> {
    let name = name.map(str::trim).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| RouteError::ModelMissing { place: place() })?;
    Ok(Requirements::new(name.to_owned()))
}

/// Returns a path segment without its percent-encoding. Invalid escapes stay as they are. Returns `None` if the result
/// is not UTF-8.
pub(super) fn percent_decoded(segment: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(segment).decode_utf8().ok()
}

impl fmt::Debug for DemandSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Body => "Body",
            Self::Head(_) => "Head",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};

    use super::*;
    use crate::endpoints::Registry;
    use crate::route::{RouteLayer, RouteLayerBuilder};

    fn source(from: impl FnOnce(RouteLayerBuilder) -> RouteLayerBuilder) -> DemandSource {
        from(RouteLayer::builder(Registry::new(vec![]).unwrap())).demand_from
    }

    fn asked(source: &DemandSource, request: Request<()>) -> Result<String, RouteError> {
        let DemandSource::Head(read) = source else {
            panic!("not in the head");
        };
        let asked = read(&request.into_parts().0)?;
        Ok(asked.model.into_owned())
    }

    #[test]
    fn a_header_names_it() {
        let name = HeaderName::from_static("x-service");
        let source = source(|builder| builder.demand_from_header(name));
        let with = |value: &str| {
            Request::get("/")
                .header("x-service", value)
                .body(())
                .unwrap()
        };
        assert_eq!(asked(&source, with(" users ")).unwrap(), "users");
        for without in [with(" "), with("é"), Request::new(())] {
            let error = asked(&source, without).unwrap_err().to_string();
            assert!(error.contains("header `x-service`"), "{error}");
        }
    }

    #[test]
    fn a_segment_of_the_path_names_it() {
        let request = |path: &str| Request::get(path).body(()).unwrap();
        for (index, path, name) in [
            (0, "/users/7?x=y", Some("users")),
            (1, "/users/7?x=y", Some("7")),
            (2, "/users/7", None),
            (0, "/llama3%3a8b", Some("llama3:8b")),
            (
                1,
                "/v1/meta-llama%2FLlama-3%C3%A9/x",
                Some("meta-llama/Llama-3é"),
            ),
            (0, "/100%/", Some("100%")),
            (0, "/%zz%4", Some("%zz%4")),
            (0, "/%20", None),
            (0, "/%ff", None),
            (0, "/", None),
            (1, "/users/", None),
        ] {
            let source = source(|builder| builder.demand_from_path_segment(index));
            let got = asked(&source, request(path)).ok();
            assert_eq!(got.as_deref(), name, "{path}");
        }
    }

    #[test]
    fn an_extension_names_it() {
        let source = source(RouteLayerBuilder::demand_from_extension);
        let mut request = Request::new(());
        assert!(asked(&source, request.clone()).is_err());
        request.extensions_mut().insert(Requirements::new("users"));
        assert_eq!(asked(&source, request).unwrap(), "users");
    }
}

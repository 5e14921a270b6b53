//! Where the demand of a request is read from: its body, or its head.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use crate::endpoints::{Requirements, RouteError};

/// Where the demand of a request is read from.
#[derive(Clone)]
pub(super) enum DemandSource {
    /// Its body, in the format of OpenAI.
    Body,
    /// Its head. The body is streamed.
    Head(Arc<Extract>),
}

type Extract = dyn Fn(&Parts) -> Result<Requirements<'static>, RouteError> + Send + Sync;

impl DemandSource {
    pub(super) fn is_body(&self) -> bool {
        matches!(self, Self::Body)
    }

    pub(super) fn header(name: HeaderName) -> Self {
        Self::head(move |head| {
            let value = head
                .headers
                .get(&name)
                .and_then(|value| value.to_str().ok());
            named(value, || format!("header `{name}`"))
        })
    }

    pub(super) fn path_segment(index: usize) -> Self {
        Self::head(move |head| {
            let segments = head.uri.path().trim_start_matches('/').split('/');
            named(segments.into_iter().nth(index), || {
                format!("segment {} of its path", index + 1)
            })
        })
    }

    pub(super) fn extension() -> Self {
        Self::head(|head| {
            let asked = head.extensions.get::<Requirements<'static>>().cloned();
            asked.ok_or_else(|| RouteError::ModelMissing {
                place: "extension `Requirements`".to_owned(),
            })
        })
    }

    pub(super) fn head(
        read: impl Fn(&Parts) -> Result<Requirements<'static>, RouteError> + Send + Sync + 'static,
    ) -> Self {
        Self::Head(Arc::new(read))
    }
}

fn named(
    name: Option<&str>,
    place: impl FnOnce() -> String,
) -> Result<Requirements<'static>, RouteError> {
    let name = name.map(str::trim).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| RouteError::ModelMissing { place: place() })?;
    Ok(Requirements::new(name.to_owned()))
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
    use http::Request;

    use super::*;

    fn asked(source: &DemandSource, request: Request<()>) -> Result<String, RouteError> {
        let DemandSource::Head(read) = source else {
            panic!("not in the head");
        };
        let asked = read(&request.into_parts().0)?;
        Ok(asked.model.into_owned())
    }

    #[test]
    fn a_header_names_it() {
        let source = DemandSource::header(HeaderName::from_static("x-service"));
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
            (0, "/", None),
            (1, "/users/", None),
        ] {
            let got = asked(&DemandSource::path_segment(index), request(path)).ok();
            assert_eq!(got.as_deref(), name, "{path}");
        }
    }

    #[test]
    fn an_extension_names_it() {
        let mut request = Request::new(());
        assert!(asked(&DemandSource::extension(), request.clone()).is_err());
        request.extensions_mut().insert(Requirements::new("users"));
        assert_eq!(asked(&DemandSource::extension(), request).unwrap(), "users");
    }
}

//! Requests whose demand was read from the body or the head, so that they can acquire a slot.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::RouteBody;
use super::attempt::{Admitted, Attempt};
use super::read_request::ReadContent;
use super::request_body::BufferedBody;
use super::response_body::BoxError;
use super::rewrite::models_in_query;
use crate::admit::RejectReason;
use crate::endpoints::{Demand, Endpoints, Requirements, RouteError, RoutingTable};
use crate::gate::Shared;
use crate::openai::FormStart;
use crate::queue;
use crate::service::{Admission, Prepared};

/// The head of a request, with everything that its admission needs.
pub(super) struct RequestHead<S> {
    pub(super) attempt: Attempt,
    pub(super) inner: S,
    /// The result of `poll_ready`, such as a reserved place in the waiting room.
    pub(super) prepared: Option<Prepared<Shared<Endpoints>>>,
    pub(super) head: Parts,
}

impl<S: Clone> Clone for RequestHead<S> {
    fn clone(&self) -> Self {
        Self {
            attempt: self.attempt.clone(),
            inner: self.inner.clone(),
            prepared: None, // a reservation is for one attempt
            head: self.head.clone(),
        }
    }
}

/// The demand of a request, and its body as the inner service gets it.
pub(super) type Parsed<B> = Result<(Demand, RouteBody<B>), RejectReason<RouteError>>;

impl<S> RequestHead<S> {
    /// Parses a request from its body, which has been read.
    pub(super) fn parse_body<B>(&mut self, content: ReadContent<B>) -> Parsed<B> {
        if let Some(encoding) = encoding(&self.head.headers) {
            let encoded = RouteError::EncodedBody { encoding };
            return Err(RejectReason::Unservable(encoded));
        }
        match content {
            ReadContent::Json(bytes) => self.parse_json(bytes),
            ReadContent::Form(form) => self.parse_form(form),
        }
        .map_err(RejectReason::Unservable)
    }

    fn parse_json<B>(&mut self, bytes: Bytes) -> Result<(Demand, RouteBody<B>), RouteError> {
        let table = self.attempt.shared.endpoints().table.load();
        let (mut asked, model_at) = Requirements::read(&bytes, table.reads_prefixes)?;
        if asks_for_length(&self.head) {
            asked.context_tokens = Some(0); // a prompt that is too long has a length, too
        }
        if asked.any_length.is_none() && cuts_prompts(&self.head) {
            asked.any_length = Some(true);
        }
        self.check_model(&table, &asked)?;
        let demand = table.demand(&asked);
        self.attempt.shows_load = asked.stream && table.shows_load(&demand) && is_chat(&self.head);
        drop(table);
        self.attempt.ask(&asked);
        let body = self.attempt.body.insert(BufferedBody {
            bytes,
            model_at,
            is_form: false,
        });
        Ok((demand, body.clone().unchanged()))
    }

    fn parse_form<B>(&mut self, form: FormStart<B>) -> Result<(Demand, RouteBody<B>), RouteError> {
        let FormStart {
            bytes,
            model_at,
            rest,
        } = form;
        let name = model_at.clone().map_or(&b""[..], |at| &bytes[at]);
        let asked = Requirements::new(String::from_utf8_lossy(name)); // the form was checked
        let demand = self.demand(&asked)?;
        let start = BufferedBody {
            bytes: bytes.clone(),
            model_at,
            is_form: true,
        };
        let body = match rest {
            Some(rest) => start.followed_by(rest),
            None => self.attempt.body.insert(start).clone().unchanged(),
        };
        Ok((demand, body))
    }

    /// Parses a request from its head. The body is streamed unless it is empty.
    pub(super) fn parse_head<B: Body>(&mut self, body: B) -> Parsed<B> {
        let asked = self.asked_by_head().map_err(RejectReason::Unservable)?;
        let demand = self.demand(&asked).map_err(RejectReason::Unservable)?;
        if body.is_end_stream() {
            let empty = self.attempt.body.insert(BufferedBody::default()); // an empty body can be sent again
            return Ok((demand, empty.clone().unchanged()));
        }
        Ok((demand, RouteBody::streamed(body)))
    }

    fn asked_by_head(&self) -> Result<Requirements<'static>, RouteError> {
        match &self.attempt.shared.options.demand_from {
            DemandSource::Head(extract) => extract(&self.head),
            DemandSource::Body => extension(&self.head),
        }
    }

    /// Returns the demand of a request, if it may ask for its model.
    fn demand(&mut self, asked: &Requirements<'_>) -> Result<Demand, RouteError> {
        let table = self.attempt.shared.endpoints().table.load();
        self.check_model(&table, asked)?;
        let demand = table.demand(asked);
        drop(table);
        self.attempt.ask(asked);
        Ok(demand)
    }

    /// Checks that the request may ask for its model, or that an endpoint serves requests without a model.
    fn check_model(
        &self,
        table: &RoutingTable,
        asked: &Requirements<'_>,
    ) -> Result<(), RouteError> {
        if asked.model.is_empty() && !table.is_configured("") {
            return Err(RouteError::model_missing());
        }
        let shared = &self.attempt.shared;
        let head = queue::RequestHead::of_parts(&self.head);
        let rules = &shared.options.client_rules;
        let routing = || shared.endpoints().routing();
        rules.check_model(&head, &asked.model, routing)?;
        // A server may prefer the model that the query names.
        let models = self.head.uri.query().into_iter().flat_map(models_in_query);
        for model in models.filter(|model| *model != asked.model) {
            rules.check_model(&head, &model, routing)?;
        }
        Ok(())
    }

    /// Takes a slot if one is free for the request, or else queues the request.
    pub(super) fn admit<B, R>(mut self, demand: Demand, body: RouteBody<B>) -> Admitted<S, B, R>
    where
        S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        R: Body<Data = Bytes>,
    {
        let request = Request::from_parts(self.head, body);
        let (attempt, inner) = (&mut self.attempt, &mut self.inner);
        Admission::start(attempt, inner, request, demand, self.prepared)
    }
}

/// Returns `true` if a request is for a chat in OpenAI's format.
fn is_chat(head: &Parts) -> bool {
    head.uri.path().ends_with("/chat/completions")
}

/// Returns `true` if a request asks for the length of its prompt, in the format of Anthropic, llama.cpp or vLLM.
fn asks_for_length(head: &Parts) -> bool {
    let path = head.uri.path();
    path.ends_with("/count_tokens") || path.ends_with("/tokenize")
}

/// Returns `true` if a request is in the format of Ollama, which cuts a prompt that is too long unless it is told not to.
fn cuts_prompts(head: &Parts) -> bool {
    let ends = [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
    ];
    ends.iter().any(|end| head.uri.path().ends_with(end))
}

/// Returns the demand that a layer in front has put among the extensions of a request.
pub(super) fn extension(head: &Parts) -> Result<Requirements<'static>, RouteError> {
    let asked = head.extensions.get::<Requirements<'static>>().cloned();
    asked.ok_or_else(|| RouteError::ModelMissing {
        place: "extension `Requirements`".to_owned(),
    })
}

/// Returns the `Content-Encoding` of the body, if the body is encoded.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let mut encodings = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = encodings.find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    encoding.map(|encoding| encoding.into_owned())
}

/// The part of a request that its demand is read from.
#[derive(Clone)]
pub(super) enum DemandSource {
    /// The body of the request, in OpenAI's format, unless the demand is among the request's extensions.
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
        from(RouteLayer::builder(Registry::new(vec![]).unwrap()))
            .options
            .demand_from
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

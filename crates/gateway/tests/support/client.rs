//! Test clients of the gateway, which can disconnect at any time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::process::TIMEOUT;

#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
}

impl Client {
    pub(crate) fn new(url: String) -> Self {
        Self::trusting(RootCertStore::empty().into(), url)
    }

    /// A client of an address with TLS.
    pub(crate) fn trusting(roots: Arc<RootCertStore>, url: String) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector(roots));
        Self { http, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn ask(&self, model: &str) -> ClientRequest {
        let body = serde_json::json!({ "model": model }).to_string();
        let ask = self.to(Method::POST, "/v1/chat/completions");
        ask.header("content-type", "application/json").body(body)
    }

    pub(crate) fn get(&self, path: &str) -> ClientRequest {
        self.to(Method::GET, path)
    }

    pub(crate) fn head(&self, path: &str) -> ClientRequest {
        self.to(Method::HEAD, path)
    }

    pub(crate) fn options(&self, path: &str) -> ClientRequest {
        self.to(Method::OPTIONS, path)
    }

    /// A client of the same address that speaks HTTP/2.
    pub(crate) fn http2(&self) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector(RootCertStore::empty().into()));
        let url = self.url.clone();
        Self { http, url }
    }

    /// A POST without a body.
    pub(crate) fn post(&self, path: &str) -> ClientRequest {
        self.to(Method::POST, path)
    }

    /// The answers to four callers. Each sends so many requests, one after the other.
    pub(crate) async fn four_callers(
        &self,
        each: usize,
        request: impl Fn(&Self, usize) -> ClientRequest + Clone + Send + 'static,
    ) -> Vec<Answer> {
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (client, request) = (self.clone(), request.clone());
            callers.spawn(async move {
                let mut answers = Vec::new();
                for nth in 0..each {
                    answers.push(request(&client, nth).answer().await);
                }
                answers
            });
        }
        callers.join_all().await.into_iter().flatten().collect()
    }

    fn to(&self, method: Method, path: &str) -> ClientRequest {
        ClientRequest {
            client: self.clone(),
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }
}

fn connector(roots: Arc<RootCertStore>) -> HttpsConnector<HttpConnector> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(config);
    connector.https_or_http().enable_http1().build()
}

/// A request before it is sent.
#[must_use]
pub(crate) struct ClientRequest {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl ClientRequest {
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    pub(crate) fn high(self) -> Self {
        self.header("x-priority", "high")
    }

    pub(crate) fn tenant(self, tenant: &str) -> Self {
        self.header("x-tenant-id", tenant)
    }

    /// Sets the label that the backend reads by `BackendRequest::label`.
    pub(crate) fn label(self, label: &str) -> Self {
        self.header("x-label", label)
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request and returns when the response headers have arrived.
    pub(crate) async fn open(self) -> Response<Incoming> {
        let opened = timeout(TIMEOUT, self.request()).await;
        opened.expect("no response arrives").unwrap()
    }

    /// Sends the request and returns the whole response.
    pub(crate) async fn answer(self) -> Answer {
        self.send().answer().await
    }

    /// Sends the request without waiting for the response.
    pub(crate) fn send(self) -> PendingResponse {
        PendingResponse(tokio::spawn(async move {
            let since = Instant::now();
            let (head, body) = self.request().await.unwrap().into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                text: body.map(|body| String::from_utf8_lossy(&body).into_owned()),
                after: since.elapsed(),
            }
        }))
    }

    async fn request(self) -> Result<Response<Incoming>, legacy::Error> {
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = format!("{}{}", self.client.url, self.path).parse().unwrap();
        *request.headers_mut() = self.headers;
        self.client.http.request(request).await
    }
}

/// A request that has been sent.
pub(crate) struct PendingResponse(JoinHandle<Answer>);

impl PendingResponse {
    pub(crate) async fn answer(self) -> Answer {
        let answer = timeout(TIMEOUT, self.0).await;
        answer.expect("no response arrives").unwrap()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) fn disconnect(self) {
        self.0.abort();
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body; an error if the connection was reset.
    pub(crate) text: Result<String, hyper::Error>,
    pub(crate) after: Duration,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        self.text.as_ref().unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }

    /// Status and code of an error in OpenAI's format.
    pub(crate) fn error(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        assert!(error["message"].is_string(), "{self:?}");
        assert!(error["type"].is_string(), "{self:?}");
        assert!(error.get("param").is_some(), "{self:?}");
        (self.status, error["code"].as_str().unwrap().to_owned())
    }

    /// The message of an error.
    pub(crate) fn message(&self) -> String {
        let message = &self.json()["error"]["message"];
        message
            .as_str()
            .expect("the error has no message")
            .to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts an error with this status and code; 429 and 503 must have `retry-after`.
    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()));
        if matches!(status, 429 | 503) {
            let seconds = self.header("retry-after").expect("retry-after is missing");
            assert!(seconds.parse::<u32>().unwrap() >= 1, "{seconds}");
        }
    }

    /// Asserts status 200 and the body `text`.
    #[track_caller]
    pub(crate) fn assert_ok(&self, text: &str) {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.text(), text);
    }
}

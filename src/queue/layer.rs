//! The layer that puts a waiting room in front of a service.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::classify::{ByHeaders, Everyone};
use super::common::Common;
use super::handle::QueueHandle;
use super::protocol::{Http, Plain};
use super::service::Queue;
use super::shared::Shared;
use super::{Concurrency, ConfigError, QueueConfig};
use crate::admit::Permits;
use crate::http::Rejection;

/// Puts a bounded, ordered waiting room in front of a service.
///
/// **Every service that one layer value makes, and every clone of either, shares one waiting room and its
/// slots**: wrapped around two routes and served on four connections, a limit of 1 is a limit of 1.
///
/// A slot is held until the response's body is over. A connection that a handler upgrades, to a WebSocket for
/// example, holds none from the 101 on: see [`Hold`](super::Hold).
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use bytes::Bytes;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let config = QueueConfig::new(4).max_size(100).max_wait(Duration::from_secs(10));
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::new(config))
///     .service(service_fn(|_: Request<Full<Bytes>>| async {
///         Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hello"))))
///     }));
///
/// let response = service.oneshot(Request::default()).await.unwrap();
/// assert_eq!(response.headers()["server-timing"], "queue;dur=0");
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueLayer<P = Http> {
    common: Arc<Common<Permits>>,
    protocol: P,
}

impl QueueLayer {
    /// A waiting room for an HTTP or gRPC service, where rejections are responses.
    ///
    /// # Panics
    ///
    /// If the configuration is invalid, with the field and what is allowed. A configuration that comes from
    /// outside the program belongs into [`try_new`](Self::try_new).
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        match Self::try_new(config) {
            Ok(layer) => layer,
            Err(error) => panic!("invalid `QueueConfig`: {error}"),
        }
    }

    /// A waiting room for an HTTP or gRPC service, where rejections are responses.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid: which field, its value, and what is allowed.
    pub fn try_new(config: QueueConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            common: common(config)?,
            protocol: Http {
                classify: ByHeaders,
                render: None,
            },
        })
    }
}

impl QueueLayer<Plain> {
    /// A waiting room for any other service, where rejections are errors
    /// ([`QueueError`](super::QueueError)) and the slot is held until the response future ends. Everyone has
    /// the default priority unless [`classify`](Self::classify) says otherwise.
    ///
    /// ```
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_triage::{QueueConfig, QueueError, QueueLayer, Rejected};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = QueueLayer::plain(QueueConfig::new(1))?;
    /// let handle = queue.handle();
    /// let service = ServiceBuilder::new()
    ///     .layer(queue)
    ///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
    /// assert_eq!(service.clone().oneshot(1).await?, 2);
    ///
    /// handle.close();
    /// let refused = service.oneshot(1).await.unwrap_err();
    /// assert!(matches!(refused, QueueError::Rejected(Rejected::ShuttingDown)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the configuration is invalid: which field, its value, and what is allowed.
    pub fn plain(config: QueueConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            common: common(config)?,
            protocol: Plain { classify: Everyone },
        })
    }
}

impl<K> QueueLayer<Http<K>> {
    /// Reads tickets with `classify` instead: a closure `Fn(&Request<_>, Instant) -> Ticket`, or a
    /// [`Classify`](super::Classify), which can build on what the headers say. The headers that
    /// the configuration names, and those with deadlines, are then not read.
    ///
    /// ```
    /// use std::time::Instant;
    /// use axum::extract::Request;
    /// use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};
    ///
    /// let pays = |request: &Request| request.headers().contains_key("x-paid");
    /// let queue = QueueLayer::new(QueueConfig::new(8)).classify(
    ///     move |request: &Request, arrival: Instant| {
    ///         Ticket::new(Priority(u8::from(!pays(request))), arrival)
    ///     },
    /// );
    /// # let _: axum::Router = axum::Router::new().layer(queue);
    /// ```
    #[must_use]
    pub fn classify<N>(self, classify: N) -> QueueLayer<Http<N>> {
        QueueLayer {
            common: self.common,
            protocol: Http {
                classify,
                render: self.protocol.render,
            },
        }
    }

    /// Writes rejections with `render` instead, which gets the rejection and the request's headers. What it
    /// returns is sent as it is, but for `server-timing`; gRPC callers get it, too.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{HeaderMap, Response};
    /// use tower_triage::{QueueConfig, QueueLayer, Rejection};
    ///
    /// let page = |why: &Rejection, _: &HeaderMap| {
    ///     let mut response = Response::new(Bytes::from(format!("Sorry: {}.", why.message())));
    ///     *response.status_mut() = why.status();
    ///     if let Some(wait) = why.retry_after() {
    ///         response.headers_mut().insert("retry-after", wait.as_secs().into());
    ///     }
    ///     response
    /// };
    /// let queue = QueueLayer::new(QueueConfig::new(8)).on_reject(page);
    /// ```
    #[must_use]
    pub fn on_reject<F>(mut self, render: F) -> Self
    where
        F: Fn(&Rejection, &http::HeaderMap) -> http::Response<Bytes> + Send + Sync + 'static,
    {
        self.protocol.render = Some(Arc::new(render));
        self
    }
}

impl<K> QueueLayer<Plain<K>> {
    /// Reads tickets with `classify` instead: a closure `Fn(&Req, Instant) -> Ticket`, or a
    /// [`Classify`](super::Classify).
    #[must_use]
    pub fn classify<N>(self, classify: N) -> QueueLayer<Plain<N>> {
        QueueLayer {
            common: self.common,
            protocol: Plain { classify },
        }
    }
}

impl<P> QueueLayer<P> {
    /// Closes the waiting room when `token` is cancelled: everyone who waits is answered at once, and so is
    /// everyone who comes; running requests finish.
    ///
    /// A layer that is built outside a Tokio runtime watches the token from its first request on.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.common.shut_down_with(token);
        self
    }

    /// Reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::clone(&self.common))
    }

    /// For inner services that cannot be cloned, such as a rate limit: the services that are made share one
    /// inner service, which only the request that is next uses.
    ///
    /// # Errors
    ///
    /// If the concurrency is not [`Concurrency::Inner`]: with a number of its own, several requests would
    /// use the inner service at a time.
    pub fn share_inner(self) -> Result<SharedQueueLayer<P>, ConfigError> {
        match self.common.settings().config.concurrency {
            Concurrency::Inner => Ok(SharedQueueLayer(self)),
            Concurrency::Limit(_) => Err(ConfigError::CannotShare),
        }
    }
}

impl<S, P: Clone> Layer<S> for QueueLayer<P> {
    type Service = Queue<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        Queue::new(inner, Arc::clone(&self.common), self.protocol.clone())
    }
}

fn common(config: QueueConfig) -> Result<Arc<Common<Permits>>, ConfigError> {
    let permits = match config.concurrency {
        Concurrency::Limit(limit) => Permits::new(limit),
        Concurrency::Inner => Permits::by_turn(),
    };
    Common::new(permits, config)
}

/// A [`QueueLayer`] for inner services that cannot be cloned. Made by [`QueueLayer::share_inner`].
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::inner())?.share_inner()?)
///     .rate_limit(100, Duration::from_secs(1))
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
///
/// assert_eq!(service.oneshot(1).await?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedQueueLayer<P = Http>(QueueLayer<P>);

impl<P> SharedQueueLayer<P> {
    /// Reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.0.handle()
    }
}

impl<S, P: Clone> Layer<S> for SharedQueueLayer<P> {
    type Service = Queue<Shared<S>, P>;

    fn layer(&self, inner: S) -> Self::Service {
        self.0.layer(Shared::new(inner))
    }
}

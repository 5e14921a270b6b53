//! The task that sends webhooks.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::{DueWebhook, Store, front};
use super::resolver::CheckedResolver;
use super::{WebhookAddresses, WebhookSecret};

/// The largest number of webhooks that are sent at the same time. It is high, because each silent receiver occupies one
/// of them until the timeout.
const AT_ONCE: usize = 256;
/// The time until the next look at due webhooks, if the last look found nothing.
const LOOK: Duration = Duration::from_secs(1);
/// The time within which a receiver has to respond. It is shorter than the minute after which the store hands the
/// webhook out again.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest pause between two tries, where the first pause is 1 s.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The time from the end of a request until its webhook is given up.
const GIVE_UP: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector<CheckedResolver>>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector<CheckedResolver>;

/// A sender of the webhooks of a store, which tell callers that their requests have ended.
#[must_use = "a sender does nothing unless it is run"]
pub struct WebhookSender {
    store: Arc<dyn Store>,
    secret: WebhookSecret,
    addresses: WebhookAddresses,
    client: Client<Connector, Full<Bytes>>,
    /// The start of the sender on both clocks. Later times are this time plus the monotonic time since then.
    started: (SystemTime, Instant),
}

impl WebhookSender {
    /// Creates a sender that signs with `secret` and connects only to these addresses.
    pub fn new(store: Arc<dyn Store>, secret: WebhookSecret, addresses: WebhookAddresses) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(CheckedResolver(addresses));
        tcp.set_connect_timeout(Some(TIMEOUT / 2));
        let client = Client::builder(TokioExecutor::new())
            // Each of the many receivers gets webhooks seldom, so idle connections are closed at once.
            .pool_max_idle_per_host(0)
            .build(connector(tcp));
        Self {
            store,
            secret,
            addresses,
            client,
            started: (SystemTime::now(), Instant::now()),
        }
    }

    /// Sends webhooks as they become due, until the future is dropped.
    ///
    /// Webhooks that are being sent at that time are sent again later. Several processes may each run a sender on the
    /// same store.
    pub async fn run(self) {
        let sender = Arc::new(self);
        let mut sending = JoinSet::new();
        loop {
            while sending.try_join_next().is_some() {}
            let room = AT_ONCE - sending.len();
            let due = match room {
                0 => Ok(Vec::new()),
                room => sender.store.due_webhooks(room).await,
            };
            let due = due.unwrap_or_else(|error| {
                tracing::warn!(%error, "webhooks that are due could not be looked up; trying again");
                Vec::new()
            });
            let is_idle = due.is_empty();
            for webhook in due {
                let sender = Arc::clone(&sender);
                sending.spawn(async move { sender.tell(webhook).await });
            }
            // Wait for a second if nothing is due, for a free place if all are taken, and otherwise look again at once.
            tokio::select! {
                () = sleep(LOOK), if is_idle => {}
                () = std::future::ready(()), if !is_idle && sending.len() < AT_ONCE => {}
                Some(_) = sending.join_next(), if sending.len() == AT_ONCE => {}
            }
        }
    }

    /// Sends one webhook, and then settles it or postpones it to the next try.
    async fn tell(&self, webhook: DueWebhook) {
        let id = webhook.info.id;
        let sent = timeout(TIMEOUT, self.send(&webhook)).await;
        let problem = sent
            .unwrap_or_else(|_| Err("it did not respond in time".into()))
            .err();
        let again = problem.and_then(|problem| {
            let backoff = backoff(webhook.tries);
            let is_late = self.age(&webhook) + backoff > GIVE_UP;
            match is_late {
                true => tracing::warn!(request = %id, %problem, "a webhook is given up"),
                false => {
                    tracing::debug!(request = %id, %problem, "a webhook is sent again in {backoff:?}");
                }
            }
            (!is_late).then_some(backoff)
        });
        if let Err(error) = self.store.settle_webhook(id, again).await {
            tracing::warn!(request = %id, %error, "a webhook that was sent is sent again");
        }
    }

    /// Returns the time since the end of the request.
    fn age(&self, webhook: &DueWebhook) -> Duration {
        let (system, instant) = self.started;
        let now = system + instant.elapsed();
        let ended = webhook.info.ended.unwrap_or(webhook.info.created);
        now.duration_since(ended).unwrap_or_default()
    }

    async fn send(&self, webhook: &DueWebhook) -> Result<(), Box<dyn Error + Send + Sync>> {
        let url: Uri = webhook.url.parse()?;
        // A numeric host is connected to without a look-up, so the resolver can't check it.
        if let Err(rejection) = self.addresses.check(&url) {
            return Err(rejection.message().to_owned().into());
        }
        let id = webhook.info.id.to_string();
        let body = front::to_json(&webhook.info);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = since.map_or(0, |since| since.as_secs());
        let signature = self.secret.sign(&id, timestamp, &body);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("tower-triage"));
        headers.insert("webhook-id", id.parse()?);
        headers.insert("webhook-timestamp", timestamp.into());
        headers.insert("webhook-signature", signature.parse()?);
        let status = self.client.request(request).await?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("it responded with {status}").into()),
        }
    }
}

/// Returns the pause after a failed try, where `tries` counts the earlier ones.
fn backoff(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.min(6)).min(MAX_BACKOFF)
}

#[cfg(feature = "tls")]
fn connector(mut tcp: HttpConnector<CheckedResolver>) -> Connector {
    use hyper_rustls::ConfigBuilderExt;
    use rustls::{ClientConfig, RootCertStore};

    tcp.enforce_http(false);
    // The provider is explicit, because the program may lack a default one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for the default versions")
    };
    let builder = builder().with_native_roots().unwrap_or_else(|error| {
        tracing::warn!(%error, "webhooks to https:// addresses will fail");
        builder().with_root_certificates(RootCertStore::empty())
    });
    (tcp, builder.with_no_client_auth()).into()
}

#[cfg(not(feature = "tls"))]
fn connector(tcp: HttpConnector<CheckedResolver>) -> Connector {
    tcp
}

impl fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSender").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tries_go_from_a_second_to_a_minute() {
        let seconds: Vec<_> = (0..8).map(|tries| backoff(tries).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}

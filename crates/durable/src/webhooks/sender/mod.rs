//! The task that sends webhooks.

mod message;
mod outbox;
mod resolver;
mod secret;
mod turns;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use self::message::{Message, Source};
use self::outbox::Outbox;
use self::resolver::CheckedResolver;
use self::turns::{Turn, Turns};
use super::WebhookAddresses;
use crate::worker::retry_after;
use crate::{Store, StoreError};

pub use self::secret::{InvalidWebhookSecret, WebhookSecret};

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
    /// The secrets that sign each webhook.
    secrets: Vec<WebhookSecret>,
    addresses: WebhookAddresses,
    client: Client<Connector, Full<Bytes>>,
    /// The time of the store at the start of the sender, and the instant.
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
            started: (store.now(), Instant::now()),
            store,
            secrets: vec![secret],
            addresses,
            client,
        }
    }

    /// Adds a secret that signs webhooks, too. While a secret is replaced, both the old and the new one sign, so that each
    /// receiver can verify with the one that it has.
    pub fn also_signing(mut self, secret: WebhookSecret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends webhooks as they become due, until the future is dropped.
    ///
    /// Webhooks that are being sent at that time are sent again later. Several processes may each run a sender on the
    /// same store.
    pub async fn run(self) {
        let sender = Arc::new(self);
        let (mut turns, mut outbox) = (Turns::default(), Outbox::default());
        let mut sending = JoinSet::new();
        loop {
            while let Some(turn) = sending.try_join_next() {
                end(&mut turns, turn);
            }
            turns.forget_stale(Instant::now());
            let is_idle = !sender.take_due(&mut turns, &mut outbox).await;
            while let Some(turn) = turns.next(Instant::now()) {
                let sender = Arc::clone(&sender);
                sending.spawn(async move {
                    sender.tell(&turn.message).await;
                    turn
                });
            }
            // Wait for a second if nothing is due, or until a place is free, and otherwise look again at once.
            tokio::select! {
                () = sleep(LOOK), if is_idle => {}
                () = std::future::ready(()), if !is_idle => {}
                Some(turn) = sending.join_next(), if is_idle => end(&mut turns, turn),
            }
        }
    }

    /// Takes webhooks that are due. Returns `false` if there were none, or there is no room for them.
    async fn take_due(&self, turns: &mut Turns, outbox: &mut Outbox) -> bool {
        let due = match turns.room() {
            0 => Ok(Vec::new()),
            room => self.due(room, outbox).await,
        };
        let due = due.unwrap_or_else(|error| {
            tracing::warn!(%error, "webhooks that are due could not be looked up; trying again");
            Vec::new()
        });
        let has_some = !due.is_empty();
        for message in due {
            if let Some((message, pause)) = turns.add(message, Instant::now()) {
                self.settle(&message, Some(pause)).await;
            }
        }
        has_some
    }

    async fn due(&self, room: usize, outbox: &mut Outbox) -> Result<Vec<Message>, StoreError> {
        let requests = match self.store.webhooks() {
            Some(webhooks) => webhooks.due_webhooks(room).await?,
            None => Vec::new(),
        };
        // The times of a request are for people to read, so they are by the system's clock.
        let now = self.store.system_time(self.now());
        let requests = requests.into_iter();
        let mut due: Vec<_> = requests.map(|it| Message::of_request(it, now)).collect();
        // A failure leaves the webhooks of requests, which are taken already, as they are.
        let others = outbox.take_due(&self.store).await;
        let others = others.or_else(|error| match due.is_empty() {
            true => Err(error),
            false => Ok(Vec::new()),
        })?;
        let now = self.now();
        due.extend(others.into_iter().map(|it| Message::of_outbox(it, now)));
        Ok(due)
    }

    /// Sends one webhook, and then settles it or postpones it to the next try.
    async fn tell(&self, message: &Message) {
        let id = &message.id;
        let sent = timeout(TIMEOUT, self.send(message)).await;
        let failed = match sent {
            Ok(Ok(())) => None,
            Ok(Err(failed)) => Some(failed),
            Err(_) => Some("it did not respond in time".into()),
        };
        let again = failed.and_then(|Failed { problem, again }| {
            let pause = again.map(|asked| asked.max(backoff(message.tries)));
            let pause = pause.filter(|pause| message.age + *pause <= GIVE_UP);
            match pause {
                None => tracing::warn!(%id, %problem, "a webhook is given up"),
                Some(pause) => {
                    tracing::debug!(%id, %problem, "a webhook is sent again in {pause:?}");
                }
            }
            pause
        });
        self.settle(message, again).await;
    }

    async fn settle(&self, message: &Message, again: Option<Duration>) {
        let id = &message.id;
        let settled = match &message.source {
            Source::Request(request, retries) => {
                let store = &self.store;
                store.settle_webhook(*request, *retries, again).await
            }
            Source::Outbox(row) => outbox::settle(&self.store, id, row, again).await,
        };
        if let Err(error) = settled {
            tracing::warn!(%id, %error, "a webhook is sent again");
        }
    }

    /// Returns the time of the store. The clock of the store may be set, and must not give up webhooks then, so the time since
    /// the start of the sender counts if it says less.
    fn now(&self) -> SystemTime {
        let (started, instant) = self.started;
        self.store.now().min(started + instant.elapsed())
    }

    async fn send(&self, message: &Message) -> Result<(), Failed> {
        let url: Uri = message.url.parse()?;
        // A numeric host is connected to without a look-up, so the resolver can't check it.
        if let Err(rejection) = self.addresses.check(&url) {
            return Err(rejection.message().to_owned().into());
        }
        let (id, body) = (&message.id, message.body.clone());
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = since.map_or(0, |since| since.as_secs());
        let secrets = self.secrets.iter();
        let signatures: Vec<_> = secrets.map(|it| it.sign(id, timestamp, &body)).collect();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("tower-triage"));
        headers.insert("webhook-id", id.parse()?);
        headers.insert("webhook-timestamp", timestamp.into());
        headers.insert("webhook-signature", signatures.join(" ").parse()?);
        let response = self.client.request(request).await?;
        let status = response.status();
        let again = match status {
            StatusCode::GONE => None,
            _ => Some(retry_after(response.headers()).unwrap_or_default()),
        };
        match status.is_success() {
            true => Ok(()),
            false => Err(Failed {
                problem: format!("it responded with {status}").into(),
                again,
            }),
        }
    }
}

/// A failed try to send a webhook.
struct Failed {
    problem: Box<dyn Error + Send + Sync>,
    /// The least time until the next try, or `None` if the receiver wants none.
    again: Option<Duration>,
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failed {
    fn from(problem: E) -> Self {
        Self {
            problem: problem.into(),
            again: Some(Duration::ZERO),
        }
    }
}

/// Gives the place of a webhook back.
fn end(turns: &mut Turns, turn: Result<Turn, JoinError>) {
    match turn {
        Ok(turn) => turns.end(&turn, Instant::now()),
        Err(error) => tracing::error!(%error, "the sending of a webhook panicked"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_go_from_a_second_to_a_minute() {
        let seconds: Vec<_> = (0..8).map(|tries| backoff(tries).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}

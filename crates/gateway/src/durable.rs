//! Stored requests, as `[durable]` says: the store, the layers in front of the routed service, and the workers behind it.

mod classify;
mod counters;
mod drain;
mod gauges;
mod runs;
mod straight;
mod workers;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};
use tower_triage::{QueueConfig, RouteHandle};
use tower_triage_batches::{BatchApi, BatchService};
use tower_triage_durable::webhooks::{WebhookAddresses, WebhookSecret, WebhookSender};
use tower_triage_durable::{
    Classifier, DrainStore, Durable as DurableService, DurableHandle, DurableLayer, StorageQuota,
    Store, StoreConfig,
};
use tower_triage_embedded::{EmbeddedStore, OpenError};
use tower_triage_redis::shared_limits::{SharedLimits, SharedLimitsConfig};
use tower_triage_redis::{RedisConfig, RedisStore};

use crate::config::{BATCH_LEVEL, Config, DurableConfig, Role, Secret, StoreChoice};
use crate::live::Live;
use crate::paths::is_at_or_below;
use crate::server::ClientBody;
use crate::service::{Handle, StoredRoute};
use crate::track::Tracker;
use classify::ByModel;
pub(crate) use classify::Classes;
use gauges::Gauges;
use runs::Runs;
pub(crate) use straight::FromBackend;
use straight::Straight;
pub(crate) use workers::Workers;

/// The longest body of an operator's action.
const LONGEST_ACTION: usize = 64 << 10;

/// The longest time that the body of an operator's action may take to arrive.
const ACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The paths at which clients are answered about stored requests, and those below.
const PAGES: [&str; 3] = ["/requests", "/v1/files", "/v1/batches"];

/// The headers that ask for a request to be stored, with more than a wish.
const OPTIONS: [&str; 4] = [
    "idempotency-key",
    "cancel-after",
    "not-before",
    "webhook-url",
];

/// The stored requests of a gateway.
#[derive(Clone)]
pub(crate) struct Durable {
    handle: DurableHandle,
    front: Front,
    layers: Arc<dyn Fn(StoredRoute) -> Front + Send + Sync>,
    gauges: Arc<Gauges>,
    /// `true` if each request is stored, because this gateway runs none.
    stores_all: bool,
}

/// The service for the requests of clients.
#[derive(Clone)]
enum Front {
    /// No request is stored.
    Straight(Straight),
    Storing(BatchService<DurableService<Straight>>),
}

impl Durable {
    /// Opens the store, and starts what the configuration says.
    pub(crate) async fn start(
        config: &Config,
        durable: &DurableConfig,
        handle: &Handle,
        routed: StoredRoute,
        live: &Live,
    ) -> Result<(Self, Workers), Box<dyn Error>> {
        let queue = config.waiting_room(true)?;
        let stores_all = durable.role == Role::Front;
        let mut tasks = JoinSet::new();
        let store = open(durable, &queue, &mut tasks).await?;
        let by_model = ByModel::new(handle, config.server.paths.clone());
        let served = CancellationToken::new();
        let tenants = handle.tenants().clone();
        let limits = move |tenant: &[u8]| tenants.storage_limits(tenant);
        let quota = StorageQuota::new(Arc::clone(&store), limits);
        let mut layer = DurableLayer::new(Arc::clone(&store))
            .quota(quota.clone())
            .classify(by_model.clone())
            .store_all(stores_all)
            .max_wait(durable.max_wait)
            .body_limit(durable.body_limit_bytes)
            .shutdown(served.clone());
        if let Some(time) = durable.cancel_after {
            layer = layer.cancel_after(time);
        }
        if let Some(memory) = handle.router().body_memory() {
            layer = layer.body_memory(memory.clone());
        }
        if let [secret, others @ ..] = &durable.webhook_secrets[..] {
            let secret = WebhookSecret::parse(secret.text())?;
            let addresses = webhook_addresses(durable);
            layer = layer.webhooks(move |uri| addresses.check(uri));
            let mut sender = WebhookSender::new(Arc::clone(&store), secret, addresses);
            for other in others {
                sender = sender.also_signing(WebhookSecret::parse(other.text())?);
            }
            tasks.spawn(sender.run());
        }
        let requests = layer.handle();
        let body_limit = config.body_limit_bytes;
        let straight = move |routed| Straight::new(routed, body_limit);
        let layers: Arc<dyn Fn(StoredRoute) -> Front + Send + Sync> = match durable.role {
            Role::Worker => Arc::new(move |routed| Front::Straight(straight(routed))),
            Role::Front | Role::Both => {
                let batches = batches(durable, &queue, Arc::clone(&store), by_model).quota(quota);
                tasks.spawn(batches.clone().run());
                Arc::new(move |routed| Front::Storing(batches.layer(layer.layer(straight(routed)))))
            }
        };
        let front = layers(routed.clone());
        let router = handle.router();
        let gauges = Gauges::new(Arc::clone(&store), router.clone(), queue.room.levels);
        let shared_limits = shared_limits(durable, router)?;
        let runs = Runs::new(routed, Tracker::new(handle, live));
        let workers = Workers::start(durable, store, router, runs, served, tasks, shared_limits);
        let durable = Self {
            handle: requests,
            front,
            layers,
            gauges: Arc::new(gauges),
            stores_all,
        };
        Ok((durable, workers))
    }

    /// Returns the same in front of another service of this gateway.
    pub(crate) fn in_front_of(&self, routed: StoredRoute) -> Self {
        let front = (self.layers)(routed);
        Self {
            front,
            ..self.clone()
        }
    }

    /// Returns `true` if clients are answered about stored requests at `path`.
    pub(crate) fn has_page(&self, path: &str) -> bool {
        match self.front {
            Front::Straight(_) => false,
            Front::Storing(_) => PAGES.into_iter().any(|page| is_at_or_below(path, page)),
        }
    }

    /// Returns `true` if a request may be stored, or has to be. Forms are never stored, but for those of the gateway's own
    /// pages, so they go straight to a backend where there are any.
    pub(crate) fn takes<B>(&self, request: &Request<B>) -> bool {
        let content_type = request.headers().get(CONTENT_TYPE);
        let is_form = content_type.is_some_and(|it| it.as_bytes().starts_with(b"multipart/"));
        self.stores_all || !is_form
    }

    /// Returns the first header that asks for a request to be stored, and that its client relies on. Wishes (`Prefer`) do
    /// not count.
    pub(crate) fn option_of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderName> {
        let stores = matches!(self.front, Front::Storing(_));
        let mut names = headers.keys().filter(|_| stores);
        names.find(|name| OPTIONS.contains(&name.as_str()))
    }

    /// Answers a request of a client.
    pub(crate) async fn answer(&self, request: Request<ClientBody>) -> Response<Body> {
        let answered = match &self.front {
            Front::Straight(straight) => straight.clone().oneshot(request).await,
            Front::Storing(storing) => {
                let answered = storing.clone().oneshot(request).await;
                answered.map(|response| response.map(Body::new))
            }
        };
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Answers a request of an operator. `None` if there is no such page.
    pub(crate) async fn operator<B>(&self, head: &Parts, body: B) -> Option<Response<Body>>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        let target = head.uri.path_and_query()?.as_str();
        let target = target.strip_prefix("/admin").unwrap_or(target);
        let target = target.parse::<Uri>().ok()?;
        let body = Limited::new(body, LONGEST_ACTION).collect();
        let body = timeout(ACTION_TIMEOUT, body).await.ok()?.ok()?;
        let mut request = Request::new(body.to_bytes());
        *request.uri_mut() = target;
        *request.headers_mut() = head.headers.clone();
        *request.method_mut() = match head.method {
            Method::HEAD => Method::GET, // the body is left out later
            _ => head.method.clone(),
        };
        let page = self.handle.admin(request).await?;
        Some(page.map(Body::new))
    }

    /// Sets the gauges of the store to the present values.
    pub(crate) async fn record_gauges(&self) {
        self.gauges.record().await;
    }
}

/// Returns `true` if an operator's request at `path` of the admin address is about stored requests.
pub(crate) fn is_operators(path: &str) -> bool {
    ["/admin/requests", "/admin/durable", "/requests"]
        .into_iter()
        .any(|page| is_at_or_below(path, page))
}

async fn open(
    durable: &DurableConfig,
    queue: &QueueConfig,
    tasks: &mut JoinSet<()>,
) -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let config = durable.store_config(queue);
    Ok(match &durable.store {
        StoreChoice::Embedded { path } => open_folder(path, config).await?,
        StoreChoice::Redis(redis) => {
            let at = |url: &Secret| {
                RedisConfig::new(url.text())
                    .queue(&redis.queue)
                    .store(config.clone())
            };
            let store = at(&redis.url).replicas(redis.replicas, redis.replica_timeout);
            let store = Arc::new(RedisStore::connect(store)?);
            match &redis.drain {
                None => store,
                Some(old) => {
                    let old = Arc::new(RedisStore::connect(at(old))?);
                    let store = Arc::new(DrainStore::new(store, old));
                    tasks.spawn(drain::report(Arc::clone(&store)));
                    store
                }
            }
        }
    })
}

/// Shares the slots of the endpoints with other gateways, if that is configured.
fn shared_limits(
    durable: &DurableConfig,
    router: &RouteHandle,
) -> Result<Option<SharedLimits>, Box<dyn Error>> {
    match &durable.store {
        StoreChoice::Redis(redis) if redis.shared_limits => {
            let config = SharedLimitsConfig::new(redis.url.text()).lease(redis.lease);
            Ok(Some(SharedLimits::start(config, router.clone())?))
        }
        _ => Ok(None),
    }
}

/// Opens a store in a folder, which blocks while it reads what is there.
async fn open_folder(path: &Path, config: StoreConfig) -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let path = path.to_owned();
    let opened = spawn_blocking(move || EmbeddedStore::open(path, config)).await?;
    match opened {
        Ok(store) => Ok(Arc::new(store)),
        Err(error @ (OpenError::Damaged { .. } | OpenError::Log { .. })) => {
            let how = "start the gateway once with `--salvage` to do so";
            Err(format!("[durable]: {error}: {how}").into())
        }
        Err(error) => Err(format!("[durable]: {error}").into()),
    }
}

/// Keeps what is whole of a damaged store, and closes it again.
pub(crate) async fn salvage(config: &Config) -> Result<(), Box<dyn Error>> {
    let Some(durable) = &config.durable else {
        return Err("--salvage needs [durable]".into());
    };
    let StoreChoice::Embedded { path } = &durable.store else {
        return Err("--salvage needs `store = \"embedded\"` in [durable]".into());
    };
    let path = path.clone();
    let settings = durable.store_config(&config.waiting_room(true)?);
    let salvaged = spawn_blocking(move || EmbeddedStore::salvage(path, settings).map(drop)).await?;
    salvaged.map_err(|error| format!("[durable]: {error}").into())
}

fn batches(
    durable: &DurableConfig,
    queue: &QueueConfig,
    store: Arc<dyn Store>,
    by_model: ByModel,
) -> BatchApi {
    let level = queue.room.levels.parse(BATCH_LEVEL.as_bytes());
    let (of_tenant, served) = (by_model.clone(), by_model.clone());
    let batches = BatchApi::new(store)
        .level(level.0)
        .file_limit(durable.file_limit_bytes)
        .line_limit(durable.body_limit_bytes)
        .retention(durable.retention)
        .file_retention(durable.file_retention)
        .tenant(move |head| of_tenant.tenant(head))
        .serves(move |head, endpoint| served.serves(head, endpoint))
        .queue(move |line: &Request<Bytes>| {
            let (head, body) = line.clone().into_parts();
            Ok(by_model.classify(&head, &body)?.queue)
        });
    if durable.webhook_secrets.is_empty() {
        return batches;
    }
    let addresses = webhook_addresses(durable);
    batches.webhooks(move |uri| addresses.check(uri))
}

/// Returns the addresses that webhooks may go to.
fn webhook_addresses(durable: &DurableConfig) -> WebhookAddresses {
    match durable.webhook_allow_private {
        true => WebhookAddresses::all(),
        false => WebhookAddresses::public(),
    }
}

//! The task between a router and the ledgers in Redis. It reports running and waiting requests to each share, sends the
//! questions of the shares, and gives the endpoints the slots that the shares may use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::redis::{Answer, Connection, News, NewsReader, Redis};
use super::{Ask, Grant, LeaseTimes, Need, Share, fallback};
use crate::ConnectError;
use tower_triage::admit::{PoolId, PoolSet};
use tower_triage::endpoints::EndpointRef;
use tower_triage::route::RouteHandle;
use tower_triage_durable::RequestId;

/// The time between two looks at the waiting requests. A request that finds all leased slots taken waits for half of
/// this time on average before the task asks the ledger.
const LOOK: Duration = Duration::from_millis(5);

/// The task checks the endpoints at every tenth look only, while all requests and all other gateways have their slots.
const IDLE_LOOKS: u32 = 10;

/// The highest number of questions in one round trip.
const BATCH: usize = 256;

/// The time for which Redis must be away before a gateway goes on without it, once its leases have ended.
const AWAY: Duration = Duration::from_secs(1);

/// The pause after the first failed attempt to connect. It doubles with each failure, up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The time for which endpoints get slots without a lease while Redis is away.
const FALLBACK: Duration = Duration::from_secs(2);

/// The time limit for the last questions, with which a gateway gives its slots back.
const CLOSE: Duration = Duration::from_secs(1);

/// Returns the current time of Tokio's clock, so that a test can pause it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The configuration of shared limits.
#[derive(Clone)]
#[non_exhaustive]
pub struct SharedLimitsConfig {
    /// The address of Redis, in the forms of [`RedisConfig::new`](crate::RedisConfig::new): a server or a cluster, with or
    /// without TLS.
    pub url: String,
    /// The time after which the slots of a dead gateway go to others. All gateways should have the same value. Values
    /// below 100 ms count as 100 ms; the default is 30 s.
    pub lease: Duration,
}

impl SharedLimitsConfig {
    /// Returns the configuration for the ledgers at this address, with a lease of 30 s.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            lease: Duration::from_secs(30),
        }
    }

    /// Sets the time after which the slots of a dead gateway go to others.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

impl std::fmt::Debug for SharedLimitsConfig {
    /// Formats the configuration without the address, because the address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedLimitsConfig")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A handle to the task that leases the slots of a router's endpoints. When the handle is dropped, the task gives the
/// slots back, and the router has no slots left.
#[derive(Debug)]
pub struct SharedLimits {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl SharedLimits {
    /// Shares the slots of all endpoints of `router` with the other gateways on the same Redis. From now on, the
    /// endpoints have leased slots only, except that endpoints started on demand keep their own slots.
    ///
    /// Redis may still be unreachable when this is called.
    ///
    /// # Errors
    ///
    /// Returns an error if the address or the random source is unusable, or if this is called outside a Tokio runtime.
    pub fn start(config: SharedLimitsConfig, router: RouteHandle) -> Result<Self, ConnectError> {
        let runtime = tokio::runtime::Handle::try_current();
        let runtime = runtime.map_err(|_| ConnectError::NoRuntime)?;
        let name = RequestId::random().map_err(|error| ConnectError::Random(error.to_string()))?;
        let lease = config.lease.max(Duration::from_millis(100));
        let redis = Redis::new(&config.url, name.to_string(), lease)?;
        router.lease_slots();
        let stop = CancellationToken::new();
        let task = Task::new(redis, lease, router);
        let task = runtime.spawn(task.run(stop.clone()));
        Ok(Self {
            stop,
            task: Some(task),
        })
    }

    /// Gives all slots back, within a second. Call this after the last request has ended, because the slots of requests
    /// that still run go to others only when the lease ends.
    pub async fn close(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            _ = task.await;
        }
    }
}

impl Drop for SharedLimits {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Task {
    redis: Arc<Redis>,
    times: LeaseTimes,
    router: RouteHandle,
    /// The endpoints at the latest look, to notice a change of the list by pointer.
    present: Option<Arc<[EndpointRef]>>,
    /// The entries by endpoint name.
    entries: HashMap<Arc<str>, Entry>,
    connection: State,
    work: JoinSet<Done>,
    /// The number of the current connection, or of the latest one. Errors of earlier connections are ignored.
    generation: u64,
    /// The number of gateways that Redis last reported. `None` until Redis has answered once.
    gateways: Option<u32>,
    counted_at: Option<Instant>,
    looks: u32,
    /// `true` while another gateway wants slots that this one has, or this one waits for some.
    is_busy: bool,
}

/// The state of one endpoint name, with the present endpoint and its predecessors.
struct Entry {
    share: Share,
    /// The present endpoint. `None` once the name is gone from the router.
    endpoint: Option<EndpointRef>,
    /// Former endpoints of the same name that were replaced or removed, and still serve requests.
    old: Vec<EndpointRef>,
    waiting: u32,
    /// The slots and the end of the lease that the endpoint was last given.
    given: Option<(u32, Instant)>,
    /// The configured number of slots of the latest warning that another gateway has fewer, so that it is logged once.
    warned_of: Option<u32>,
}

enum State {
    Connected(Connection, NewsReader),
    Connecting,
    Away { again: Instant },
}

/// A period without answers from Redis: its beginning and the number of failures.
struct Outage {
    since: Instant,
    failures: u32,
}

enum Done {
    Connected(Result<(Connection, NewsReader), String>),
    Answered {
        generation: u64,
        asked: Vec<(Arc<str>, Ask)>,
        answers: RedisResult<Vec<Answer>>,
    },
    Counted {
        generation: u64,
        gateways: RedisResult<u32>,
    },
}

impl Entry {
    fn new(times: LeaseTimes, now: Instant) -> Self {
        Self {
            share: Share::new(times, now),
            endpoint: None,
            old: Vec::new(),
            waiting: 0,
            given: None,
            warned_of: None,
        }
    }

    /// Returns the number of requests that run on endpoints that were replaced or removed.
    fn running_old(&self) -> u32 {
        self.old.iter().map(EndpointRef::in_flight).sum()
    }

    fn running(&self) -> u32 {
        let endpoint = self.endpoint.as_ref();
        self.running_old() + endpoint.map_or(0, EndpointRef::in_flight)
    }

    /// Returns the configured number of slots of the endpoint.
    fn slots(&self) -> u32 {
        let Some(endpoint) = self.endpoint.as_ref().or(self.old.last()) else {
            return 0;
        };
        let config = endpoint.config();
        config.limit.map_or(config.max_concurrent, |limit| {
            u32::try_from(limit.max).unwrap_or(u32::MAX)
        })
    }

    fn need(&self, gateways: Option<u32>) -> Need {
        let own = self.endpoint.as_ref().map_or(0, EndpointRef::own_limit);
        // Half of an equal part of the slots serves as a reserve for the next requests.
        let ahead = gateways.map_or(0, |gateways| self.slots() / (2 * gateways.max(1)));
        Need {
            running: self.running(),
            waiting: self.waiting,
            most: own,
            ahead,
        }
    }
}

impl Task {
    fn new(redis: Redis, lease: Duration, router: RouteHandle) -> Self {
        Self {
            redis: Arc::new(redis),
            times: LeaseTimes::of(lease),
            router,
            present: None,
            entries: HashMap::new(),
            connection: State::Away { again: now() },
            work: JoinSet::new(),
            generation: 0,
            gateways: None,
            counted_at: None,
            looks: 0,
            is_busy: false,
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut outage = None;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let news = async {
                match &mut self.connection {
                    State::Connected(_, news) => news.next().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = looks.tick() => self.look(&outage),
                news = news => self.on_news(news, &mut outage),
                Some(done) = self.work.join_next() => {
                    if let Ok(done) = done {
                        self.on_done(done, &mut outage);
                    }
                }
            }
        }
        self.close().await;
    }

    /// Checks the waiting and running requests, asks the ledgers where a question is due, and applies the caps.
    fn look(&mut self, outage: &Option<Outage>) {
        let now = now();
        let is_away = outage
            .as_ref()
            .is_some_and(|it| it.failures > 1 && now >= it.since + AWAY);
        if let State::Away { again } = self.connection
            && now >= again
        {
            self.connect();
        }
        let waiting = self.router.gate().waiting_for();
        self.looks = (self.looks + 1) % IDLE_LOOKS;
        let has_work = self.is_busy || !waiting.is_empty();
        if !has_work && self.looks != 0 {
            return;
        }
        self.take_endpoints(now);
        self.spread(waiting);
        self.count_gateways(now);
        let is_connected = matches!(self.connection, State::Connected(..));
        let mut questions = Vec::new();
        self.is_busy = false;
        for (name, entry) in &mut self.entries {
            entry.share.observe(entry.need(self.gateways), now);
            if is_connected && entry.share.is_due(now) {
                let cap = entry.share.offer(now);
                give(&self.router, entry, cap, now);
                let ask = entry.share.ask(entry.running(), entry.slots(), now);
                questions.push((Arc::clone(name), ask));
            }
            let mut cap = entry.share.cap(now);
            if is_away && cap == 0 {
                cap = fallback(entry.slots(), self.gateways);
                // The end moves only once less than half of the time is left, so that each look need not renew the
                // lease.
                let until = entry.given.filter(|&(_, end)| end > now + FALLBACK / 2);
                let until = until.map_or(now + FALLBACK, |(_, end)| end);
                give_until(&self.router, entry, cap, until);
            } else {
                give(&self.router, entry, cap, now);
            }
            self.is_busy |= entry.share.is_contended();
        }
        self.ask(questions);
    }

    /// Updates the entries to the endpoints that the router has now.
    fn take_endpoints(&mut self, now: Instant) {
        let endpoints = self.router.endpoints();
        let is_known = |known: &Arc<[EndpointRef]>| Arc::ptr_eq(known, &endpoints);
        if !self.present.as_ref().is_some_and(is_known) {
            for entry in self.entries.values_mut() {
                entry.old.extend(entry.endpoint.take());
                entry.given = None;
            }
            let shared = endpoints.iter().filter(|it| !it.config().is_on_demand());
            for endpoint in shared {
                let times = self.times;
                let entry = self.entries.entry(endpoint.name().into());
                let entry = entry.or_insert_with(|| Entry::new(times, now));
                // An endpoint that was only reconfigured is still the same one, so its requests are counted once.
                entry.old.retain(|old| old != endpoint);
                entry.endpoint = Some(endpoint.clone());
            }
            self.present = Some(endpoints);
        }
        self.entries.retain(|_, entry| {
            entry.old.retain(|old| old.in_flight() > 0);
            entry.endpoint.is_some() || !entry.old.is_empty() || !entry.share.is_idle()
        });
    }

    /// Spreads the waiters evenly over the endpoints that could serve them. Endpoints at which this gateway is on the
    /// waiting list get waiters only if all of the endpoints are in that state.
    fn spread(&mut self, waiting: Vec<(PoolSet, usize)>) {
        let mut by_pool: HashMap<PoolId, &mut Entry> = HashMap::new();
        for entry in self.entries.values_mut() {
            entry.waiting = 0;
            if !waiting.is_empty()
                && let Some(endpoint) = &entry.endpoint
            {
                by_pool.insert(endpoint.pool(), entry);
            }
        }
        for (pools, waiters) in waiting {
            let is_open = |pool: &PoolId| {
                let entry = by_pool.get(pool);
                entry.is_some_and(|entry| !entry.share.is_starved())
            };
            let open: Vec<PoolId> = pools.iter().copied().filter(is_open).collect();
            let pools: &[PoolId] = if open.is_empty() { &pools } else { &open };
            let each = waiters / pools.len().max(1);
            let rest = waiters % pools.len().max(1);
            for (nth, pool) in pools.iter().enumerate() {
                if let Some(entry) = by_pool.get_mut(pool) {
                    // Without an open endpoint, the remainder is rounded up, so that each endpoint's ledger hears of a
                    // waiter.
                    let waiters = each + usize::from(nth < rest || open.is_empty() && rest > 0);
                    entry.waiting += u32::try_from(waiters).unwrap_or(u32::MAX);
                }
            }
        }
    }

    fn connect(&mut self) {
        self.connection = State::Connecting;
        let redis = Arc::clone(&self.redis);
        self.work
            .spawn(async move { Done::Connected(redis.connect().await) });
    }

    fn ask(&mut self, mut questions: Vec<(Arc<str>, Ask)>) {
        let State::Connected(connection, _) = &self.connection else {
            return;
        };
        while !questions.is_empty() {
            let rest = questions.split_off(questions.len().min(BATCH));
            let asked = std::mem::replace(&mut questions, rest);
            let (mut connection, generation) = (connection.clone(), self.generation);
            self.work.spawn(async move {
                let answers = connection.ask(&asked).await;
                Done::Answered {
                    generation,
                    asked,
                    answers,
                }
            });
        }
    }

    /// Reports this gateway's presence to Redis, each third of the lease.
    fn count_gateways(&mut self, now: Instant) {
        let State::Connected(connection, _) = &self.connection else {
            return;
        };
        let renewal = self.times.lease / 3;
        if self.counted_at.is_some_and(|at| now < at + renewal) {
            return;
        }
        self.counted_at = Some(now);
        let (mut connection, generation) = (connection.clone(), self.generation);
        self.work.spawn(async move {
            let gateways = connection.present(false).await;
            Done::Counted {
                generation,
                gateways,
            }
        });
    }

    fn on_news(&mut self, news: News, outage: &mut Option<Outage>) {
        match news {
            News::Notice(endpoint, grant) => self.on_notice(&endpoint, grant),
            News::Lost => self.on_lost("the connection was closed", outage),
        }
    }

    fn on_notice(&mut self, endpoint: &str, grant: Grant) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            let now = now();
            entry.share.on_notice(grant, now);
            give(&self.router, entry, entry.share.cap(now), now);
            self.is_busy = true; // the next look acts on it
        }
    }

    fn on_done(&mut self, done: Done, outage: &mut Option<Outage>) {
        match done {
            Done::Connected(Ok((connection, news))) => {
                self.generation += 1;
                self.counted_at = None;
                let now = now();
                // Notices may have been lost with the former connection.
                let entries = self.entries.values_mut();
                entries.for_each(|entry| entry.share.on_connected(now));
                self.connection = State::Connected(connection, news);
                self.is_busy = true;
            }
            Done::Connected(Err(error)) => self.on_lost(&error, outage),
            Done::Answered {
                generation,
                asked,
                answers,
            } => self.on_answers(generation, &asked, answers, outage),
            Done::Counted {
                gateways: Ok(n), ..
            } => {
                self.gateways = Some(n.max(1));
                self.on_answered(outage);
            }
            Done::Counted {
                generation,
                gateways: Err(error),
            } if generation == self.generation => self.on_lost(&error.to_string(), outage),
            Done::Counted { .. } => {}
        }
    }

    fn on_answers(
        &mut self,
        generation: u64,
        asked: &[(Arc<str>, Ask)],
        answers: RedisResult<Vec<Answer>>,
        outage: &mut Option<Outage>,
    ) {
        let now = now();
        self.is_busy = true; // the next look acts on them
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                for (name, ask) in asked {
                    if let Some(entry) = self.entries.get_mut(name) {
                        entry.share.on_failed(ask.seq, now);
                    }
                }
                if generation == self.generation {
                    self.on_lost(&error.to_string(), outage);
                }
                return;
            }
        };
        self.on_answered(outage);
        for ((name, ask), answer) in asked.iter().zip(answers) {
            let Some(entry) = self.entries.get_mut(name) else {
                continue;
            };
            entry.share.on_answer(ask.seq, answer.grant, now);
            give(&self.router, entry, entry.share.cap(now), now);
            let is_lower = answer.slots < ask.slots;
            if is_lower && entry.warned_of != Some(ask.slots) {
                entry.warned_of = Some(ask.slots);
                tracing::warn!(
                    endpoint = &**name,
                    configured = ask.slots,
                    used = answer.slots,
                    "another gateway gives this endpoint fewer slots: the lowest number holds for all"
                );
            }
        }
    }

    /// Ends an outage. This takes an answer, because Redis with full memory accepts connections but fails all
    /// questions.
    fn on_answered(&self, outage: &mut Option<Outage>) {
        if outage.take().is_some() {
            tracing::info!(redis = %self.redis.address(), "shared limits: connected to Redis again");
        }
    }

    /// Records the loss of the connection, and schedules the next attempt after a pause that grows and varies at
    /// random.
    fn on_lost(&mut self, why: &str, outage: &mut Option<Outage>) {
        let now = now();
        let outage = outage.get_or_insert_with(|| {
            let redis = self.redis.address();
            tracing::warn!(%redis, why, "shared limits: Redis can't be reached; slots that are leased are used until their lease ends");
            Outage {
                since: now,
                failures: 0,
            }
        });
        outage.failures += 1;
        let doublings = outage.failures.min(6) - 1;
        let pause = (MIN_PAUSE * (1 << doublings)).min(MAX_PAUSE);
        let again = now + pause.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.connection = State::Away { again };
    }

    /// Gives back all slots except those of running requests, and reports that this gateway is going.
    async fn close(mut self) {
        let now = now();
        self.take_endpoints(now);
        let mut questions = Vec::new();
        for (name, entry) in &mut self.entries {
            give(&self.router, entry, 0, now);
            let running = entry.running();
            let need = Need {
                running,
                ..Need::default()
            };
            entry.share.observe(need, now);
            if entry.share.leased() > 0 || !entry.share.is_idle() {
                let ask = entry.share.give_back(running, entry.slots(), now);
                questions.push((Arc::clone(name), ask));
            }
        }
        if let State::Connected(mut connection, _) = self.connection {
            let last = async {
                for questions in questions.chunks(BATCH) {
                    connection.ask(questions).await?;
                }
                connection.present(true).await
            };
            if !matches!(tokio::time::timeout(CLOSE, last).await, Ok(Ok(_))) {
                tracing::warn!(
                    "shared limits: slots were not given back; they are free when their lease ends"
                );
            }
        }
    }
}

/// Gives the endpoint of `entry` the part of `cap` that requests on former endpoints of the same name leave free.
fn give(router: &RouteHandle, entry: &mut Entry, cap: u32, now: Instant) {
    let until = entry.share.until().unwrap_or(now);
    give_until(router, entry, cap, until);
}

fn give_until(router: &RouteHandle, entry: &mut Entry, cap: u32, until: Instant) {
    let slots = cap.saturating_sub(entry.running_old());
    let is_given = entry
        .given
        .is_some_and(|(given, end)| given == slots && (end == until || slots == 0));
    if let Some(endpoint) = entry.endpoint.as_ref().filter(|_| !is_given) {
        router.set_lease(endpoint, slots, until);
        entry.given = Some((slots, until));
    }
}

//! A launcher that starts nothing and writes down what it was asked, and a service that serves at the chosen endpoint.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_triage::endpoints::Decision;
use tower_triage::route::{Route, RouteLayerBuilder};
use tower_triage::swap::{
    BoxFuture, Launch, Launcher, LoadProgress, ModelServer, StartError, SwapConfig, SwapHandle,
    SwapLayer, SwapModel,
};
use tower_triage::{QueueConfig, RouteHandle, RouteLayer};

/// What the fake was asked, in order.
#[derive(Debug, Default)]
pub(crate) struct World {
    log: Mutex<Vec<String>>,
    /// By port: what runs there.
    running: Mutex<HashMap<u16, Arc<FakeState>>>,
    /// How many more starts of a model fail.
    failures: Mutex<HashMap<String, u32>>,
    next_port: AtomicU16,
    /// The models that take memory, from the beginning of their start to the end of their stop, and in which pool.
    present: Mutex<Vec<(String, Pool)>>,
    /// The most memory that was taken at a time, where every model takes 1.
    pub(crate) most_present: AtomicU32,
    /// The same in each of two pools.
    pub(crate) most_in_pool: [AtomicU32; 2],
    /// Requests that reached something that was not running any more.
    pub(crate) astray: AtomicU32,
    /// The next calls that panic: `stop a`, `kill a`, `sleep a`, `start a`, `ended a`.
    panics: Mutex<Vec<String>>,
    /// How many calls have.
    pub(crate) panicked: AtomicU32,
    /// How often an instance was told that something came from it.
    pub(crate) activities: AtomicU32,
    /// How many requests were last said to wait for an instance.
    pub(crate) awaited: AtomicU32,
    /// Makes loads and stops shorter or longer than they usually are.
    pub(crate) times: Mutex<Option<fastrand::Rng>>,
    /// Starts of an instance that had not ended.
    pub(crate) twice: AtomicU32,
    /// How long it takes to kill a model, also while it starts.
    pub(crate) kill: Mutex<Duration>,
    /// How long it takes to put a model to sleep.
    pub(crate) fall_asleep: Mutex<Duration>,
    /// Whether starts do not say when nothing is left of them.
    pub(crate) is_silent: AtomicBool,
}

#[derive(Debug)]
struct FakeState {
    model: String,
    port: u16,
    serving: AtomicU32,
    is_stopping: AtomicU32,
    has_crashed: watch::Sender<bool>,
    present: Mutex<Option<Present>>,
}

impl FakeState {
    fn gone(&self, world: &World) {
        world.running.lock().unwrap().remove(&self.port);
        drop(self.present.lock().unwrap().take());
    }
}

impl World {
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn note(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    /// The models that run, sorted.
    pub(crate) fn running(&self) -> Vec<String> {
        let running = self.running.lock().unwrap();
        let mut names: Vec<_> = running.values().map(|it| it.model.clone()).collect();
        names.sort();
        names
    }

    fn enter(self: &Arc<Self>, model: &str, pool: Pool) -> Present {
        let mut present = self.present.lock().unwrap();
        let is_there = present.iter().any(|(name, _)| name == model);
        self.twice.fetch_add(is_there.into(), SeqCst);
        present.push((model.to_owned(), pool));
        self.most_present.fetch_max(present.len() as u32, SeqCst);
        if let Some(nth) = pool {
            let beside = present.iter().filter(|(_, other)| *other == pool).count();
            self.most_in_pool[nth as usize].fetch_max(beside as u32, SeqCst);
        }
        Present(Arc::clone(self), model.to_owned())
    }

    /// What was to panic or fail does not.
    pub(crate) fn be_good(&self) {
        self.panics.lock().unwrap().clear();
        self.failures.lock().unwrap().clear();
    }

    pub(crate) fn panic_at(&self, call: &str) {
        self.panics.lock().unwrap().push(call.to_owned());
    }

    /// How long something takes that usually takes so long.
    fn takes(&self, usual: Duration) -> Duration {
        let mut times = self.times.lock().unwrap();
        let factor = times.as_mut().map(|rng| rng.f64() * 2.0);
        usual.mul_f64(factor.unwrap_or(1.0))
    }

    /// Whether nothing takes memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.lock().unwrap().is_empty()
    }

    /// Panics if that was asked for.
    fn called(&self, call: &str, model: &str) {
        let call = format!("{call} {model}");
        let mut panics = self.panics.lock().unwrap();
        if let Some(nth) = panics.iter().position(|one| *one == call) {
            panics.remove(nth);
            self.panicked.fetch_add(1, SeqCst);
            drop(panics);
            panic!("{call} panics, as asked");
        }
    }

    pub(crate) fn fail_next(&self, model: &str, times: u32) {
        self.failures.lock().unwrap().insert(model.into(), times);
    }

    /// Ends a model, if it runs.
    pub(crate) fn crash(&self, model: &str) {
        let running = self.running.lock().unwrap();
        let found = running.values().find(|it| it.model == model);
        found.inspect(|it| _ = it.has_crashed.send_replace(true));
    }
}

/// The number of a memory pool, where there are several.
type Pool = Option<u32>;

/// Memory that is taken until it is dropped.
#[derive(Debug)]
struct Present(Arc<World>, String);

impl Drop for Present {
    fn drop(&mut self) {
        let mut present = self.0.present.lock().unwrap();
        let nth = present.iter().position(|(name, _)| *name == self.1);
        let nth = nth.unwrap();
        present.remove(nth);
    }
}

/// A start on its way. Dropped, it takes memory until it was killed.
struct Start {
    present: Option<Present>,
    ended: Option<oneshot::Sender<()>>,
}

impl Start {
    fn new(
        world: &Arc<World>,
        Launch {
            name,
            model,
            pool,
            cleanup,
            ..
        }: &Launch,
    ) -> Self {
        let (settle, (ended, has_ended)) = (model.settle, oneshot::channel());
        if !world.is_silent.load(SeqCst) {
            cleanup.set(async move {
                _ = has_ended.await;
                sleep(settle).await;
            });
        }
        Self {
            present: Some(world.enter(name, pool.as_ref().map(|(nth, _)| *nth))),
            ended: Some(ended),
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let Some(present) = self.present.take() else {
            return;
        };
        let (ended, world) = (self.ended.take(), Arc::clone(&present.0));
        let kill = world.takes(*world.kill.lock().unwrap());
        tokio::spawn(async move {
            sleep(kill).await;
            drop(present);
            ended.map(|ended| ended.send(()))
        });
    }
}

/// How long loads and stops take.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) world: Arc<World>,
    pub(crate) load: Duration,
    pub(crate) stop: Duration,
}

#[derive(Debug)]
struct FakeServer {
    fake: Fake,
    state: Arc<FakeState>,
    can_sleep: bool,
    pool: Pool,
}

impl Launcher for Fake {
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn ModelServer>, StartError>> {
        let fake = self.clone();
        Box::pin(async move {
            let name = launch.name.to_string();
            fake.world.called("start", &name);
            fake.world.note(format!("start {name}"));
            launch.output.push(format!("{name} begins").as_bytes());
            let mut start = Start::new(&fake.world, &launch);
            sleep(fake.world.takes(fake.load)).await;
            let left = fake
                .world
                .failures
                .lock()
                .unwrap()
                .get_mut(&name)
                .map(|left| {
                    let fails = *left > 0;
                    *left = left.saturating_sub(1);
                    fails
                });
            let present = start.present.take();
            if left == Some(true) {
                return Err(StartError::new("it does not want to"));
            }
            let port = 10_000 + fake.world.next_port.fetch_add(1, SeqCst);
            let state = Arc::new(FakeState {
                model: name,
                port,
                serving: AtomicU32::new(0),
                is_stopping: AtomicU32::new(0),
                has_crashed: watch::Sender::new(false),
                present: Mutex::new(present),
            });
            fake.world
                .running
                .lock()
                .unwrap()
                .insert(port, Arc::clone(&state));
            let can_sleep = launch.model.sleep_path.is_some();
            Ok(Arc::new(FakeServer {
                fake,
                state,
                can_sleep,
                pool: launch.pool.map(|(nth, _)| nth),
            }) as Arc<dyn ModelServer>)
        })
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.state.gone(&self.fake.world);
    }
}

impl ModelServer for FakeServer {
    fn url(&self) -> Uri {
        self.fake.world.called("url", &self.state.model);
        format!("http://127.0.0.1:{}", self.state.port)
            .parse()
            .unwrap()
    }

    fn ended(&self) -> BoxFuture<String> {
        let (world, state) = (Arc::clone(&self.fake.world), Arc::clone(&self.state));
        Box::pin(async move {
            _ = state.has_crashed.subscribe().wait_for(|it| *it).await;
            world.running.lock().unwrap().remove(&state.port);
            world.called("ended", &state.model);
            "it fell over".to_owned()
        })
    }

    fn stop(&self) -> BoxFuture<()> {
        let (fake, state) = (self.fake.clone(), Arc::clone(&self.state));
        Box::pin(async move {
            fake.world.called("stop", &state.model);
            state.is_stopping.store(1, SeqCst);
            let served = state.serving.load(SeqCst);
            fake.world.astray.fetch_add(served, SeqCst); // it is stopped while it serves
            fake.world.note(format!("stop {}", state.model));
            sleep(fake.world.takes(fake.stop)).await;
            state.gone(&fake.world);
        })
    }

    fn on_reconfigure(&self, model: &Arc<SwapModel>) {
        self.fake.world.called("on_reconfigure", &self.state.model);
        if let Some(proxy) = &model.proxy {
            self.fake.world.note(format!("proxy {proxy}"));
        }
    }

    fn sleep(&self) -> Option<BoxFuture<Result<(), String>>> {
        let (fake, state) = (self.fake.clone(), Arc::clone(&self.state));
        self.can_sleep.then(|| {
            Box::pin(async move {
                fake.world.called("sleep", &state.model);
                fake.world.note(format!("sleep {}", state.model));
                let takes = *fake.world.fall_asleep.lock().unwrap();
                sleep(takes).await;
                drop(state.present.lock().unwrap().take());
                Ok(())
            }) as BoxFuture<_>
        })
    }

    fn wake(&self, _: LoadProgress) -> BoxFuture<Result<(), StartError>> {
        let (fake, state, pool) = (self.fake.clone(), Arc::clone(&self.state), self.pool);
        Box::pin(async move {
            fake.world.note(format!("wake {}", state.model));
            *state.present.lock().unwrap() = Some(fake.world.enter(&state.model, pool));
            sleep(WAKE).await;
            let runs = fake.world.running.lock().unwrap().contains_key(&state.port);
            match runs {
                true => Ok(()),
                false => Err(StartError::new("it does not run any more")),
            }
        })
    }

    fn on_activity(&self, busy: u32) {
        self.fake.world.called("activity", &self.state.model);
        self.fake.world.activities.fetch_add(1, SeqCst);
        self.fake.world.awaited.store(busy, SeqCst);
    }

    fn kill(&self) -> BoxFuture<()> {
        let (fake, state) = (self.fake.clone(), Arc::clone(&self.state));
        Box::pin(async move {
            fake.world.called("kill", &state.model);
            fake.world.note(format!("kill {}", state.model));
            fake.world.running.lock().unwrap().remove(&state.port);
            let takes = fake.world.takes(*fake.world.kill.lock().unwrap());
            sleep(takes).await;
            state.gone(&fake.world);
        })
    }
}

/// A router with swapped models, and what they run in.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) world: Arc<World>,
    pub(crate) swap: SwapHandle,
    pub(crate) router: RouteHandle,
    pub(crate) layer: SwapLayer,
    pub(crate) answer: Duration,
    pub(crate) begin: Instant,
}

pub(crate) const LOAD: Duration = Duration::from_secs(10);
pub(crate) const WAKE: Duration = Duration::from_secs(2);
pub(crate) const STOP: Duration = Duration::from_secs(1);
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// A model of this memory with one slot.
pub(crate) fn model(name: &str, memory: f64) -> SwapModel {
    SwapModel::new(name, "not run")
        .memory(memory)
        .concurrency(1)
}

/// Three models, of which one fits.
pub(crate) fn one_of_three() -> SwapConfig {
    let config = SwapConfig::memory(1.0);
    ["a", "b", "c"]
        .into_iter()
        .fold(config, |config, name| config.model(model(name, 1.0)))
}

impl Rig {
    pub(crate) fn new(config: SwapConfig) -> Self {
        let queue = QueueConfig::default()
            .max_wait(Duration::from_secs(600))
            .max_size(1_000);
        let route = RouteLayer::builder(tower_triage::endpoints::Registry::new(vec![]).unwrap());
        Self::with(config, route.queue(queue))
    }

    pub(crate) fn with(config: SwapConfig, route: RouteLayerBuilder) -> Self {
        Self::timed(config, route, LOAD, STOP)
    }

    /// Where loads and stops take so long.
    pub(crate) fn timed(
        config: SwapConfig,
        route: RouteLayerBuilder,
        load: Duration,
        stop: Duration,
    ) -> Self {
        let world = Arc::new(World::default());
        let fake = Fake {
            world: Arc::clone(&world),
            load,
            stop,
        };
        let layer = SwapLayer::builder(config)
            .launcher(fake)
            .route(route)
            .try_build()
            .unwrap();
        Self {
            world,
            swap: layer.handle(),
            router: layer.router(),
            layer,
            answer: ANSWER,
            begin: Instant::now(),
        }
    }

    /// What is in front of `inner`.
    pub(crate) fn in_front_of<S>(&self, inner: S) -> Route<S> {
        self.layer.layer(inner)
    }

    /// Sends a request for a model, and says its status, its body, and after how many seconds it was answered.
    pub(crate) async fn ask(&self, model: &str, priority: &str) -> (StatusCode, String, u64) {
        self.ask_with(model, &[("x-priority", priority)], "").await
    }

    /// The same, with other headers, and more in its body.
    pub(crate) async fn ask_with(
        &self,
        model: &str,
        headers: &[(&'static str, &str)],
        more: &str,
    ) -> (StatusCode, String, u64) {
        let (world, answer) = (Arc::clone(&self.world), self.answer);
        let service = tower::service_fn(move |request: Request<_>| {
            let decision: Decision = request.extensions().get::<Decision>().unwrap().clone();
            serve(Arc::clone(&world), decision, answer)
        });
        let mut service = self.layer.layer(service);
        let body = Full::new(Bytes::from(format!(r#"{{"model": "{model}"{more}}}"#)));
        let mut request = Request::post("/v1/chat/completions");
        for &(name, value) in headers {
            request = request.header(name, value);
        }
        let response = service
            .ready()
            .await
            .unwrap()
            .call(request.body(body).unwrap())
            .await
            .unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (status, body, self.begin.elapsed().as_secs())
    }

    /// The body of an answer to a request for a stream that is told where it waits.
    pub(crate) async fn ask_with_status(&self, model: &str) -> String {
        let (world, answer) = (Arc::clone(&self.world), self.answer);
        let service = tower::service_fn(move |request: Request<_>| {
            let decision: Decision = request.extensions().get::<Decision>().unwrap().clone();
            serve(Arc::clone(&world), decision, answer)
        });
        let mut service = self.layer.layer(service);
        let body = format!(r#"{{"model": "{model}", "stream": true}}"#);
        let request = Request::post("/v1/chat/completions").header("x-queue-status", "sse");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// Sends a request in a task of its own, so that it waits before the next line of the test runs.
    pub(crate) async fn send(&self, model: &str, priority: &str) -> Sent {
        let (rig, model, priority) = (self.clone(), model.to_owned(), priority.to_owned());
        let task = tokio::spawn(async move { rig.ask(&model, &priority).await });
        tokio::task::yield_now().await; // on one thread, so it has run until it waits
        task
    }

    /// Waits until the driver has seen all that happened.
    pub(crate) async fn settle(&self) {
        sleep(Duration::from_millis(3)).await;
    }

    pub(crate) fn state(&self, model: &str) -> &'static str {
        let models = self.swap.models();
        let found = models.iter().find(|status| status.name == model).unwrap();
        found.state.as_str()
    }
}

pub(crate) type Sent = tokio::task::JoinHandle<(StatusCode, String, u64)>;

pub(crate) async fn serve(
    world: Arc<World>,
    decision: Decision,
    answer: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let port = decision.endpoint.url().port_u16().unwrap();
    let state = world.running.lock().unwrap().get(&port).cloned();
    let Some(state) = state.filter(|state| state.is_stopping.load(SeqCst) == 0) else {
        world.astray.fetch_add(1, SeqCst);
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        return Ok(response);
    };
    let serving = Serving::new(&state);
    sleep(answer).await;
    drop(serving);
    Ok(Response::new(Full::new(Bytes::from(state.model.clone()))))
}

/// A request that is served until this is dropped.
struct Serving<'a>(&'a FakeState);

impl<'a> Serving<'a> {
    fn new(state: &'a FakeState) -> Self {
        state.serving.fetch_add(1, SeqCst);
        Self(state)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, SeqCst);
    }
}

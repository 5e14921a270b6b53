//! Whether an engine that is silent is awaited: not while its client is.

use std::convert::Infallible;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::channel::Sender;
use http_body_util::{BodyExt, Channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_triage::RouteLayer;
use tower_triage::endpoints::Registry;
use tower_triage::route::RouteBody;

use crate::fake::{LOAD, Rig, one_of_three};

/// A request that sends and is answered as the test says.
struct Exchange {
    request: Sender<Bytes>,
    answer: Sender<Bytes>,
    /// Reads a part of the answer each time it is told to, and in the end the rest.
    read: Sender<Bytes>,
    client: JoinHandle<()>,
}

/// How long the engine works on a request before its answer begins.
const WORKS: Duration = Duration::from_secs(100);

impl Rig {
    /// Models that may be silent for a minute. A request's head names one.
    fn watched() -> Self {
        let mut config = one_of_three();
        for model in &mut config.models {
            model.hang_timeout = Some(Duration::from_secs(60));
            model.concurrency = 2;
        }
        let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
        let name = HeaderName::from_static("x-model");
        Self::with(config, route.demand_from_header(name))
    }

    fn begin(&self) -> Exchange {
        let (request, body) = Channel::<Bytes>::new(1);
        let (answer, answered) = Channel::<Bytes>::new(1);
        let (read, mut told) = Channel::<Bytes>::new(1);
        let answered = Arc::new(Mutex::new(Some(answered)));
        let engine = tower::service_fn(move |request: Request<RouteBody<Channel<Bytes>>>| {
            let answered = answered.lock().unwrap().take().expect("one request");
            async move {
                request.into_body().collect().await.unwrap();
                sleep(WORKS).await;
                Ok::<_, Infallible>(Response::new(answered))
            }
        });
        let service = self.layer.layer(engine);
        let head = Request::post("/").header("x-model", "a");
        let client = tokio::spawn(async move {
            let response = service.oneshot(head.body(body).unwrap()).await.unwrap();
            let mut body = response.into_body();
            while told.frame().await.is_some() {
                body.frame().await;
            }
            body.collect().await.unwrap();
        });
        Exchange {
            request,
            answer,
            read,
            client,
        }
    }

    /// A request that has sent all, and its client.
    fn begin_sent(&self) -> JoinHandle<()> {
        let Exchange {
            request, client, ..
        } = self.begin();
        drop(request);
        client
    }

    /// In how many requests the engine is awaited, once it was told.
    async fn awaited(&self) -> u32 {
        sleep(Duration::from_secs(20)).await;
        self.world.awaited.load(SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_not_awaited_while_its_client_is() {
    let rig = Rig::watched();
    let mut exchange = rig.begin();
    sleep(LOAD).await;
    assert_eq!(rig.awaited().await, 0, "nothing was sent");
    let part = || Bytes::from("part");
    exchange.request.send_data(part()).await.unwrap();
    assert_eq!(rig.awaited().await, 0, "not all was sent");
    drop(exchange.request);
    assert_eq!(rig.awaited().await, 1, "it works");
    sleep(WORKS).await;
    exchange.answer.send_data(part()).await.unwrap();
    assert_eq!(rig.awaited().await, 0, "its answer is not read");
    drop(exchange.read);
    assert_eq!(rig.awaited().await, 1, "its answer has not ended");
    drop(exchange.answer);
    exchange.client.await.unwrap();
    assert_eq!(rig.awaited().await, 0, "its answer has ended");
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_not_awaited_while_its_client_reads_no_more() {
    let rig = Rig::watched();
    let mut exchange = rig.begin();
    drop(exchange.request);
    sleep(LOAD + WORKS).await;
    let part = || Bytes::from("part");
    exchange.read.send_data(part()).await.unwrap();
    assert_eq!(rig.awaited().await, 1, "its client reads");
    exchange.answer.send_data(part()).await.unwrap();
    assert_eq!(rig.awaited().await, 0, "its client has read a part");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_read_all_is_not_awaited() {
    let rig = Rig::watched();
    let mut late = rig.begin();
    drop(late.request);
    sleep(LOAD + WORKS).await;
    late.answer.send_data(Bytes::from("all")).await.unwrap();
    drop(late.answer);
    assert_eq!(rig.awaited().await, 0);
    drop(late.read);
    late.client.await.unwrap();
    drop(rig.begin().request);
    assert_eq!(rig.awaited().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_is_not_awaited() {
    let rig = Rig::watched();
    let [sends, reads] = [rig.begin(), rig.begin()];
    drop(reads.request);
    sleep(LOAD + WORKS).await;
    assert_eq!(rig.awaited().await, 0);
    sends.client.abort();
    reads.client.abort();
    let mut awaits = rig.begin();
    let part = Bytes::from("part");
    awaits.request.send_data(part).await.unwrap();
    drop(awaits.request);
    assert_eq!(rig.awaited().await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_an_engine_is_activity() {
    let rig = Rig::watched();
    let mut exchange = rig.begin();
    sleep(LOAD + Duration::from_secs(20)).await;
    let told = || rig.world.activities.load(SeqCst);
    let before = told();
    sleep(Duration::from_secs(100)).await;
    assert_eq!(told(), before, "nothing is sent");
    for _ in 0..5 {
        let before = told();
        exchange
            .request
            .send_data(Bytes::from("part"))
            .await
            .unwrap();
        sleep(Duration::from_secs(20)).await;
        assert!(told() > before, "a part was sent");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_come_and_give_up_are_no_activity() {
    let rig = Rig::watched();
    let mut client = rig.begin_sent();
    sleep(LOAD + Duration::from_secs(20)).await;
    let told = || rig.world.activities.load(SeqCst);
    let before = told();
    for _ in 0..10 {
        let next = rig.begin_sent();
        sleep(Duration::from_secs(20)).await;
        client.abort();
        client = next;
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(told(), before);
}

/// Else it could be idle because its client is gone.
#[tokio::test(start_paused = true)]
async fn that_an_answer_came_is_told_before_an_engine_is_idle() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let told = || rig.world.activities.load(SeqCst);
    assert_eq!((told(), rig.world.awaited.load(SeqCst)), (1, 1));
    assert_eq!(rig.awaited().await, 0);
    assert_eq!(told(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_engine_in_place_of_one_that_crashed_is_told_that_it_is_awaited() {
    let rig = Rig::watched();
    let _first = rig.begin_sent();
    sleep(LOAD).await;
    assert_eq!(rig.awaited().await, 1);
    let told = || rig.world.activities.load(SeqCst);
    let before = told();
    rig.world.crash("a");
    rig.settle().await;
    let _second = rig.begin_sent();
    sleep(LOAD + Duration::from_secs(20)).await;
    assert!(told() > before);
}

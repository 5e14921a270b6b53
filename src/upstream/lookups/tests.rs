use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::{advance, timeout};
use tower::ServiceExt;

use super::*;
use crate::admit::Capacity;
use crate::endpoints::{Decision, Endpoint, Endpoints, Model, Registry, Requirements};
use crate::upstream::connect::Connector;
use crate::upstream::forward::{Forward, Timeouts};

const SOON: Duration = Duration::from_secs(60);

/// How often there was a lookup.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn up(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

fn with(lookups: Lookups) -> Forward<Full<Bytes>> {
    Forward::with(Connector::new(lookups), Timeouts::default())
}

fn localhost() -> Vec<SocketAddr> {
    vec![(Ipv4Addr::LOCALHOST, 0).into()]
}

async fn look_up(lookups: &Lookups, name: &str) -> io::Result<Vec<SocketAddr>> {
    let found = lookups.clone().oneshot(name.parse().unwrap());
    let found = timeout(SOON, found).await.expect("an answer in time")?;
    Ok(found.collect())
}

/// A server that answers each request with 200.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        let ok = axum::routing::any(|| async { Ok::<_, Infallible>("ok") });
        let app = axum::Router::new().fallback_service(ok);
        axum::serve(listener, app).await
    });
    addr
}

fn request(host: &str, port: u16) -> Request<Full<Bytes>> {
    let url = format!("http://{host}:{port}").parse().unwrap();
    let registry = Registry::new(vec![Endpoint::new("a", url).model(Model::new("m"))]).unwrap();
    let endpoints = Endpoints::new(registry);
    let demand = endpoints.demand(&Requirements::new("m"));
    let lease = endpoints.try_lease(&demand).unwrap();
    let decision: Decision = lease.decision().clone();
    endpoints.release(lease);
    let request = Request::get("/").extension(decision);
    request.body(Full::default()).unwrap()
}

/// Two names, of which the lookup of `slow` ends with the test.
#[test]
fn a_slow_name_does_not_block_other_names() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let (end, ended) = mpsc::channel::<Infallible>();
    let ended = Mutex::new(ended);
    let slow = Count::default();
    let counted = slow.clone();
    let lookups = Lookups::by(move |name| {
        if name == "slow" {
            counted.up();
            _ = ended.lock().unwrap().recv_timeout(SOON * 4);
        }
        Ok(localhost())
    });
    let forward = with(lookups).connect_timeout(Duration::from_millis(100));
    runtime.block_on(async {
        let port = serve().port();
        let asked: Vec<_> = (0..600)
            .map(|_| tokio::spawn(forward.clone().oneshot(request("slow", port))))
            .collect();
        for asked in asked {
            let response = asked.await.unwrap().unwrap();
            assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        }
        let in_no_hurry = forward.connect_timeout(SOON);
        let response = in_no_hurry.oneshot(request("good", port));
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
        assert_eq!(slow.get(), 1);
    });
    drop(end);
}

#[cfg(target_os = "linux")] // all of 127.0.0.0/8 is local, and a full backlog lets a connection wait
#[tokio::test]
async fn a_dead_address_leaves_time_to_the_next() {
    let port = serve().port();
    // It takes no connection, because one waits to be accepted.
    let dead = SocketAddr::from(([127, 0, 0, 2], port));
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.bind(dead).unwrap();
    let _listener = listener.listen(0).unwrap();
    let _waits = tokio::net::TcpStream::connect(dead).await.unwrap();
    let lookups = Lookups::by(move |_| Ok([vec![dead], localhost()].concat()));
    let forward = with(lookups).connect_timeout(Duration::from_secs(10));
    let response = forward.oneshot(request("name", port)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_address_is_not_looked_up() {
    let count = Count::default();
    let counted = count.clone();
    let lookups = Lookups::by(move |_| {
        counted.up();
        Ok(localhost())
    });
    let forward = with(lookups).connect_timeout(SOON);
    let port = serve().port();
    for (host, looked_up) in [("127.0.0.1", 0), ("[::ffff:127.0.0.1]", 0), ("name", 1)] {
        let response = forward.clone().oneshot(request(host, port));
        assert_eq!(response.await.unwrap().status(), StatusCode::OK, "{host}");
        assert_eq!(count.get(), looked_up, "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_are_kept_for_five_seconds() {
    let count = Count::default();
    let counted = count.clone();
    let lookups = Lookups::by(move |_| {
        counted.up();
        Ok(localhost())
    });
    for (looked_up, later) in [(1, FRESH / 2), (1, FRESH / 2), (2, FRESH), (3, FRESH)] {
        assert_eq!(look_up(&lookups, "a").await.unwrap(), localhost());
        assert_eq!(count.get(), looked_up);
        advance(later).await;
    }
    assert_eq!(look_up(&lookups, "b").await.unwrap(), localhost());
    assert_eq!(lookups.0.lock().len(), 1, "the other is out of date");
}

#[tokio::test]
async fn a_failure_reaches_all_waiters_and_is_not_kept() {
    let (count, (go, gone)) = (Count::default(), mpsc::channel());
    let (counted, gone) = (count.clone(), Mutex::new(gone));
    let lookups = Lookups::by(move |_| {
        counted.up();
        gone.lock().unwrap().recv_timeout(SOON).unwrap();
        Err(io::ErrorKind::NotFound.into())
    });
    for round in 1..=2 {
        let mut asked = [(); 2].map(|()| Box::pin(look_up(&lookups, "a")));
        for asked in &mut asked {
            assert!(futures_util::poll!(asked).is_pending());
        }
        go.send(()).unwrap();
        for asked in asked {
            let error = asked.await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(count.get(), round);
    }
}

#[test]
fn a_lookup_lost_with_its_runtime_starts_again() {
    let (end, ended) = mpsc::channel::<Infallible>();
    let (ended, count) = (Mutex::new(ended), Count::default());
    let counted = count.clone();
    let lookups = Lookups::by(move |_| {
        counted.up();
        if counted.get() == 1 {
            _ = ended.lock().unwrap().recv_timeout(SOON);
        }
        Ok(localhost())
    });
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    first.block_on(async {
        let asked = tokio::spawn({
            let lookups = lookups.clone();
            async move { look_up(&lookups, "a").await }
        });
        while count.get() == 0 {
            tokio::task::yield_now().await;
        }
        asked.abort();
    });
    first.shutdown_background();
    let found = runtime().block_on(look_up(&lookups, "a"));
    assert_eq!(found.unwrap(), localhost());
    drop(end);
}

/// A server that counts its requests, at this address.
async fn counting(addr: SocketAddr) -> (SocketAddr, Count) {
    let listener = tokio::net::TcpListener::bind(addr).await.unwrap();
    let (addr, count) = (listener.local_addr().unwrap(), Count::default());
    let counted = count.clone();
    let ok = axum::routing::any(move || {
        counted.up();
        async { Ok::<_, Infallible>("ok") }
    });
    let app = axum::Router::new().fallback_service(ok);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (addr, count)
}

/// The name moves from one address to another, while its connection is used all the time.
#[tokio::test]
async fn a_connection_to_an_address_that_the_name_has_left_gets_no_request() {
    let (old, at_old) = counting((Ipv4Addr::new(127, 0, 0, 1), 0).into()).await;
    let (new, at_new) = counting((Ipv4Addr::new(127, 0, 0, 2), old.port()).into()).await;
    let name = Arc::new(Mutex::new(old.ip()));
    let asked = Arc::clone(&name);
    let forward = with(Lookups::by(move |_| {
        Ok(vec![(*asked.lock().unwrap(), 0).into()])
    }));
    let to = request("engine", old.port());
    let ask = async || {
        let mut request = Request::get("/").body(Full::default()).unwrap();
        *request.extensions_mut() = to.extensions().clone();
        let answer = timeout(SOON, forward.clone().oneshot(request)).await;
        let body = answer.unwrap().unwrap().into_body().collect().await;
        assert_eq!(body.unwrap().to_bytes(), "ok");
    };
    ask().await;
    *name.lock().unwrap() = new.ip();
    // The name is looked up in a thread of its own, so it is not known after which request the answer is there.
    let moved = async {
        while at_new.get() == 0 {
            tokio::time::pause();
            advance(Duration::from_secs(1)).await;
            tokio::time::resume();
            ask().await;
        }
    };
    timeout(Duration::from_secs(3_600), moved)
        .await
        .expect("the connection is still used");
    let before = at_old.get();
    ask().await;
    assert_eq!(at_old.get(), before);
}

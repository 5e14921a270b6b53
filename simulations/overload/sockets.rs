//! The study over sockets: the gateway as a process of its own, 8 slots of 200 ms, callers that leave after 1 s.
//!
//! Backend and callers are in this process. Arrivals are an open loop: how long answers take does not slow them down. The
//! backend notices callers that leave, as a language model's engine does.

mod attack;

use std::convert::Infallible;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const SLOTS: u64 = 8;
const SERVICE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(1);
/// Not counted: the gateway measures meanwhile how fast slots come back.
const WARM_UP: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(20);
/// The share of requests of the higher level.
const HIGH: f64 = 0.2;

type Http = Client<HttpConnector, Full<Bytes>>;

/// Measures the gateway at `path` and prints the table.
pub(crate) fn print(path: &Path, seed: u64) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!(
        "The gateway over sockets: {SLOTS} slots of {SERVICE:?}, callers leave after {PATIENCE:?}, 20 % are urgent.\n"
    );
    println!(
        "                                       load  useful  urgent in time  urgent p99  refused p99  in vain"
    );
    for (name, room) in [
        ("target_wait = none", "target_wait = \"none\"\n"),
        ("the default", ""),
    ] {
        for (callers, is_told) in [("x-request-timeout", true), ("say nothing", false)] {
            for load in [0.2, 0.8, 1.5, 3.0] {
                let run = runtime.block_on(measure(path, room, is_told, load, seed))?;
                println!("{name:23}  {callers:17}  {load:4.1}  {run}");
            }
        }
    }
    println!(
        "\nThe default, patient callers at a load of 0.75; for 10 s others hang up.\n\n\
         hang-ups per second  after  served meanwhile %  10 s later %"
    );
    for after in [20, 300].map(Duration::from_millis) {
        for hang_ups in [10.0, 20.0, 60.0] {
            let served = runtime.block_on(attack::measure(path, hang_ups, after, seed))?;
            println!("{hang_ups:19}  {after:5?}  {served}");
        }
    }
    Ok(())
}

/// What became of the requests of one run.
struct Figures {
    useful: f64,
    high_in_time: f64,
    high_p99: Duration,
    refused_p99: Duration,
    /// Of those not served, the share that was not told so.
    in_vain: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{:6.1}  {:14.1}  {:7.0} ms  {:8.1} ms  {:7.1}",
            self.useful * 100.0,
            self.high_in_time * 100.0,
            millis(self.high_p99),
            millis(self.refused_p99),
            self.in_vain * 100.0,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    InTime,
    Refused,
    Left,
}

/// What a caller is like.
#[derive(Debug, Clone)]
struct Caller {
    patience: Duration,
    is_high: bool,
    /// Whether it says how patient it is.
    is_told: bool,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            patience: PATIENCE,
            is_high: false,
            is_told: false,
        }
    }
}

fn client() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn measure(
    path: &Path,
    room: &str,
    is_told: bool,
    load: f64,
    seed: u64,
) -> Result<Figures, Box<dyn Error>> {
    let backend = backend().await?;
    let gateway = Gateway::start(path, room, backend)?;
    let http = client();
    let mut random = fastrand::Rng::with_seed(seed);
    let per_second = load * SLOTS as f64 / SERVICE.as_secs_f64();
    let mut calls = JoinSet::new();
    let begin = Instant::now();
    let mut at = begin;
    while at < begin + WARM_UP + MEASURED {
        let gap = -(1.0 - random.f64()).ln() / per_second;
        at += Duration::from_secs_f64(gap);
        let is_high = random.f64() < HIGH;
        let is_counted = at >= begin + WARM_UP;
        let (http, url) = (http.clone(), gateway.url.clone());
        let caller = Caller {
            is_high,
            is_told,
            ..Caller::default()
        };
        sleep_until(at).await;
        calls.spawn(async move {
            let (outcome, time) = call(&http, &url, &caller).await;
            (is_counted, is_high, outcome, time)
        });
    }
    let calls = calls.join_all().await;
    let counted = || {
        calls
            .iter()
            .filter(|(is_counted, ..)| *is_counted)
            .map(|&(_, is_high, outcome, time)| (is_high, outcome, time))
    };
    let times = |of: fn(bool, Outcome) -> bool| {
        let times = counted().filter(|&(is_high, outcome, _)| of(is_high, outcome));
        p99(times.map(|(.., time)| time).collect())
    };
    let count = |of: fn(bool, Outcome) -> bool| {
        let counted = counted().filter(|&(is_high, outcome, _)| of(is_high, outcome));
        counted.count() as f64
    };
    let possible = SLOTS as f64 * MEASURED.as_secs_f64() / SERVICE.as_secs_f64();
    Ok(Figures {
        useful: count(|_, outcome| outcome == Outcome::InTime) / possible,
        high_in_time: count(|is_high, outcome| is_high && outcome == Outcome::InTime)
            / count(|is_high, _| is_high),
        high_p99: times(|is_high, outcome| is_high && outcome == Outcome::InTime),
        refused_p99: times(|_, outcome| outcome == Outcome::Refused),
        in_vain: count(|_, outcome| outcome == Outcome::Left)
            / count(|_, outcome| outcome != Outcome::InTime).max(1.0),
    })
}

async fn call(http: &Http, url: &str, caller: &Caller) -> (Outcome, Duration) {
    let mut request = Request::post(url).header("content-type", "application/json");
    if caller.is_high {
        request = request.header("x-priority", "high");
    }
    if caller.is_told {
        request = request.header("x-request-timeout", caller.patience.as_secs());
    }
    let body = Full::from(Bytes::from_static(br#"{"model":"m"}"#));
    let Ok(request) = request.body(body) else {
        unreachable!("all its parts are constants");
    };
    let begin = Instant::now();
    let answer = async {
        let response = http.request(request).await.ok()?;
        let status = response.status();
        response.into_body().collect().await.ok()?;
        Some(status)
    };
    // Dropping the request closes its connection.
    let outcome = match timeout(caller.patience, answer).await {
        Ok(Some(StatusCode::OK)) => Outcome::InTime,
        Ok(_) => Outcome::Refused,
        Err(_) => Outcome::Left,
    };
    (outcome, begin.elapsed())
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let nth = times.len() * 99 / 100;
    times.get(nth).copied().unwrap_or_default()
}

/// A backend that takes `SERVICE` for each request, however many there are.
async fn backend() -> std::io::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let serve = service_fn(|_: Request<hyper::body::Incoming>| async {
                    sleep(SERVICE).await;
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("{}")))
                });
                let http = hyper::server::conn::http1::Builder::new();
                // Ends when the gateway closes the connection; the request goes with it.
                _ = http.serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
    Ok(address)
}

/// The gateway's process, which ends with this.
struct Gateway {
    process: Child,
    url: String,
    config: std::path::PathBuf,
}

impl Gateway {
    fn start(path: &Path, room: &str, backend: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let name = format!("overload-{}.toml", backend.port());
        let config = std::env::temp_dir().join(name);
        let mut file = std::fs::File::create(&config)?;
        write!(
            file,
            "listen = \"127.0.0.1:0\"\n[queue]\n{room}[[backends]]\nname = \"b\"\nurl = \"http://{backend}\"\n\
             max_concurrent = {SLOTS}\nhealth = false\nmodels = [{{ name = \"m\" }}]\n"
        )?;
        let mut process = Command::new(path)
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("{}: {why}", path.display()))?;
        let Some(stdout) = process.stdout.take() else {
            unreachable!("it is piped");
        };
        let mut lines = BufReader::new(stdout).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned()))
            .ok_or("the gateway did not say where it listens")?;
        // So that it does not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            process,
            url: format!("{address}/v1/chat/completions"),
            config,
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_file(&self.config);
    }
}

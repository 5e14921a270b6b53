//! A stored request's whole way, from its caller to a worker and back: through Redis and through the embedded store, beside
//! `apalis` on the same Redis and bare loops over the same stores.
//!
//! Every subject carries 1 KiB there and back. Redis writes its append-only file with `everysec`; what is on disk is there
//! with `fdatasync` before it is answered.

mod apalis_redis;
mod bare_disk;
mod bare_redis;
mod ours;
mod replies;
#[allow(dead_code)] // it has more than is used here
#[path = "../../crates/redis/tests/support/redis_server.rs"]
mod server;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use support::{is_measuring, quartiles};
use tower_triage_durable::StoreConfig;
use tower_triage_embedded::EmbeddedStore;
use tower_triage_redis::{RedisConfig, RedisStore};

use server::Server;

/// The number of callers that wait for an answer at the same time.
const CLIENTS: usize = 64;

/// The time from one caller's request to its answer.
type Answer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A way from a caller to a worker and back.
struct Subject {
    name: &'static str,
    ask: Arc<dyn Fn(Bytes) -> Answer + Send + Sync>,
    rates: Vec<f64>,
    /// The milliseconds of each request of many clients, and of one client alone.
    many: Vec<f64>,
    alone: Vec<f64>,
    /// The microseconds of processor time of a request, here and in Redis.
    cpu: [Vec<f64>; 2],
}

impl Subject {
    fn new<F>(name: &'static str, ask: impl Fn(Bytes) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            name,
            ask: Arc::new(move |body| Box::pin(ask(body))),
            rates: Vec::new(),
            many: Vec::new(),
            alone: Vec::new(),
            cpu: [Vec::new(), Vec::new()],
        }
    }

    /// Has many clients ask for a while, and then one.
    async fn pass(&mut self, time: Duration, is_counted: bool, server: &Server) {
        let before = cpu_times(server);
        let (rate, many) = self.run(CLIENTS, time).await;
        let after = cpu_times(server);
        let (_, alone) = self.run(1, time / 4).await;
        if is_counted {
            self.rates.push(rate);
            for (times, (before, after)) in self.cpu.iter_mut().zip(before.into_iter().zip(after)) {
                times.push((after - before) * 1e6 / many.len() as f64);
            }
            self.many.extend(many);
            self.alone.extend(alone);
        }
    }

    /// Returns the requests per second, and the milliseconds of each.
    async fn run(&self, clients: usize, time: Duration) -> (f64, Vec<f64>) {
        let start = Instant::now();
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                let ask = Arc::clone(&self.ask);
                tokio::spawn(async move {
                    let body = Bytes::from(vec![b'x'; 1_024]);
                    let mut times = Vec::new();
                    while start.elapsed() < time {
                        let asked = Instant::now();
                        ask(body.clone()).await;
                        times.push(asked.elapsed().as_secs_f64() * 1e3);
                    }
                    times
                })
            })
            .collect();
        let mut times = Vec::new();
        for client in clients {
            times.extend(client.await.unwrap());
        }
        (times.len() as f64 / start.elapsed().as_secs_f64(), times)
    }

    fn print(&mut self) {
        let at = |times: &mut Vec<f64>, percent: usize| {
            times.sort_by(f64::total_cmp);
            times[(times.len() * percent / 100).min(times.len() - 1)]
        };
        let [low, rate, high] = quartiles(self.rates.clone());
        let (p50, p99) = (at(&mut self.many, 50), at(&mut self.many, 99));
        let alone = at(&mut self.alone, 50);
        let [here, redis] = [0, 1].map(|side| at(&mut self.cpu[side], 50));
        println!(
            "  {:<44} {rate:>7.0}/s ({low:.0} to {high:.0})   p50 {p50:.1} ms   p99 {p99:.1} ms   alone {alone:.2} ms   \
             CPU {here:.0} + {redis:.0} µs",
            self.name
        );
    }
}

/// Returns the seconds of processor time that this process and Redis have had.
fn cpu_times(server: &Server) -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which may have spaces; in ticks of 10 ms.
    let fields = stat.rsplit(')').next().unwrap_or("").split(' ').skip(12);
    let ticks: f64 = fields
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    let info = server.ask("INFO cpu").unwrap_or_default();
    let of = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|seconds| seconds.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    [ticks / 100.0, of("used_cpu_user:") + of("used_cpu_sys:")]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure());
    // Workers run until the end.
    runtime.shutdown_background();
}

async fn measure() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let folder = std::env::temp_dir().join(format!("triage-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let redis = |queue: &str| {
        let config = RedisConfig::new(server.url()).queue(queue);
        Arc::new(RedisStore::connect(config.store(StoreConfig::default())).unwrap())
    };
    let (one, front, worker) = (redis("one"), redis("two"), redis("two"));
    let embedded = EmbeddedStore::open(folder.join("ours"), StoreConfig::default()).unwrap();
    let embedded = Arc::new(embedded);
    let names = [
        "apalis-redis, told by the job",
        "apalis-redis, wait_for_single",
    ];
    let [told, waiting] = apalis_redis::subjects(names, &server.url()).await;
    let mut subjects = [
        ours::subject("DurableLayer and Worker, Redis", one.clone(), one),
        waiting,
        told,
        bare_redis::subject("push, blocking pop, reply; Redis", &server.url()).await,
        ours::subject("DurableLayer and Worker, disk", embedded.clone(), embedded),
        bare_disk::subject("fjall with group commit", &folder.join("bare")),
        ours::subject("DurableLayer, Worker elsewhere, Redis", front, worker),
    ];
    let (time, passes) = match is_measuring() {
        true => (Duration::from_millis(1_000), 8),
        false => (Duration::from_millis(40), 1),
    };
    for pass in 0..=passes {
        for index in 0..subjects.len() {
            let index = (pass + index) % subjects.len();
            // The first pass warms up.
            subjects[index].pass(time, pass > 0, &server).await;
        }
    }
    if is_measuring() {
        println!("\nA stored request's whole way, {CLIENTS} clients, and one alone");
        subjects.iter_mut().for_each(Subject::print);
        print_ratio(&subjects[0], &subjects[1], "goal ≥ 2×");
        print_ratio(&subjects[0], &subjects[2], "");
        print_ratio(&subjects[0], &subjects[3], "");
        print_ratio(&subjects[6], &subjects[3], "");
        print_ratio(&subjects[4], &subjects[5], "");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// Prints the ratio of two rates: that of each pass, because a busy machine is slower for both.
fn print_ratio(subject: &Subject, peer: &Subject, goal: &str) {
    let ratios = subject.rates.iter().zip(&peer.rates);
    let [low, ratio, high] = quartiles(ratios.map(|(ours, theirs)| ours / theirs).collect());
    let (name, peer) = (subject.name, peer.name);
    println!("      {name}: {ratio:.2}× {peer}  ({low:.2} to {high:.2})  {goal}");
}

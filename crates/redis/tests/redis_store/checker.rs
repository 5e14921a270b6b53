//! All that can go wrong, at random, while requests are stored and run. In the end each request that was acknowledged has
//! ended, and was run as often as promised.
//!
//! `TRIAGE_TEST_FAULTS` is the number of faults; with 1,000 it takes some minutes.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tower_triage_durable::OnCrash;
use tower_triage_durable::Operate;

use super::processes::Worker;
use super::proxy::Proxy;
use super::*;

const URL: &str = "TRIAGE_TEST_CHECKED_URL";
const QUEUE: &str = "TRIAGE_TEST_CHECKED_QUEUE";
const LOG: &str = "TRIAGE_TEST_CHECKED_LOG";

/// The requests that a worker takes at a time.
const IN_HAND: usize = 4;
/// The requests that a worker may cost: those in hand, and those of a reply that did not arrive.
const COST: usize = 2 * IN_HAND;
/// The callers of each store.
const CALLERS: usize = 8;
const LEASE: Duration = Duration::from_secs(2);
const MAX_ATTEMPTS: u32 = 2;
/// The names of the stores of each run, and what they do with a request whose worker died.
const STORES: [(&str, OnCrash); 2] = [
    ("fails", OnCrash::Fail),
    (
        "retries",
        OnCrash::Retry {
            max_attempts: MAX_ATTEMPTS,
        },
    ),
];

fn connect(url: String, (queue, on_crash): (&str, OnCrash)) -> Arc<RedisStore> {
    let config = StoreConfig::default().lease(LEASE).on_crash(on_crash);
    let config = RedisConfig::new(url).queue(queue).store(config);
    Arc::new(RedisStore::connect(config).unwrap())
}

/// The body of a worker process; nothing in the test's own process.
#[test]
fn checked_worker() {
    let Ok(url) = std::env::var(URL) else { return };
    let queue = std::env::var(QUEUE).unwrap();
    let store = STORES.into_iter().find(|(name, _)| *name == queue);
    let mut log = std::fs::File::options();
    let log = log.create(true).append(true);
    let log = log.open(std::env::var(LOG).unwrap()).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = connect(url, store.unwrap());
        loop {
            let Ok(backlog) = store.backlog().await else {
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            let fetched = store.fetch("", IN_HAND).await.unwrap_or_default();
            let attempts = fetched.iter().map(async |fetched| {
                let lease = &fetched.lease;
                until_done(|| store.called(lease)).await;
                // One write, so that no run is half noted.
                let run = format!("{} {}\n", lease.id(), lease.attempt());
                (&log).write_all(run.as_bytes()).unwrap();
                sleep(Duration::from_millis(10)).await;
                until_done(|| store.finish(lease.clone(), responded(200, "done"))).await;
            });
            futures_util::future::join_all(attempts).await;
            let change = store.changed(backlog.version);
            let _ = tokio::time::timeout(Duration::from_millis(200), change).await;
        }
    });
}

fn start_worker(url: String, queue: &str, log: &std::path::Path) -> Worker {
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checker::checked_worker", "--nocapture"])
        .env(URL, url)
        .env(QUEUE, queue)
        .env(LOG, log)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Worker(process.unwrap())
}

/// Stores requests until it is told to stop, and returns those that were acknowledged. It waits for the end of every eighth,
/// so that the backlog stays small enough for the workers.
async fn store_until(front: Arc<RedisStore>, is_over: Arc<AtomicBool>) -> Vec<RequestId> {
    let mut ids = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let request = request("");
        until_done(|| front.enqueue(request.clone())).await;
        ids.push(request.id);
        if ids.len() % 8 == 0 {
            until_done(|| front.ended(request.id)).await;
        }
    }
    ids
}

/// Returns the number of runs of each attempt.
fn runs(log: &std::path::Path) -> HashMap<(RequestId, u32), usize> {
    let mut runs = HashMap::new();
    for line in std::fs::read_to_string(log).unwrap_or_default().lines() {
        let (id, attempt) = line.split_once(' ').unwrap();
        let attempt = (id.parse().unwrap(), attempt.parse().unwrap());
        *runs.entry(attempt).or_default() += 1;
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_requests_end_as_promised_through_random_faults() {
    let faults = std::env::var("TRIAGE_TEST_FAULTS").map_or(40, |faults| faults.parse().unwrap());
    let mut server = Server::start();
    let port = server.port;
    let proxies = [
        Proxy::to(port).await,
        Proxy::to(port).await,
        Proxy::to(port).await,
    ];
    let logs = STORES.map(|(queue, _)| server.folder.join(format!("{queue}.log")));
    let is_over = Arc::new(AtomicBool::new(false));
    let fronts = [0, 1].map(|store| connect(proxies[store].url(), STORES[store]));
    let callers = fronts.clone().map(|front| {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(store_until(Arc::clone(&front), Arc::clone(&is_over)));
        }
        callers
    });
    let start = |worker: usize| {
        let store = worker % 2;
        start_worker(proxies[1 + worker / 2].url(), STORES[store].0, &logs[store])
    };
    let mut workers: Vec<_> = (0..4).map(start).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut counts: HashMap<&str, usize> = HashMap::new();
    // Requests that may have lost their worker, by store.
    let mut lost = [0; 2];
    for fault in 0..faults {
        sleep(Duration::from_millis(random.u64(5..100))).await;
        let proxy = &proxies[random.usize(0..3)];
        let worker = random.usize(0..4);
        // Each kind also in a short run.
        let kind = match fault % 20 {
            0 | 4 | 8 | 12 => {
                proxy.swallow_replies();
                sleep(Duration::from_millis(random.u64(0..30))).await;
                proxy.cut();
                "replies swallowed"
            }
            1 | 5 | 9 | 13 => {
                proxy.cut();
                "connections cut"
            }
            2 | 10 => {
                server.ask("SCRIPT FLUSH").unwrap();
                "scripts flushed"
            }
            6 | 14 => {
                server.ask("CLIENT KILL TYPE normal").unwrap();
                "clients killed"
            }
            3 | 11 | 17 => {
                workers[worker] = start(worker);
                lost[worker % 2] += COST;
                "workers killed"
            }
            7 | 15 | 18 => {
                let pid = workers[worker].0.id().to_string();
                workers[worker].signal("-STOP");
                lost[worker % 2] += COST;
                let pause = LEASE.mul_f64(random.f64() * 1.5);
                tokio::spawn(async move {
                    sleep(pause).await;
                    // It may have been killed meanwhile.
                    let _ = Command::new("kill")
                        .args(["-CONT", &pid])
                        .stderr(Stdio::null())
                        .status();
                });
                "workers stopped"
            }
            _ => {
                server.kill();
                sleep(Duration::from_millis(random.u64(0..200))).await;
                server.run();
                "Redis killed"
            }
        };
        *counts.entry(kind).or_default() += 1;
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in &workers {
        worker.signal("-CONT");
    }
    println!("faults: {counts:?}");
    for (store, caller) in callers.into_iter().enumerate() {
        let ids = soon(caller.join_all()).await.concat();
        let (front, runs) = (&fronts[store], &logs[store]);
        let attempts = match STORES[store].1 {
            OnCrash::Fail => 1,
            OnCrash::Retry { max_attempts } => max_attempts,
        };
        let mut statuses: HashMap<RequestStatus, usize> = HashMap::new();
        for id in &ids {
            soon(until_done(|| front.ended(*id))).await;
            let info = until_done(|| front.get(*id)).await.unwrap();
            *statuses.entry(info.status).or_default() += 1;
            if info.status == RequestStatus::Failed {
                assert_eq!(info.reason.as_deref(), Some("worker_lost"));
                assert_eq!(info.attempts, attempts);
            }
        }
        let runs = self::runs(runs);
        println!(
            "{}: {} acknowledged, {statuses:?}, {} runs",
            STORES[store].0,
            ids.len(),
            runs.len()
        );
        let ended = [RequestStatus::Succeeded, RequestStatus::Failed]
            .map(|s| statuses.get(&s).copied().unwrap_or(0));
        assert_eq!(ended[0] + ended[1], ids.len(), "{statuses:?}");
        assert!(
            ended[1] <= lost[store],
            "{} failed, {} had lost their worker",
            ended[1],
            lost[store]
        );
        assert!(runs.values().all(|runs| *runs == 1), "an attempt ran twice");
        assert!(runs.keys().all(|(_, attempt)| *attempt <= attempts));
        for id in ids {
            let info = until_done(|| front.get(id)).await.unwrap();
            let ran = (1..=attempts).any(|attempt| runs.contains_key(&(id, attempt)));
            assert!(
                ran || info.status == RequestStatus::Failed,
                "{id} did not run"
            );
        }
        assert!(until_done(|| front.depths()).await.is_empty());
    }
}

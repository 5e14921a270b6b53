//! Tests with a blocked, closed or full standard error or output, which must not affect requests.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::Stdio;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::PendingResponse;
use crate::process::{Gateway, Setup, TIMEOUT};

/// Sends `times` requests, 32 at a time.
async fn send_many(gateway: &Gateway, times: usize) {
    const AT_A_TIME: usize = 32;
    for _ in 0..times / AT_A_TIME {
        let answers = join_all((0..AT_A_TIME).map(|_| gateway.ask("m").answer())).await;
        answers.iter().for_each(|answer| answer.assert_ok("fine"));
    }
}

/// The number of dropped log lines according to `/metrics`.
async fn dropped(gateway: &Gateway) -> u64 {
    let page = gateway.get("/metrics").answer().await;
    let mut lines = page.text().lines();
    let sample = lines.find_map(|line| line.strip_prefix("triage_log_lines_dropped_total "));
    sample.expect("the sample is missing").parse().unwrap()
}

/// Waits until at least `lines` lines are dropped; they are written a little later than the responses.
async fn drops(gateway: &Gateway, lines: u64) {
    let all = async { while dropped(gateway).await < lines {} };
    timeout(TIMEOUT, all)
        .await
        .expect("dropped lines are not counted");
}

/// Asserts that after SIGTERM a running request finishes and the exit status is 0.
async fn assert_clean_exit(mut gateway: Gateway, backend: &Backend) {
    let running: PendingResponse = gateway.ask("slow").send();
    let arrived = backend.next().await;
    gateway.signal("TERM");
    while gateway.get("/healthz").answer().await.status == 200 {}
    arrived.answer("slow, but whole");
    running.answer().await.assert_ok("slow, but whole");
    assert_eq!(gateway.exit().await.code(), Some(0));
}

async fn backends() -> (Backend, Backend) {
    (Backend::replying("fine").await, Backend::start().await)
}

fn setup(quick: &Backend, slow: &Backend) -> Setup {
    Setup::new()
        .backend("quick", quick, 64, &["m"])
        .backend("slow", slow, 1, &["slow"])
}

#[tokio::test]
async fn unread_stderr_blocks_no_request_and_no_shutdown() {
    let (quick, slow) = backends().await;
    let (unread, stderr) = std::io::pipe().unwrap();
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    send_many(&gateway, 1500).await;
    assert_clean_exit(gateway, &slow).await;
    drop(unread);
}

/// Returns the first line with `word`; a thread then reads the rest of the pipe.
async fn read_until(pipe: PipeReader, word: &'static str) -> String {
    let found = spawn_blocking(move || {
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        let found = lines.find(|line| line.contains(word));
        std::thread::spawn(move || lines.for_each(drop));
        found.unwrap_or_else(|| panic!("the log ended before {word:?}"))
    });
    timeout(TIMEOUT, found).await.expect(word).unwrap()
}

#[tokio::test]
async fn dropped_log_lines_are_counted_and_reported_later() {
    let (quick, slow) = backends().await;
    let (unread, stderr) = std::io::pipe().unwrap();
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    assert_eq!(dropped(&gateway).await, 0);
    send_many(&gateway, 8_000).await;
    let dropped = dropped(&gateway).await;
    assert!((1_000..=8_100).contains(&dropped), "{dropped}");
    let report = read_until(unread, "lines of the log were dropped").await;
    assert!(report.contains("WARN"), "{report}");
    assert_clean_exit(gateway, &slow).await;
}

#[tokio::test]
async fn closed_stderr_loses_no_response() {
    let (quick, slow) = backends().await;
    let (reader, stderr) = std::io::pipe().unwrap();
    drop(reader);
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    send_many(&gateway, 64).await;
    drops(&gateway, 64).await;
    assert_clean_exit(gateway, &slow).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn full_log_disk_loses_no_response() {
    let (quick, slow) = backends().await;
    let full = File::options().write(true).open("/dev/full").unwrap();
    let gateway = setup(&quick, &slow).stderr(full).start().await;
    send_many(&gateway, 64).await;
    drops(&gateway, 64).await;
    assert_clean_exit(gateway, &slow).await;
}

#[tokio::test]
async fn closed_or_unread_stdout_blocks_nothing() {
    let (quick, slow) = backends().await;
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let (unread, stuck) = std::io::pipe().unwrap();
    let mut filler = stuck.try_clone().unwrap();
    std::thread::spawn(move || filler.write_all(&[b' '; 1 << 20]));
    for stdout in [closed, stuck] {
        let setup = setup(&quick, &slow).stdout(Stdio::from(stdout));
        let gateway = setup.start().await;
        send_many(&gateway, 32).await;
        assert_clean_exit(gateway, &slow).await;
    }
    drop(unread);
}

//! Standard error may be a pipe that is not read, a closed one or a full disk: no request is lost for it.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::Stdio;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::Sent;
use crate::process::{Gateway, PATIENCE, Setup};

/// Sends so many requests that the lines about them fill a pipe many times over.
async fn ask_often(gateway: &Gateway, times: usize) {
    const AT_A_TIME: usize = 32;
    for _ in 0..times / AT_A_TIME {
        let answers = join_all((0..AT_A_TIME).map(|_| gateway.ask("m").answer())).await;
        answers.iter().for_each(|answer| answer.must_say("fine"));
    }
}

/// What `/metrics` says of lines that are missing in the log.
async fn dropped(gateway: &Gateway) -> u64 {
    let page = gateway.get("/metrics").answer().await;
    let mut lines = page.text().lines();
    let sample = lines.find_map(|line| line.strip_prefix("triage_log_lines_dropped_total "));
    sample.expect("no such sample").parse().unwrap()
}

/// Returns once so many lines are missing: the log is written a little later than the answers.
async fn drops(gateway: &Gateway, lines: u64) {
    let all = async { while dropped(gateway).await < lines {} };
    timeout(PATIENCE, all).await.expect("lines are not counted");
}

/// Asserts that SIGTERM still lets a running request finish.
async fn ends_well(mut gateway: Gateway, backend: &Backend) {
    let running: Sent = gateway.ask("slow").send();
    let arrived = backend.next().await;
    gateway.signal("TERM");
    while gateway.get("/healthz").answer().await.status == 200 {}
    arrived.answer("slow, but whole");
    running.answer().await.must_say("slow, but whole");
    assert_eq!(gateway.exit().await.code(), Some(0));
}

async fn backends() -> (Backend, Backend) {
    (Backend::saying("fine").await, Backend::start().await)
}

fn setup(quick: &Backend, slow: &Backend) -> Setup {
    Setup::new()
        .backend("quick", quick, 64, &["m"])
        .backend("slow", slow, 1, &["slow"])
}

#[tokio::test]
async fn a_log_that_is_not_read_stops_no_request_and_no_shutdown() {
    let (quick, slow) = backends().await;
    let (unread, stderr) = std::io::pipe().unwrap();
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    ask_often(&gateway, 1500).await;
    ends_well(gateway, &slow).await;
    drop(unread);
}

/// Returns the first line with `word`, and then reads on for as long as there is something to read.
async fn read_until(pipe: PipeReader, word: &'static str) -> String {
    let found = spawn_blocking(move || {
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        let found = lines.find(|line| line.contains(word));
        std::thread::spawn(move || lines.for_each(drop));
        found.unwrap_or_else(|| panic!("the log ended before {word:?}"))
    });
    timeout(PATIENCE, found).await.expect(word).unwrap()
}

#[tokio::test]
async fn lines_that_find_no_place_are_counted_and_told_when_the_log_is_read_again() {
    let (quick, slow) = backends().await;
    let (unread, stderr) = std::io::pipe().unwrap();
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    assert_eq!(dropped(&gateway).await, 0);
    ask_often(&gateway, 8_000).await;
    let dropped = dropped(&gateway).await;
    assert!((1_000..=8_100).contains(&dropped), "{dropped}");
    let told = read_until(unread, "lines of the log were dropped").await;
    assert!(told.contains("WARN"), "{told}");
    ends_well(gateway, &slow).await;
}

#[tokio::test]
async fn a_closed_standard_error_loses_no_answer() {
    let (quick, slow) = backends().await;
    let (reader, stderr) = std::io::pipe().unwrap();
    drop(reader);
    let gateway = setup(&quick, &slow).stderr(stderr).start().await;
    ask_often(&gateway, 64).await;
    drops(&gateway, 64).await;
    ends_well(gateway, &slow).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_loses_no_answer() {
    let (quick, slow) = backends().await;
    let full = File::options().write(true).open("/dev/full").unwrap();
    let gateway = setup(&quick, &slow).stderr(full).start().await;
    ask_often(&gateway, 64).await;
    drops(&gateway, 64).await;
    ends_well(gateway, &slow).await;
}

#[tokio::test]
async fn a_standard_output_that_is_closed_or_stuck_stops_nothing() {
    let (quick, slow) = backends().await;
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let (unread, stuck) = std::io::pipe().unwrap();
    let mut filler = stuck.try_clone().unwrap();
    std::thread::spawn(move || filler.write_all(&[b' '; 1 << 20]));
    for stdout in [closed, stuck] {
        let setup = setup(&quick, &slow).stdout(Stdio::from(stdout));
        let gateway = setup.start().await;
        ask_often(&gateway, 32).await;
        ends_well(gateway, &slow).await;
    }
    drop(unread);
}

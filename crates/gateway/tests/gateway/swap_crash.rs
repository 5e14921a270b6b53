//! Tests of models whose processes end, or only end their connections.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::client::Answer;
use crate::process::Gateway;
use crate::swap::assert_served;
use crate::swap_support::{TempFile, model, ready, swap};

/// The command line of an engine that ends its connections like this.
fn engine(how: &str) -> String {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/gateway/closing_engine.py"
    );
    format!("python3 '{script}' ${{PORT}} {how}")
}

/// The answers of a model `m`, which this engine serves, to four callers.
async fn answers_of(engine: &str, each: usize) -> (Gateway, Vec<Answer>) {
    let section = model("m", engine);
    let setup = swap("memory = 1.0").sections(&(section + "concurrency = 4\n"));
    let gateway = setup.start().await;
    let client = gateway.client();
    let answers = client.four_callers(each, |client, _| client.ask("m")).await;
    (gateway, answers)
}

#[tokio::test]
async fn engine_that_closes_after_each_answer_loses_none() {
    let (gateway, answers) = answers_of(&engine("closes"), 40).await;
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(gateway.logged("model is loaded"), 1);
}

#[tokio::test]
async fn engine_that_resets_connections_has_not_crashed() {
    let (gateway, answers) = answers_of(&engine("resets"), 40).await;
    let failed: Vec<&Answer> = answers.iter().filter(|it| it.status != 200).collect();
    for answer in &failed {
        answer.assert_error(502, "upstream_failed");
    }
    assert!(!failed.is_empty());
    assert_eq!(gateway.logged("model is loaded"), 1);
}

#[tokio::test]
async fn crash_while_serving_is_502_and_model_is_started_again() {
    let started = TempFile::new();
    let cmd = format!(
        "sh -c \"if [ -e {0} ]; then exec {1}; fi; touch {0}; exec {2}\"",
        started.path().display(),
        ready("a"),
        engine("dies"),
    );
    let setup = swap("memory = 1.0").routing("max_retries = 0");
    let gateway = setup.sections(&model("a", &cmd)).start().await;
    let answer = gateway.ask("a").answer().await;
    answer.assert_error(502, "model_crashed");
    gateway.logs(&["WARN", "\"a\"", "ended"]).await;
    assert_served(&gateway.ask("a").answer().await, "a");
    gateway.logs_more_than("model is loaded", 1).await;
    assert!(gateway.model("a").await["last_error"].is_string());
}

/// Kills the process of `m`, whose number is in the file. Returns as soon as its port is closed.
async fn kill(gateway: &Gateway, pid: &TempFile) {
    let model = gateway.until_state("m", "loaded").await;
    let url = model["url"].as_str().unwrap();
    let addr = url.trim_start_matches("http://").trim_end_matches('/');
    let pid = std::fs::read_to_string(pid.path()).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    while TcpStream::connect(addr).is_ok() {}
}

#[tokio::test]
async fn request_right_after_the_end_of_an_idle_process_goes_to_a_new_one() {
    let pid = TempFile::new();
    let file = pid.path().display();
    let cmd = format!("sh -c \"echo $$ > {file}; exec {}\"", ready("m"));
    // With and without retries, which this costs none of.
    for retries in [0, 2] {
        let setup = swap("memory = 1.0").routing(&format!("max_retries = {retries}"));
        let setup = setup.sections(&(model("m", &cmd) + "concurrency = 4\n"));
        let gateway = setup.start().await;
        gateway.ask("m").answer().await;
        for round in 0..25 {
            kill(&gateway, &pid).await;
            sleep(Duration::from_millis(round % 4)).await;
            let sent = [(); 2].map(|()| gateway.ask("m").send());
            for sent in sent {
                let answer = sent.answer().await;
                assert_eq!(answer.status, 200, "round {round}: {answer:?}");
            }
        }
    }
}

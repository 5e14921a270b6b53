//! Tests of models whose processes end, or only end their connections.

use tokio::task::JoinSet;

use crate::client::Answer;
use crate::process::Gateway;
use crate::swap_support::{model, swap};

/// The answers of a model `m`, which this engine serves, to four callers.
async fn answers_of(engine: &str, each: usize) -> (Gateway, Vec<Answer>) {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/gateway/closing_engine.py"
    );
    let section = model("m", &format!("python3 '{script}' ${{PORT}} {engine}"));
    let setup = swap("memory = 1.0").sections(&(section + "concurrency = 4\n"));
    let gateway = setup.start().await;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let client = gateway.client().clone();
        callers.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..each {
                answers.push(client.ask("m").answer().await);
            }
            answers
        });
    }
    let answers = callers.join_all().await.into_iter().flatten().collect();
    (gateway, answers)
}

#[tokio::test]
async fn engine_that_closes_after_each_answer_loses_none() {
    let (gateway, answers) = answers_of("closes", 40).await;
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(gateway.logged("model is loaded"), 1);
}

#[tokio::test]
async fn engine_that_resets_connections_has_not_crashed() {
    let (gateway, answers) = answers_of("resets", 40).await;
    let failed: Vec<&Answer> = answers.iter().filter(|it| it.status != 200).collect();
    for answer in &failed {
        answer.assert_error(502, "upstream_failed");
    }
    assert!(!failed.is_empty());
    assert_eq!(gateway.logged("model is loaded"), 1);
}

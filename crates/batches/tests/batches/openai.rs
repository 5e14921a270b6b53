//! OpenAI's official Python client.

use serde_json::{Value, json};

use crate::python::environment;
use crate::sockets::serve;
use crate::support::{World, line_with};

#[tokio::test(flavor = "multi_thread")]
async fn openais_client_runs_a_batch() {
    let world = World::fast();
    let url = serve(&world).await;
    let good = [
        line_with(1, json!({})),
        line_with(2, json!({ "status": 500 })),
        line_with(3, json!({})),
    ];
    let bad = [line_with(1, json!({})), "{".to_owned()];
    let python = environment("openai", &["openai==3.52.0"]);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/batches/openai_client.py"
    );
    let output = tokio::process::Command::new(python)
        .arg(script)
        .args([format!("{url}/v1"), good.join("\n"), bad.join("\n")])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = good.join("\n").len();
    assert_eq!(
        seen,
        json!({
            "file": ["file", bytes, "lines.jsonl", "batch", "processed"],
            "batch": ["completed", { "night": "1" }, { "total": 3, "completed": 2, "failed": 1 }],
            "output": ["line-1", "line-3"],
            "errors": ["line-2"],
            "failed": ["failed", [[2, "invalid_json_line"]]],
            "batches": true,
            "files": true,
            "lifetimes": [7_200, 3_600],
            "order": [true, true, true],
            "refused": [400, "invalid_expires_after"],
            "ended": [409, "batch_ended"],
            "deleted": true,
            "gone": [404, "file_not_found"],
        })
    );
}

//! OpenAI's official Python client, run as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::process::{Gateway, TIMEOUT};
use super::python::environment;

/// A running client, killed on drop.
pub(crate) struct OpenAi {
    _process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl OpenAi {
    /// A client that retries up to `retries` times.
    pub(crate) fn new(gateway: &Gateway, retries: u32) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/openai_client.py");
        let mut process = tokio::process::Command::new(python())
            .arg(script)
            .arg(format!("http://{}/v1", gateway.addr()))
            .arg(retries.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            _process: process,
            requests,
            answers,
        }
    }

    /// Sends a chat request. Returns its `text`, or the client's `error` with status, code and message.
    pub(crate) async fn chat(&mut self, request: Value) -> Value {
        let line = format!("{request}\n");
        self.requests.write_all(line.as_bytes()).await.unwrap();
        let result = timeout(TIMEOUT, self.answers.next_line()).await;
        let result = result.expect("the client does not respond").unwrap();
        serde_json::from_str(&result.expect("the client has ended")).unwrap()
    }
}

/// A Python with the client.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("openai", &["openai==3.52.0"]))
}

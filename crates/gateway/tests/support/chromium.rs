//! A headless Chromium, driven by a Python script.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A browser with one page. It ends when it is dropped.
pub(crate) struct Browser {
    _script: Child,
    commands: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
}

impl Browser {
    /// Starts a browser that shows `url`.
    pub(crate) async fn open(url: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/chromium.py");
        // Not killed on drop: the script ends with its input, and ends the browser before.
        let mut script = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python 3 must be installed");
        let commands = script.stdin.take().unwrap();
        let results = BufReader::new(script.stdout.take().unwrap()).lines();
        let mut browser = Self {
            _script: script,
            commands,
            results,
        };
        browser.tell(json!({ "open": url })).await;
        browser
    }

    /// Returns the value of a JavaScript expression.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        self.tell(json!({ "eval": expression })).await
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        self.tell(json!({ "until": expression })).await;
    }

    /// Presses a key.
    pub(crate) async fn press(&mut self, key: &str) {
        self.tell(json!({ "press": key })).await;
    }

    /// Asserts that the page has logged neither an error nor a violation of its policy.
    pub(crate) async fn assert_no_problems(&mut self) {
        let problems = self.tell(json!({ "problems": 1 })).await;
        assert_eq!(problems, json!([]));
    }

    async fn tell(&mut self, command: Value) -> Value {
        let line = format!("{command}\n");
        self.commands.write_all(line.as_bytes()).await.unwrap();
        let result = self.results.next_line().await.unwrap();
        let result =
            result.expect("the script has ended: is Debian's package `chromium` installed?");
        let mut result: Value = serde_json::from_str(&result).unwrap();
        assert!(result.get("error").is_none(), "{command}: {result}");
        result["ok"].take()
    }
}

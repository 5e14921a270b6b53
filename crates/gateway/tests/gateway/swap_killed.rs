//! What a gateway that was killed by SIGKILL leaves running, and the next one ends.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{Gateway, Setup, TIMEOUT};
use crate::swap_support::{model, ready, swap};

/// A directory of a test's own. It is removed with all that is in it.
struct TestDir(PathBuf);

impl TestDir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-killed-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A gateway with the model `a`, whose process is recorded in this directory.
    fn setup(&self, cmd: &str) -> Setup {
        let setup = swap("memory = 1.0").sections(&model("a", cmd));
        setup.environment("XDG_RUNTIME_DIR", self.0.to_str().unwrap())
    }

    /// The command line of a model that writes the number of its process down, and `overlaps` if an earlier one runs.
    fn writes_pid(&self, then: &str) -> String {
        let script = self.path("script");
        let dir = self.0.display();
        let text = format!(
            "for pid in $(cat {dir}/pids 2>/dev/null); do\n\
             grep -qs '^State:.[^ZX]' /proc/$pid/status && touch {dir}/overlaps\n\
             done\n\
             {then}\n"
        );
        fs::write(&script, text).unwrap();
        format!("sh {} {}", script.display(), ready("a"))
    }

    /// The processes that have written their numbers down.
    fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path("pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The names of the records.
    fn records(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("tower-triage"));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.collect()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // Should a test have failed.
        for pid in self.pids().into_iter().filter(|&pid| runs(pid)) {
            kill(pid);
        }
        _ = fs::remove_dir_all(&self.0);
    }
}

fn kill(pid: u32) {
    let mut kill = std::process::Command::new("kill");
    _ = kill.args(["-9", &pid.to_string()]).status();
}

/// Whether a process runs. One that has ended and is not reaped does not.
fn runs(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

async fn serves(gateway: &Gateway) {
    let answer = gateway.ask("a").answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn kill_gateway(mut gateway: Gateway) {
    gateway.signal("KILL");
    gateway.exit().await;
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + TIMEOUT;
    while !is() {
        assert!(tokio::time::Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Serves with a model whose processes this script starts, kills the gateway, and lets the next one serve.
async fn engines_end_with_the_next_gateway(script: &str, processes: usize) -> (TestDir, Gateway) {
    let dir = TestDir::new();
    let cmd = dir.writes_pid(&script.replace("PIDS", dir.path("pids").to_str().unwrap()));
    let gateway = dir.setup(&cmd).start().await;
    serves(&gateway).await;
    until("all processes run", || dir.pids().len() == processes).await;
    kill_gateway(gateway).await;
    let left = dir.pids();

    let next = dir.setup(&cmd).start().await;
    serves(&next).await;
    assert!(!left.iter().any(|&pid| runs(pid)), "{left:?}");
    assert!(!dir.path("overlaps").exists(), "two engines ran");
    until("it is started", || dir.pids().len() == 2 * processes).await;
    let started = &dir.pids()[processes..];
    assert!(started.iter().all(|&pid| runs(pid)), "{started:?}");
    assert_eq!(dir.records().len(), 1);
    (dir, next)
}

// A process without an environment is found by its record alone. Others may be ended by the gateway of another test.

#[tokio::test]
async fn engines_of_a_killed_gateway_end_before_the_next_start() {
    let script = "env -i sleep 3600 & echo $! >> PIDS; echo $$ >> PIDS; exec env -i \"$@\"";
    let (_dir, next) = engines_end_with_the_next_gateway(script, 2).await;
    next.logs(&["WARN", "a program that was killed"]).await;
}

#[tokio::test]
async fn engines_that_ignore_sigterm_are_killed_with_the_next_gateway() {
    let script = "trap '' TERM; env -i sleep 3600 & echo $! >> PIDS; echo $$ >> PIDS; exec \"$@\"";
    engines_end_with_the_next_gateway(script, 2).await;
}

#[tokio::test]
async fn daemons_of_a_killed_gateway_end_with_the_next() {
    let script = "setsid sh -c 'echo $$ >> PIDS; exec sleep 3600' & echo $$ >> PIDS; exec \"$@\"";
    engines_end_with_the_next_gateway(script, 2).await;
}

#[tokio::test]
async fn engines_end_at_the_next_gateway_though_no_request_comes() {
    let dir = TestDir::new();
    let pids = dir.path("pids");
    let cmd = dir.writes_pid(&format!(
        "echo $$ >> {}; exec env -i \"$@\"",
        pids.display()
    ));
    let gateway = dir.setup(&cmd).start().await;
    serves(&gateway).await;
    kill_gateway(gateway).await;
    assert!(runs(dir.pids()[0]));
    let _next = dir.setup(&cmd).start().await;
    until("it has ended", || !runs(dir.pids()[0])).await;
    until("its record is gone", || dir.records().is_empty()).await;
}

#[tokio::test]
async fn a_gateway_that_runs_keeps_its_engines() {
    let dir = TestDir::new();
    let pids = dir.path("pids");
    let cmd = dir.writes_pid(&format!("echo $$ >> {}; exec \"$@\"", pids.display()));
    let gateway = dir.setup(&cmd).start().await;
    serves(&gateway).await;
    let other = dir.setup(&cmd).start().await;
    serves(&other).await; // after it has looked for what others have left
    assert!(dir.pids().into_iter().all(runs));
    assert_eq!(dir.pids().len(), 2);
    serves(&gateway).await;
    assert_eq!(
        gateway.model("a").await["last_error"],
        serde_json::Value::Null
    );
    assert_eq!(dir.records().len(), 2);
}

#[tokio::test]
async fn shutdown_leaves_no_record() {
    let dir = TestDir::new();
    let mut gateway = dir.setup(&ready("a")).start().await;
    serves(&gateway).await;
    assert_eq!(dir.records().len(), 1);
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert_eq!(dir.records(), Vec::<String>::new());
}

#[tokio::test]
async fn a_directory_that_others_control_gets_no_records() {
    let (link, open) = (
        |dir: &Path| {
            fs::create_dir(dir.with_file_name("target")).unwrap();
            symlink("target", dir).unwrap();
        },
        |dir: &Path| {
            fs::create_dir(dir).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        },
    );
    for make in [link as fn(&Path), open] {
        let dir = TestDir::new();
        make(&dir.path("tower-triage"));
        let temporary = dir.path("temporary");
        fs::create_dir(&temporary).unwrap();
        let setup = dir.setup(&ready("a"));
        let gateway = setup.environment("TMPDIR", temporary.to_str().unwrap());
        let gateway = gateway.start().await;
        serves(&gateway).await;
        gateway.logs(&["WARN", "/tower-triage", "records"]).await;
        assert_eq!(dir.records(), Vec::<String>::new());
        assert_eq!(fs::read_dir(temporary).unwrap().count(), 1);
    }
}

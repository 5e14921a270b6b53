//! The gateway as a process, with a configuration file and real backends.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::RootCertStore;

use super::backend::Backend;
use super::client::{Client, ClientRequest};
use super::tls_support::Transport;

/// Limit of every wait in these tests: far longer than any of them takes on a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Builder of a configuration file, and of the process's arguments and environment.
#[derive(Default)]
pub(crate) struct Setup {
    listen: Option<String>,
    top: String,
    queue: String,
    routing: String,
    backends: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    open_files: Option<String>,
    roots: Option<Arc<RootCertStore>>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The address to listen on, in place of a free port of loopback.
    pub(crate) fn listen(mut self, addr: &str) -> Self {
        self.listen = Some(addr.to_owned());
        self
    }

    /// Trusts the certificate of the gateway. The line of `transport` must be in the section of the address.
    pub(crate) fn over(mut self, transport: &Transport) -> Self {
        if let Transport::Tls(authority) = transport {
            self.roots = Some(authority.roots());
        }
        self
    }

    /// Adds lines above all sections.
    pub(crate) fn top(mut self, lines: &str) -> Self {
        self.top.push_str(lines);
        self.top.push('\n');
        self
    }

    /// Adds lines to `[queue]`.
    pub(crate) fn queue(mut self, lines: &str) -> Self {
        self.queue.push_str(lines);
        self.queue.push('\n');
        self
    }

    /// Adds lines to `[routing]`.
    pub(crate) fn routing(mut self, lines: &str) -> Self {
        if self.routing.is_empty() {
            self.routing.push_str("[routing]\n");
        }
        self.routing.push_str(lines);
        self.routing.push('\n');
        self
    }

    /// Adds a backend that is checked once, at the start, and from then on is healthy with all its slots.
    pub(crate) fn backend(self, name: &str, at: &Backend, slots: u32, models: &[&str]) -> Self {
        let lines = format!(
            "health = {{ interval_seconds = 3600 }}\n{}",
            serves(slots, models)
        );
        self.backend_lines(name, &at.url(), &lines)
    }

    /// Adds a backend without health checks: it is healthy until requests fail.
    pub(crate) fn backend_at(self, name: &str, url: &str, slots: u32, models: &[&str]) -> Self {
        self.backend_with(name, url, &serves(slots, models))
    }

    /// Adds a backend without health checks, with these lines.
    pub(crate) fn backend_with(self, name: &str, url: &str, lines: &str) -> Self {
        self.backend_lines(name, url, &format!("health = false\n{lines}"))
    }

    /// Adds a backend for `m` with four slots and these settings of `health`.
    pub(crate) fn backend_checked(self, name: &str, url: &str, health: &str) -> Self {
        let lines = "max_concurrent = 4\nmodels = [{ name = \"m\" }]";
        self.backend_lines(name, url, &format!("health = {{ {health} }}\n{lines}"))
    }

    fn backend_lines(mut self, name: &str, url: &str, lines: &str) -> Self {
        let backend = format!("[[backends]]\nname = {name:?}\nurl = {url:?}\n{lines}\n");
        self.backends.push_str(&backend);
        self
    }

    /// Adds whole sections.
    pub(crate) fn sections(mut self, sections: &str) -> Self {
        self.backends.push_str(sections);
        self
    }

    /// Adds arguments after `--config`.
    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&a| a.to_owned()));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Redirects standard output, which otherwise is a pipe that the test reads.
    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.stdout = Some(to.into());
        self
    }

    /// Redirects standard error, which otherwise is a pipe that the test reads. [`Gateway::logs`] then finds nothing.
    pub(crate) fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.stderr = Some(to.into());
        self
    }

    /// Limits the number of open files, connections included.
    #[cfg(unix)]
    pub(crate) fn open_files(mut self, limit: usize) -> Self {
        self.open_files = Some(format!("-n {limit}"));
        self
    }

    /// Sets the soft limit of open files.
    #[cfg(target_os = "linux")]
    pub(crate) fn soft_open_files(mut self, limit: usize) -> Self {
        self.open_files = Some(format!("-S -n {limit}"));
        self
    }

    /// The text of the configuration file.
    pub(crate) fn config(&self) -> String {
        let Self {
            listen,
            top,
            queue,
            routing,
            backends,
            ..
        } = self;
        let listen = listen.as_deref().unwrap_or("127.0.0.1:0");
        format!("listen = {listen:?}\n{top}\n[queue]\n{queue}\n{routing}\n{backends}")
    }

    pub(crate) async fn start(self) -> Gateway {
        Gateway::start(self).await
    }

    /// Asserts that the gateway refuses to start; returns its error.
    pub(crate) async fn refusal(self) -> String {
        let file = ConfigFile::new(&self.config());
        let mut command = command(&self.environment);
        command.arg("--config").arg(&file.0).args(&self.arguments);
        let (code, message) = end_of(command).await;
        assert_eq!(code, Some(1), "{message}");
        message
    }
}

fn serves(slots: u32, models: &[&str]) -> String {
    let models: Vec<String> = models
        .iter()
        .map(|model| format!("{{ name = {model:?} }}"))
        .collect();
    format!("max_concurrent = {slots}\nmodels = [{}]", models.join(", "))
}

/// A running gateway, killed on drop.
pub(crate) struct Gateway {
    child: Child,
    url: String,
    client: Client,
    /// Where `[admin]` is served, if there is the section.
    admin: Option<Client>,
    /// Whether there is the section `[swap]`.
    starts_models: bool,
    log: watch::Receiver<Vec<String>>,
    config: ConfigFile,
}

impl Gateway {
    async fn start(setup: Setup) -> Self {
        let file = ConfigFile::new(&setup.config());
        let mut command = match &setup.open_files {
            None => command(&setup.environment),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(binary());
                prepared(shell, &setup.environment)
            }
        };
        command.arg("--config").arg(&file.0).args(&setup.arguments);
        if let Some(stdout) = setup.stdout {
            command.stdout(stdout);
        }
        if let Some(stderr) = setup.stderr {
            command.stderr(stderr);
        }
        let mut child = command.spawn().unwrap();
        drop(command); // closes its copies of the pipes
        let (lines, log) = watch::channel(Vec::new());
        let roots = setup.roots.unwrap_or_else(|| RootCertStore::empty().into());
        let mut admin = None;
        let url = match child.stdout.take() {
            Some(stdout) => {
                let mut stdout = BufReader::new(stdout).lines();
                let url = printed_url("listening on ", &mut stdout, &mut child).await;
                if setup.top.contains("[admin]") {
                    let url = printed_url("admin on ", &mut stdout, &mut child).await;
                    admin = Some(Client::trusting(roots.clone(), url));
                }
                if let Some(stderr) = child.stderr.take() {
                    tokio::spawn(drain(stderr, lines));
                }
                url
            }
            None => {
                tokio::spawn(drain(child.stderr.take().unwrap(), lines));
                let line = logged(&log, &["listening on http://"]).await;
                let (_, url) = line.split_once("listening on ").unwrap();
                url.to_owned()
            }
        };
        if setup.listen.is_none() {
            assert!(url.contains("://127.0.0.1:"), "{url}");
        }
        Self {
            child,
            client: Client::trusting(roots, url.clone()),
            url,
            admin,
            starts_models: setup.backends.contains("[swap]"),
            log,
            config: file,
        }
    }

    /// Asserts that the gateway refuses `config`; returns its error and the path of the file.
    pub(crate) async fn refusal(config: &str) -> (String, String) {
        let file = ConfigFile::new(config);
        let path = file.0.to_str().unwrap();
        let (code, message) = run(&["--config", path]).await;
        assert_eq!(code, Some(1), "{config}\n{message}");
        (message, path.to_owned())
    }

    pub(crate) fn addr(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the gateway is running")
    }

    /// A request for `model`.
    pub(crate) fn ask(&self, model: &str) -> ClientRequest {
        self.client.ask(model)
    }

    pub(crate) fn get(&self, path: &str) -> ClientRequest {
        self.client.get(path)
    }

    /// The client of the main address.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The URL of the admin address.
    pub(crate) fn admin_url(&self) -> &str {
        self.admin().url()
    }

    /// The client of the admin address.
    pub(crate) fn admin(&self) -> &Client {
        self.admin.as_ref().expect("the gateway has no [admin]")
    }

    pub(crate) async fn state(&self) -> State {
        let client = self.admin.as_ref().unwrap_or(&self.client);
        let answer = client.get("/admin/state").answer().await;
        assert_eq!(answer.status, 200);
        State(answer.json())
    }

    /// Waits until `is` holds for the state. `what` names the condition in the failure message.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&State) -> bool) -> State {
        let end = Instant::now() + TIMEOUT;
        loop {
            let state = self.state().await;
            if is(&state) {
                return state;
            }
            assert!(
                Instant::now() < end,
                "condition not met in time: {what}: {}",
                state.0
            );
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until exactly `depth` requests wait.
    pub(crate) async fn depth(&self, depth: u64) {
        self.until(&format!("{depth} waiting"), |state| state.depth() == depth)
            .await;
    }

    /// Waits until no request waits or runs.
    pub(crate) async fn idle(&self) {
        self.until("idle", |state| {
            state.depth() == 0 && state.running() == 0 && state.in_flight().iter().all(|n| *n == 0)
        })
        .await;
    }

    /// Waits for a log line with all these words and returns it.
    pub(crate) async fn logs(&self, words: &[&str]) -> String {
        logged(&self.log, words).await
    }

    /// Waits until more than `before` log lines contain `word`.
    pub(crate) async fn logs_more_than(&self, word: &str, before: usize) {
        let mut log = self.log.clone();
        let count = |lines: &Vec<String>| lines.iter().filter(|line| line.contains(word)).count();
        let more = log.wait_for(|lines| count(lines) > before);
        let more = timeout(TIMEOUT, more).await;
        more.unwrap_or_else(|_| panic!("no further log line with {word:?}"))
            .unwrap();
    }

    /// Number of log lines so far that contain `word`.
    pub(crate) fn logged(&self, word: &str) -> usize {
        let lines = self.log.borrow();
        lines.iter().filter(|line| line.contains(word)).count()
    }

    /// All log lines so far.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Path of the configuration file.
    pub(crate) fn config_file(&self) -> &Path {
        &self.config.0
    }

    /// Replaces the configuration file and sends SIGHUP.
    pub(crate) fn reload(&self, setup: &Setup) {
        self.reload_text(&setup.config());
    }

    pub(crate) fn reload_text(&self, config: &str) {
        std::fs::write(&self.config.0, config).unwrap();
        self.signal("HUP");
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(signal(self.pid(), name));
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let exit = timeout(TIMEOUT, self.child.wait()).await;
        exit.expect("the gateway does not exit").unwrap()
    }
}

impl Drop for Gateway {
    /// Lets the gateway stop its models, which run on if it is killed.
    fn drop(&mut self) {
        let end = Instant::now() + TIMEOUT;
        while self.starts_models
            && matches!(self.child.try_wait(), Ok(None))
            && Instant::now() < end
        {
            signal(self.pid(), "INT");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns whether there is such a process.
fn signal(pid: u32, name: &str) -> bool {
    let mut kill = std::process::Command::new("kill");
    kill.arg(format!("-{name}")).arg(pid.to_string());
    kill.status().unwrap().success()
}

/// The JSON of `/admin/state`.
pub(crate) struct State(pub(crate) Value);

impl State {
    pub(crate) fn depth(&self) -> u64 {
        self.0["queue"]["depth"].as_u64().unwrap()
    }

    pub(crate) fn running(&self) -> u64 {
        self.0["queue"]["running"].as_u64().unwrap()
    }

    /// Number of requests rejected with `code`.
    pub(crate) fn rejected(&self, code: &str) -> u64 {
        self.0["queue"]["rejected"][code].as_u64().unwrap_or(0)
    }

    /// Requests in flight of each endpoint, in the order of the file.
    pub(crate) fn in_flight(&self) -> Vec<u64> {
        let endpoints = self.0["endpoints"].as_array().unwrap();
        let in_flight = endpoints.iter().map(|e| e["in_flight"].as_u64().unwrap());
        in_flight.collect()
    }

    /// Health of each endpoint, in the order of the file.
    pub(crate) fn healthy(&self) -> Vec<bool> {
        let endpoints = self.0["endpoints"].as_array().unwrap();
        let healthy = endpoints.iter().map(|e| e["healthy"].as_bool().unwrap());
        healthy.collect()
    }
}

/// A temporary configuration file, deleted on drop.
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-{}-{count}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn command(environment: &[(String, String)]) -> Command {
    prepared(Command::new(binary()), environment)
}

fn prepared(mut command: Command, environment: &[(String, String)]) -> Command {
    command
        .env_remove("TRIAGE_ROUTING_STRATEGY")
        .env_remove("TRIAGE_ROUTING_MAX_RETRIES")
        .env("TRIAGE_LOG", "info")
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Returns the path of the gateway's executable.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_triage-gateway"))
}

/// Runs the gateway until it exits; returns its exit status and its standard error.
pub(crate) async fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(&[]);
    command.args(arguments);
    end_of(command).await
}

/// Runs the gateway until it exits; returns its exit status, its standard output and its standard error.
pub(crate) async fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    output_with(&[], arguments).await
}

/// Runs the gateway with these variables until it exits, as `output` does.
pub(crate) async fn output_with(
    environment: &[(String, String)],
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let mut command = command(environment);
    let ended = timeout(TIMEOUT, command.args(arguments).output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("did not exit: {arguments:?}"));
    let ended = ended.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

async fn end_of(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.spawn().unwrap();
    let ended = timeout(TIMEOUT, child.wait()).await;
    let ended = ended.unwrap_or_else(|_| panic!("did not exit: {command:?}"));
    (ended.unwrap().code(), rest(&mut child).await)
}

/// Reads the URL after `start` from the next line of standard output.
async fn printed_url(
    start: &str,
    stdout: &mut Lines<BufReader<ChildStdout>>,
    child: &mut Child,
) -> String {
    let line = timeout(TIMEOUT, stdout.next_line()).await;
    let line = line.expect("the gateway prints nothing").unwrap();
    let url = line.as_deref().and_then(|line| line.strip_prefix(start));
    match url {
        Some(url) => url.to_owned(),
        None => {
            let rest = rest(child).await;
            panic!("expected {start:?}: {line:?}\n{rest}")
        }
    }
}

/// Waits for a log line with all these words.
async fn logged(log: &watch::Receiver<Vec<String>>, words: &[&str]) -> String {
    let mut log = log.clone();
    let all = |line: &&String| words.iter().all(|word| line.contains(word));
    let logged = log.wait_for(|lines| lines.iter().any(|line| all(&line)));
    let lines = timeout(TIMEOUT, logged).await;
    let lines = lines.unwrap_or_else(|_| panic!("not in the log: {words:?}"));
    lines.unwrap().iter().find(all).unwrap().clone()
}

/// Reads standard error until it closes.
async fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    let Some(mut stderr) = child.stderr.take() else {
        return text;
    };
    stderr.read_to_string(&mut text).await.unwrap();
    text
}

/// Reads standard error so that the pipe never fills. Keeps all lines, and prints those above INFO for failed tests.
async fn drain(stderr: ChildStderr, log: watch::Sender<Vec<String>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.contains(" INFO ") {
            eprintln!("gateway: {line}");
        }
        log.send_modify(|lines| lines.push(line));
    }
}

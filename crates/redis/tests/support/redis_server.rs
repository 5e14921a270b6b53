//! A real Redis for one test: on a port and in a folder of its own, with an append-only file.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `redis-server`, killed when it is dropped.
pub(crate) struct Server {
    process: Option<Child>,
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    settings: Vec<String>,
}

impl Server {
    pub(crate) fn start() -> Self {
        // Each write is on the disk before it is answered: some tests kill it.
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts it with these settings, and none of an append-only file unless they have it.
    pub(crate) fn with(settings: &[&str]) -> Self {
        Self::with_each(|| settings.iter().map(|s| (*s).to_owned()).collect())
    }

    /// Starts it with the settings that this returns, which is asked again if another process has taken a port meanwhile.
    pub(crate) fn with_each(mut settings: impl FnMut() -> Vec<String>) -> Self {
        for _ in 0..10 {
            let port = free_port();
            let folder =
                std::env::temp_dir().join(format!("triage-redis-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let mut server = Self {
                process: None,
                port,
                folder,
                settings: settings(),
            };
            if server.begins() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// Starts it again where it was, after [`kill`](Self::kill).
    pub(crate) fn run(&mut self) {
        assert!(self.begins(), "redis-server ends at once");
    }

    /// Starts it, and waits until it answers. Returns `false` if it ends before.
    fn begins(&mut self) -> bool {
        // Another server of the same protocol, such as `valkey-server`.
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let process = Command::new(program)
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"])
            .arg("--dir")
            .arg(&self.folder)
            .args(&self.settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let process = self.process.insert(process).id();
        let end = Instant::now() + Duration::from_secs(60);
        // With a password, it says so.
        let answers = |reply: String| reply.starts_with("+PONG") || reply.starts_with("-NOAUTH");
        while !self.ask("PING").is_some_and(answers) {
            if self.has_ended() {
                return false;
            }
            assert!(
                Instant::now() < end,
                "redis-server {process} does not answer"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        !self.has_ended() // the answer may be another server's
    }

    fn has_ended(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_none_or(|process| process.try_wait().unwrap().is_some())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends an inline command, and returns what has come of the reply; `None` without a connection.
    pub(crate) fn ask(&self, command: &str) -> Option<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        connection
            .set_read_timeout(Some(Duration::from_secs(60)))
            .ok()?;
        write!(connection, "{command}\r\n").ok()?;
        let mut reply = [0; 4_096];
        let read = loop {
            match connection.read(&mut reply) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.ok()?,
            }
        };
        Some(String::from_utf8_lossy(&reply[..read]).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

//! A connection that is opened again when it breaks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Script, Value};
use tokio::sync::Mutex;

use super::nodes::{Nodes, needs_another_server};
use super::reply::Unexpected;
use tower_triage_durable::StoreError;

/// The time limit for a script, in addition to the time that it may wait for replicas.
const REPLY: Duration = Duration::from_secs(3);
/// The pause after the first failed attempt to connect. It doubles with each failure, up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A link to the Redis server that has the keys of a store, shared by all callers that run scripts on it.
pub(super) struct Link {
    nodes: Arc<Nodes>,
    /// The time limit for a script, including the time that it waits behind other commands.
    reply: Duration,
    state: Mutex<State>,
}

struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of connections that were made so far.
    generation: u64,
    failed: Option<Failed>,
    /// The end of the latest outage, as noticed here.
    up_since: Option<Instant>,
}

struct Failed {
    again: Instant,
    backoff: Duration,
    error: StoreError,
}

impl Link {
    /// Returns an unconnected link. `behind` is the time that a script may wait behind other commands of its
    /// connection.
    pub(super) fn new(nodes: Arc<Nodes>, behind: Duration) -> Self {
        let state = Mutex::new(State {
            connection: None,
            generation: 0,
            failed: None,
            up_since: None,
        });
        Self {
            nodes,
            reply: REPLY + behind,
            state,
        }
    }

    pub(super) fn address(&self) -> &str {
        self.nodes.address()
    }

    /// Opens a connection that belongs to the caller alone, so its commands may block.
    pub(super) async fn dedicated(&self) -> Result<MultiplexedConnection, StoreError> {
        self.connect(None).await
    }

    async fn connect(&self, reply: Option<Duration>) -> Result<MultiplexedConnection, StoreError> {
        let connected = self.nodes.connect(reply).await;
        connected.map_err(|failure| self.unavailable(&failure))
    }

    /// Returns the connection and its number. While Redis is away, most callers get the last error at once.
    pub(super) async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.generation));
        }
        if let Some(failed) = &state.failed
            && Instant::now() < failed.again
        {
            return Err(failed.error.clone());
        }
        match self.connect(Some(self.reply)).await {
            Ok(connection) => {
                if state.failed.take().is_some() {
                    state.up_since = Some(Instant::now());
                    tracing::info!(redis = %self.address(), "connected to Redis again");
                }
                state.connection = Some(connection.clone());
                state.generation += 1;
                Ok((connection, state.generation))
            }
            Err(error) => {
                let backoff = match &state.failed {
                    None => {
                        tracing::warn!(redis = %self.address(), %error, "Redis can't be reached");
                        MIN_BACKOFF
                    }
                    Some(failed) => (failed.backoff * 2).min(MAX_BACKOFF),
                };
                state.failed = Some(Failed {
                    again: Instant::now() + backoff.mul_f64(0.5 + 0.5 * fastrand::f64()),
                    backoff,
                    error: error.clone(),
                });
                Err(error)
            }
        }
    }

    /// Returns `true` if an outage ended less than `time` ago, or still lasts. Live workers may not have renewed their
    /// leases since then.
    pub(super) async fn was_away_within(&self, time: Duration) -> bool {
        let state = self.state.lock().await;
        state.failed.is_some() || state.up_since.is_some_and(|since| since.elapsed() < time)
    }

    /// Drops a connection that has failed, unless it was already replaced.
    pub(super) async fn broke(&self, generation: u64) {
        let mut state = self.state.lock().await;
        if state.generation == generation {
            state.connection = None;
        }
    }

    /// Drops the connection if its server is no longer a master or has lost the keys, because its data may then be old.
    pub(super) async fn verify(&self) {
        let current = {
            let state = self.state.lock().await;
            state.connection.clone().map(|own| (own, state.generation))
        };
        if let Some((mut connection, generation)) = current
            && !self.nodes.is_good(&mut connection).await
        {
            self.broke(generation).await;
        }
    }

    /// Runs a script. If the connection breaks, the script runs once more, which is safe because all scripts are
    /// idempotent.
    pub(super) async fn run(&self, call: &Call<'_>) -> Result<Value, StoreError> {
        Ok(self.ask(Question::Script(call)).await?.0)
    }

    /// Runs a script, and returns its reply with the connection and the connection's number.
    pub(super) async fn run_and_keep(
        &self,
        call: &Call<'_>,
    ) -> Result<(Value, MultiplexedConnection, u64), StoreError> {
        self.ask(Question::Script(call)).await
    }

    /// Runs a command that only reads.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, StoreError> {
        Ok(self.ask(Question::Command(command)).await?.0)
    }

    async fn ask(
        &self,
        question: Question<'_>,
    ) -> Result<(Value, MultiplexedConnection, u64), StoreError> {
        let mut is_repeated = false;
        loop {
            let (mut connection, generation) = self.connection().await?;
            let result: RedisResult<Value> = match question {
                Question::Script(call) => call.invocation.invoke_async(&mut connection).await,
                Question::Command(command) => command.query_async(&mut connection).await,
            };
            let error = match result {
                Ok(value) => return Ok((value, connection, generation)),
                Err(error) => error,
            };
            if needs_another_server(&error) {
                self.broke(generation).await;
                // After a timeout Redis is slow or silent, so a second try would probably take as long again.
                if !is_repeated && !error.is_timeout() {
                    is_repeated = true;
                    continue;
                }
            }
            return Err(self.error(&error));
        }
    }

    pub(super) fn error(&self, error: &RedisError) -> StoreError {
        match error.code() {
            Some("OOM" | "MISCONF") => {
                StoreError::StorageFull(format!("Redis at {}: {error}", self.address()))
            }
            _ => self.unavailable(error),
        }
    }

    fn unavailable(&self, problem: &dyn std::fmt::Display) -> StoreError {
        StoreError::Unavailable(format!("Redis at {}: {problem}", self.address()))
    }

    pub(super) fn unexpected(&self, Unexpected: Unexpected) -> StoreError {
        StoreError::Unavailable(format!("Redis at {} gave {Unexpected}", self.address()))
    }
}

#[derive(Clone, Copy)]
enum Question<'a> {
    Script(&'a Call<'a>),
    Command(&'a Cmd),
}

/// A call of a script with its arguments.
pub(super) struct Call<'a> {
    pub(super) invocation: redis::ScriptInvocation<'a>,
}

impl<'a> Call<'a> {
    pub(super) fn new(script: &'a Script, namespace: &str, header: &str, process: &str) -> Self {
        let mut invocation = script.prepare_invoke();
        invocation.key(namespace).arg(header).arg(process);
        Self { invocation }
    }

    pub(super) fn arg(mut self, value: impl redis::ToRedisArgs) -> Self {
        self.invocation.arg(value);
        self
    }

    /// Adds the arguments of all items.
    pub(super) fn args(self, items: &[Vec<Vec<u8>>]) -> Self {
        items.iter().flatten().fold(self, Self::arg)
    }

    /// Adds a number, or an empty argument for `None`.
    pub(super) fn maybe(self, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.arg(value),
            None => self.arg(""),
        }
    }
}

//! The connection that waits for notifications: the ends of watched requests, new work, and lost leases.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::reply::{self, Unexpected};
use super::shared::Shared;

/// The time for which Redis may block a read without notifications.
const BLOCK: Duration = Duration::from_secs(2);
/// The time after which an unanswered read counts as failed.
const SILENCE: Duration = Duration::from_secs(3);
const BACKOFF: Duration = Duration::from_millis(200);

/// Reads notifications until the task is dropped. Opens a new connection whenever one breaks.
pub(super) async fn read(shared: &Shared) {
    loop {
        if let Err(error) = read_until_broken(shared).await {
            tracing::debug!(redis = %shared.link.address(), %error, "the reading connection broke");
            shared.link.verify().await;
        }
        tokio::time::sleep(BACKOFF.mul_f64(0.5 + fastrand::f64())).await;
    }
}

async fn read_until_broken(shared: &Shared) -> Result<(), String> {
    let mut connection = shared
        .link
        .dedicated()
        .await
        .map_err(|error| error.to_string())?;
    let mut streams = [
        Stream::new(format!("{}:notifications", shared.namespace)),
        Stream::new(format!("{}:r:{}", shared.namespace, shared.process)),
    ];
    for stream in &mut streams {
        stream.go_to_end(&mut connection).await?;
    }
    // Earlier notifications may be lost, so the requests themselves are read once.
    shared.on_lost_hints().await;
    loop {
        let value = ask(&mut connection, &command(&streams)).await?;
        for read in reply::items(value).map_err(text)? {
            let [key, entries] = reply::parts(read).map_err(text)?;
            let key = reply::text(key).map_err(text)?;
            for entry in reply::items(entries).map_err(text)? {
                let [id, fields] = reply::parts(entry).map_err(text)?;
                on_entry(shared, fields).map_err(text)?;
                if let Some(stream) = streams.iter_mut().find(|stream| stream.key == key) {
                    stream.last = reply::text(id).map_err(text)?;
                }
            }
        }
    }
}

fn text(error: Unexpected) -> String {
    error.to_string()
}

/// Handles the notices of one entry. Each of them begins with its kind and an id, or the name of a queue.
fn on_entry(shared: &Shared, fields: Value) -> Result<(), Unexpected> {
    let mut fields = reply::items(fields)?.into_iter();
    while let Some(kind) = fields.next() {
        let detail = fields.next().ok_or(Unexpected)?;
        match reply::bytes(kind)?.as_slice() {
            b"a" => shared
                .watchers
                .on_found(reply::found(detail, &mut fields, shared.levels())?),
            b"e" => shared.watchers.on_end(reply::id(detail)?),
            b"o" => shared.watchers.on_piece(reply::id(detail)?),
            b"c" => shared.claim.notify_one(),
            _ => shared.on_new_work(reply::new_head(fields.by_ref(), shared.levels())?),
        }
    }
    Ok(())
}

struct Stream {
    key: String,
    last: String,
}

impl Stream {
    fn new(key: String) -> Self {
        Self {
            key,
            last: "0-0".to_owned(),
        }
    }

    async fn go_to_end(&mut self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(&self.key).arg("+").arg("-").arg("COUNT").arg(1);
        let entries = reply::items(ask(connection, &command).await?).map_err(text)?;
        if let Some(entry) = entries.into_iter().next() {
            let [id, _] = reply::parts(entry).map_err(text)?;
            self.last = reply::text(id).map_err(text)?;
        }
        Ok(())
    }
}

fn command(streams: &[Stream]) -> Cmd {
    let mut command = redis::cmd("XREAD");
    command.arg("COUNT").arg(256);
    command.arg("BLOCK").arg(BLOCK.as_millis() as u64);
    command.arg("STREAMS");
    for stream in streams {
        command.arg(&stream.key);
    }
    for stream in streams {
        command.arg(&stream.last);
    }
    command
}

async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, String> {
    tokio::time::timeout(SILENCE, command.query_async(connection))
        .await
        .map_err(|_| "Redis is silent".to_owned())?
        .map_err(|error: RedisError| error.to_string())
}

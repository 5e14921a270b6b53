//! The body of a refused request, which is read and dropped behind the answer.
//!
//! A client that is still sending when its connection is closed, or its stream is reset, may not get the answer.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The longest time between two pieces, and the longest time for all of them. These are nginx's defaults for closing a
/// connection.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The most that is read of a body, in bytes.
const LIMIT: usize = 64 << 20;

/// Reads and drops a body in a task of its own.
pub(super) fn drain(body: Incoming) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(timeout(TIME_LIMIT, read(body)));
    }
}

async fn read(mut body: Incoming) {
    let mut length = 0;
    while length <= LIMIT {
        let Ok(Some(Ok(piece))) = timeout(IDLE_LIMIT, body.frame()).await else {
            return;
        };
        length += piece.data_ref().map_or(0, Bytes::len);
    }
}

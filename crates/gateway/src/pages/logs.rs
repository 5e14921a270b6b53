//! The page `/admin/models/{name}/logs`: the output of a model, as server-sent events or as text.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use tower_triage::swap::{OutputLines, OutputReader};

use super::{error, model_not_found};
use crate::by_head::decoded;
use crate::service::Handle;

/// The time between two comments while there is no line, so that a peer that is gone is noticed.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// Returns the page that `head` asks for, which ends at `closing`. `None` if it asks for another one.
pub(super) fn page(
    head: &Parts,
    handle: &Handle,
    closing: CancellationToken,
) -> Option<Response<Body>> {
    let path = head.uri.path();
    let name = decoded(model(path)?)?;
    let reader = match handle.output(&name) {
        Ok(reader) => reader,
        Err(unknown) => {
            let message = format!("[swap] has no model {:?}", unknown.0);
            return Some(model_not_found(path, message));
        }
    };
    let reader = match head.uri.query() {
        None | Some("") => reader,
        Some("no-history") => reader.skip_history(),
        Some(other) => {
            let message = format!("the query is {other:?}: it must be no-history, or absent");
            return Some(error(StatusCode::BAD_REQUEST, "invalid_parameter", message));
        }
    };
    let lines = lines(reader, closing);
    Some(match accepts_text(&head.headers) {
        true => text(lines),
        false => events(lines),
    })
}

/// Returns the model whose output is at `path`. Its name may have slashes.
fn model(path: &str) -> Option<&str> {
    path.strip_prefix("/admin/models/")?.strip_suffix("/logs")
}

/// Returns `true` if a client asks for text and for no events.
fn accepts_text(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).into_iter();
    let text: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    let accepts = |media: &str| {
        let mut types = text.iter().flat_map(|value| value.split(','));
        types.any(|one| one.split(';').next().is_some_and(|it| it.trim() == media))
    };
    accepts("text/plain") && !accepts("text/event-stream")
}

/// Returns the lines that are there and those to come.
fn lines(reader: OutputReader, closing: CancellationToken) -> impl Stream<Item = String> {
    let batches = stream::unfold((reader, closing), async |(mut reader, closing)| {
        let batch = closing.run_until_cancelled(reader.next()).await??;
        Some((batch, (reader, closing)))
    });
    batches.flat_map(|OutputLines { missed, lines, .. }| {
        let note = (missed > 0).then(|| format!("({missed} lines are left out here)"));
        // The lines are shared with the model's other readers, so they are copied one at a time.
        let lines = lines.into_iter().map(|line| line.to_string());
        stream::iter(note.into_iter().chain(lines))
    })
}

fn events(lines: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let events = lines.map(|line| Ok::<_, Infallible>(Event::default().data(line)));
    let keep_alive = KeepAlive::new().interval(COMMENT_INTERVAL);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

fn text(lines: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let lines = lines.map(|line| Ok::<_, Infallible>(Bytes::from(line + "\n")));
    let mut text = Response::new(Body::from_stream(lines));
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    text.headers_mut().insert(CONTENT_TYPE, content_type);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_model_and_its_output() {
        for (path, name) in [
            ("/admin/models/a/logs", Some("a")),
            ("/admin/models/org/a:7b/logs", Some("org/a:7b")),
            ("/admin/models/logs", None),
            ("/admin/models/a/load", None),
        ] {
            assert_eq!(model(path), name, "{path}");
        }
    }

    #[test]
    fn text_is_for_clients_that_ask_for_it_alone() {
        for (accept, is_text) in [
            ("text/plain", true),
            ("text/html, text/plain;q=0.5", true),
            ("text/event-stream, text/plain", false),
            ("*/*", false),
            ("text/event-stream", false),
        ] {
            let accept = HeaderValue::from_static(accept);
            let headers = HeaderMap::from_iter([(ACCEPT, accept.clone())]);
            assert_eq!(accepts_text(&headers), is_text, "{accept:?}");
        }
        assert!(!accepts_text(&HeaderMap::new()));
    }
}

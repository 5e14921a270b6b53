//! A queue that the configuration may leave out, in front of a server or of one service.

use tonic::service::{LayerExt, Routes};
use tower::util::option_layer;

use super::*;

/// Spawns a server whose layer keeps the type of tonic's responses.
fn spawn<L, S>(layer: L, notes: Notes, incoming: TcpIncoming)
where
    L: Layer<Routes, Service = S> + Clone + Send + 'static,
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let server = Server::builder().layer(layer).add_service(notes);
    tokio::spawn(server.serve_with_incoming(incoming));
}

/// Says that the only slot is held by a stream, to its end.
pub(super) async fn one_runs(mut app: App) {
    let (mut counted, items) = app.count().await;
    items.send(Ok(note("one"))).unwrap();
    assert_eq!(counted.message().await.unwrap().unwrap().text, "one");
    let refused = say(&app, "now").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    drop(items);
    assert_eq!(counted.message().await.unwrap(), None);
    assert!(counted.trailers().await.unwrap().is_some());
    app.until(|_, running| running == 0).await;
    let failed = say(&app, "fail").await.unwrap_err();
    assert_eq!(failed.message(), "no such note");
    assert!(say(&app, "now").await.is_ok());
}

async fn two_run(mut app: App) {
    let (_counted, _items) = app.count().await;
    assert!(say(&app, "now").await.is_ok());
    assert_eq!(app.handle.status().served, 0);
}

#[tokio::test]
async fn a_server_runs_with_and_without_its_queue() {
    for is_enabled in [true, false] {
        let queue = QueueLayer::new(QueueConfig::new(1).max_size(0)).map_response_body(Body::new);
        let app = App::serve(queue.handle(), |notes, incoming| {
            spawn(option_layer(is_enabled.then_some(queue)), notes, incoming);
        })
        .await;
        match is_enabled {
            true => one_runs(app).await,
            false => two_run(app).await,
        }
    }
}

#[tokio::test]
async fn a_service_of_a_server_runs_with_and_without_its_queue() {
    for is_enabled in [true, false] {
        let queue = QueueLayer::new(QueueConfig::new(1).max_size(0)).map_response_body(Body::new);
        let app = App::serve(queue.handle(), |notes, incoming| {
            let notes = option_layer(is_enabled.then_some(queue)).named_layer(notes);
            let server = Server::builder().add_service(notes);
            tokio::spawn(server.serve_with_incoming(incoming));
        })
        .await;
        match is_enabled {
            true => one_runs(app).await,
            false => two_run(app).await,
        }
    }
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_mapped_queue_may_stand_around_a_single_service() {
    let queue = QueueLayer::new(QueueConfig::new(1).max_size(0)).map_response_body(Body::new);
    let app = App::serve(queue.handle(), |notes, incoming| {
        let server = Server::builder().add_service(queue.layer(notes));
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    one_runs(app).await;
}

#[tokio::test]
async fn an_exempt_call_passes_a_full_room() {
    let queue = QueueLayer::new(QueueConfig::new(0).max_size(0))
        .exempt(|request: &http::Request<_>| request.uri().path().ends_with("/Say"))
        .map_response_body(Body::new);
    let app = App::serve(queue.handle(), |notes, incoming| {
        spawn(queue, notes, incoming);
    })
    .await;
    assert!(say(&app, "now").await.is_ok());
    assert_eq!(app.handle.status().served, 0);
}

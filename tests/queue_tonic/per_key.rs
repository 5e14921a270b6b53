//! A limit for each method, and for each service.

use super::*;

#[tokio::test]
async fn each_method_has_a_limit_of_its_own() {
    let queue = QueueLayer::shed(1);
    let unused = queue.handle();
    let queue = queue.per_key(|request| request.uri().path());
    let handle = queue.handle();
    let mut app = App::serve(unused, |notes, incoming| {
        let server = Server::builder().layer(queue).add_service(notes);
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    let (_counted, _items) = app.count().await;
    assert!(say(&app, "now").await.is_ok());
    let running = tokio::spawn(say(&app, "running"));
    while handle.status()[2].1.running == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let refused = say(&app, "refused").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let methods: Vec<_> = handle
        .status()
        .into_iter()
        .filter_map(|(key, _)| key)
        .collect();
    assert_eq!(methods, ["/test.Notes/Count", "/test.Notes/Say"]);
    app.finish.add_permits(1);
    assert!(running.await.unwrap().is_ok());
    assert_eq!(app.handle.status().served, 0);
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn each_method_of_a_single_service_has_a_limit_of_its_own() {
    let queue = QueueLayer::shed(1);
    let unused = queue.handle();
    let queue = queue.per_key(|request: &http::Request<Body>| request.uri().path());
    let mut app = App::serve(unused, |notes, incoming| {
        let server = Server::builder().add_service(queue.layer(notes));
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    let (_counted, _items) = app.count().await;
    assert!(say(&app, "now").await.is_ok());
}

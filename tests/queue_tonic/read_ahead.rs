//! Calls that wait over one channel, with the default windows of tonic's client and server.

use super::*;
use tower_triage::queue::BodyMemory;

/// The messages of 199 calls wait unread. They are larger than the window of the connection, and an urgent call comes last.
#[tokio::test]
async fn all_calls_of_a_channel_are_served_though_their_messages_wait() {
    let layer = QueueLayer::limit(1).read_ahead(BodyMemory::new(64 << 20));
    let app = App::serve(layer.handle(), |notes, incoming| {
        let server = Server::builder().layer(layer).add_service(notes);
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    all_are_served(app).await;
}

async fn all_are_served(app: App) {
    const CALLS: usize = 199;
    let text = "x".repeat(32 << 10);
    let call = |priority: &'static str| {
        let mut request = Request::new(note(text.clone()));
        let priority = priority.parse().unwrap();
        request.metadata_mut().insert("x-priority", priority);
        tokio::spawn(ask(app.channel.clone(), request))
    };
    let mut calls: Vec<_> = (0..CALLS).map(|_| call("normal")).collect();
    app.until(|depth, running| (depth, running) == (CALLS - 1, 1))
        .await;
    calls.push(call("high"));
    app.until(|depth, _| depth == CALLS).await;
    app.finish.add_permits(CALLS + 1);
    let all = async {
        for call in calls {
            let said = call.await.unwrap().unwrap();
            assert_eq!(said.get_ref().text.len(), text.len());
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    all.expect("the connection stands still");
    app.until(|depth, running| (depth, running) == (0, 0)).await;
}

/// The memory is too small for all of them, so bodies are read as it is given back.
#[tokio::test]
async fn calls_are_served_though_few_messages_fit_into_the_memory() {
    let memory = BodyMemory::new(256 << 10);
    let layer = QueueLayer::limit(1).read_ahead(memory.clone());
    let app = App::serve(layer.handle(), |notes, incoming| {
        let server = Server::builder().layer(layer).add_service(notes);
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    app.finish.add_permits(40);
    let text = "x".repeat(32 << 10);
    let calls = (0..40).map(|_| ask(app.channel.clone(), Request::new(note(text.clone()))));
    let all = futures_util::future::join_all(calls);
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    for said in all.expect("the connection stands still") {
        assert!(said.is_ok(), "{said:?}");
    }
    app.until(|depth, running| (depth, running) == (0, 0)).await;
    assert_eq!(memory.used(), 0);
}

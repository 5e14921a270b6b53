//! SIGTERM and Ctrl-C: who waits is told at once, who is served is served.

use http_body_util::BodyExt;

use crate::backend::Backend;
use crate::client::Sent;
use crate::process::Setup;

#[tokio::test]
async fn at_the_end_waiters_are_told_and_running_requests_finish() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 3, &["m"]);
    let mut gateway = setup.start().await;
    let running: Vec<Sent> = (0..2).map(|_| gateway.ask("m").send()).collect();
    let mut arrived = vec![backend.next().await, backend.next().await];
    let streamed = gateway.ask("m").open();
    let (streamed, stream) = tokio::join!(streamed, async { backend.next().await.stream() });
    let mut streamed = streamed.into_body();
    stream.send("half ");
    assert_eq!(
        streamed
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "half "
    );
    let waiting: Vec<Sent> = (0..20).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(20).await;

    gateway.signal("TERM");
    for waiter in waiting {
        waiter.answer().await.must_be(503, "shutting_down");
    }
    let health = gateway.get("/healthz").answer().await;
    assert_eq!(health.error(), (503, "shutting_down".to_owned()));
    gateway
        .ask("m")
        .answer()
        .await
        .must_be(503, "shutting_down");
    let state = gateway.state().await;
    assert_eq!((state.depth(), state.running()), (0, 3));
    assert_eq!(state.rejected("shutting_down"), 21);
    assert!(running.iter().all(|sent| !sent.is_answered()));

    arrived.drain(..).for_each(|arrived| arrived.answer("done"));
    for sent in running {
        sent.answer().await.must_say("done");
    }
    assert_eq!(gateway.get("/healthz").answer().await.status, 503);
    stream.send("whole");
    assert_eq!(
        streamed
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "whole"
    );
    stream.end();
    assert!(streamed.frame().await.is_none());
    assert_eq!(gateway.exit().await.code(), Some(0));
    assert_eq!(backend.counts().arrived, 3);
}

#[tokio::test]
async fn an_idle_gateway_ends_well_at_either_signal() {
    for signal in ["TERM", "INT"] {
        let backend = Backend::start().await;
        let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
        let mut gateway = setup.start().await;
        gateway.signal(signal);
        assert_eq!(gateway.exit().await.code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn those_whom_backpressure_holds_back_are_told_too() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_size = 1\noverflow = \"backpressure\"")
        .backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting: Vec<Sent> = (0..5).map(|_| gateway.ask("m").send()).collect();
    gateway.depth(1).await;
    gateway.signal("TERM");
    for waiter in waiting {
        waiter.answer().await.must_be(503, "shutting_down");
    }
    arrived.answer("done");
    running.answer().await.must_say("done");
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_the_grace_period() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .arguments(&["--grace", "0.1"])
        .backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit().await.code(), Some(0));
    arrived.hung_up().await;
    drop(running);
}

#[tokio::test]
async fn who_presses_ctrl_c_twice_waits_for_nobody() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let mut gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    gateway.signal("INT");
    while gateway.get("/healthz").answer().await.status == 200 {}
    gateway.signal("INT");
    assert_eq!(gateway.exit().await.code(), Some(0));
    arrived.hung_up().await;
    drop(running);
}

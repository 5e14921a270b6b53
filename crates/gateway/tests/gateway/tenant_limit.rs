//! Tests of a tenant's limit of slots.

use crate::backend::Backend;
use crate::process::Setup;

#[tokio::test]
async fn a_tenant_at_its_limit_waits_while_others_are_served() {
    for discipline in ["fifo", "fair", "deadline"] {
        let backend = Backend::start().await;
        let queue = format!("max_concurrent_per_tenant = 2\ndiscipline = \"{discipline}\"");
        let setup = Setup::new()
            .queue(&queue)
            .backend("gpu-1", &backend, 4, &["m"]);
        let gateway = setup.start().await;
        let ask = |tenant: &str| gateway.ask("m").label(tenant).tenant(tenant);
        let first: Vec<_> = (0..5).map(|_| ask("a").send()).collect();
        let running = [backend.next().await, backend.next().await];
        gateway.depth(3).await;
        assert_eq!(gateway.state().await.running(), 2);
        // It finds a free slot, past those that wait.
        let other = ask("b").send();
        backend.next().await.answer("b");
        other.answer().await.assert_ok("b");
        assert_eq!(backend.more().await, 0);
        for arrived in running {
            arrived.answer("a");
            backend.next().await.answer("a");
        }
        backend.next().await.answer("a");
        for sent in first {
            sent.answer().await.assert_ok("a");
        }
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_named_tenant_has_limits_of_its_own() {
    let backend = Backend::start().await;
    let setup = |own: &str| {
        let queue = format!("max_concurrent_per_tenant = 1\ntenant_limits = {{ a = {own} }}");
        let setup = Setup::new().queue(&queue);
        setup.backend("gpu-1", &backend, 8, &["m"])
    };
    let gateway = setup("{ max_size = 1, concurrency = 2 }").start().await;
    let ask = |tenant: &str| gateway.ask("m").label(tenant).tenant(tenant);
    let first = [ask("a").send(), ask("a").send()];
    let running = [backend.next().await, backend.next().await];
    let waiting = ask("a").send();
    gateway.depth(1).await;
    ask("a")
        .send()
        .answer()
        .await
        .assert_error(429, "tenant_queue_full");
    let others = [ask("b").send(), ask("b").send()];
    let other = backend.next().await;
    gateway.depth(2).await;
    gateway.reload(&setup("{ concurrency = 3 }"));
    let raised = backend.next().await;
    gateway.depth(1).await;
    for arrived in running.into_iter().chain([raised, other]) {
        arrived.answer("fine");
    }
    backend.next().await.answer("fine");
    for sent in first.into_iter().chain([waiting]).chain(others) {
        sent.answer().await.assert_ok("fine");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_limit_that_is_raised_lets_waiters_go() {
    let backend = Backend::start().await;
    let setup = |queue: &str| {
        let setup = Setup::new().queue(queue);
        setup.backend("gpu-1", &backend, 4, &["m"])
    };
    let gateway = setup("max_concurrent_per_tenant = 1").start().await;
    let sent: Vec<_> = (0..3)
        .map(|_| gateway.ask("m").tenant("a").send())
        .collect();
    let first = backend.next().await;
    gateway.depth(2).await;
    gateway.reload(&setup("max_concurrent_per_tenant = 2"));
    let second = backend.next().await;
    gateway.depth(1).await;
    first.answer("fine");
    let third = backend.next().await;
    second.answer("fine");
    third.answer("fine");
    for sent in sent {
        sent.answer().await.assert_ok("fine");
    }
    gateway.idle().await;
}

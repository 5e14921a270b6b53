//! Limits of named tenants.

use tower_triage::admit::TenantLimits;

use super::*;

fn from(app: &App, tenant: &str) -> Client {
    app.client(tenant).header("x-tenant-id", tenant)
}

#[tokio::test]
async fn a_named_tenant_has_fewer_slots_and_less_room_than_the_others() {
    let limits = TenantLimits::default().max_size(1).concurrency(1);
    let app = App::start(QueueConfig::new(4).tenant_limits("a", limits)).await;
    let running = from(&app, "a").spawn();
    until("it runs", || app.jobs.running() == 1).await;
    // Slots are free, but not for this tenant.
    let waiting = app.wait(from(&app, "a")).await;
    let refused = from(&app, "a").send().await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.code().await, "tenant_queue_full");
    let others = ["b", "b", ""].map(|tenant| from(&app, tenant).spawn());
    until("all slots are busy", || app.jobs.running() == 4).await;
    app.jobs.finish(5);
    for sent in [running, waiting].into_iter().chain(others) {
        assert_eq!(sent.await.unwrap().status, 200);
    }
    app.is_idle().await;
}

#[tokio::test]
async fn a_tenant_with_limits_of_zero_is_refused_until_they_are_raised() {
    let none = TenantLimits::default().max_size(0).concurrency(0);
    let config = QueueConfig::new(4).tenant_limits("a", none);
    let app = App::start(config.clone()).await;
    assert_eq!(
        from(&app, "a").send().await.code().await,
        "tenant_queue_full"
    );
    let waits = config.tenant_limits("a", none.max_size(None));
    app.handle.reconfigure(waits.clone()).unwrap();
    let waiting = app.wait(from(&app, "a")).await;
    let raised = waits.tenant_limits("a", TenantLimits::default().concurrency(1));
    app.handle.reconfigure(raised).unwrap();
    app.jobs.finish(1);
    assert_eq!(waiting.await.unwrap().text().await, "served");
}

//! When the first checks of many endpoints are made.

use std::collections::HashMap;

use tokio::time::Instant;

use super::*;

/// So many endpoints at one address, each with a path of its own.
fn endpoints(count: usize, upstream: &Upstream, interval: Duration) -> Vec<Endpoint> {
    let one = |nth: usize| {
        let check = HealthCheck::new(format!("/e{nth}")).interval(interval);
        endpoint(&format!("e{nth}"), upstream).health(check)
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn first_checks_are_spread_over_the_interval() {
    const MANY: usize = 30;
    let upstream = Upstream::bind().await;
    let interval = Duration::from_secs(1);
    let router = TestRouter::of(endpoints(MANY, &upstream, interval));
    let begin = Instant::now();
    let _checks = router.checks();
    let mut first: HashMap<String, Instant> = HashMap::new();
    while first.len() < MANY {
        let (mut connection, head) = check_at(&upstream).await;
        let path = head.split(' ').nth(1).unwrap().to_owned();
        first.entry(path).or_insert_with(Instant::now);
        connection.send(WELL).await;
    }
    // Not earlier; perhaps later on a busy machine.
    let after = |nth: usize| first[&format!("/e{nth}")] - begin;
    assert!(after(MANY - 1) > interval / 2, "{:?}", after(MANY - 1));
    assert!(router.handle.endpoints().iter().all(EndpointRef::healthy));
}

#[tokio::test]
async fn few_endpoints_are_checked_at_once() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of(endpoints(8, &upstream, HOUR));
    let checks = router.checks();
    for _ in 0..8 {
        answer(&upstream, WELL).await;
    }
    soon(checks.first_results()).await;
}

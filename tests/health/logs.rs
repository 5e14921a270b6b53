//! Log lines about the health of endpoints.

use tracing_subscriber::filter::LevelFilter;

use super::log::Log;
use super::*;

#[tokio::test]
async fn each_change_of_health_is_logged_once() {
    let log = Log::default();
    let _installed = log.install(LevelFilter::INFO);
    let upstream = Upstream::bind().await;
    let mut routing = RoutingConfig::default().max_retries(0);
    (routing.eject_after, routing.eject_for) = (1, HOUR);
    let check = often().healthy_after(1).unhealthy_after(1);
    // The last endpoint would not be ejected.
    let other = endpoint("b", &upstream).priority(2);
    let [a, b] = [endpoint("a", &upstream).health(check), other];
    let breaks = |endpoint: Endpoint| endpoint.model(Model::new("breaks"));
    let router = TestRouter::routed([breaks(a), breaks(b)], routing);
    let _checks = router.checks();

    let (mut check, _) = check_at(&upstream).await;
    let mut after = async |result| {
        check.send(result).await;
        check = check_at(&upstream).await.0;
        short(&log)
    };
    assert_eq!(after(WELL).await, [""; 0]);
    assert_eq!(after(ILL).await, ["fails its checks", "out of service"]);
    assert_eq!(after(ILL).await, [""; 0]);
    assert_eq!(after(WELL).await, ["back in service"]);

    router.go.add_permits(1);
    soon(router.ask("breaks")).await.unwrap();
    assert_eq!(short(&log), ["failed too often", "out of service"]);
    assert_eq!(after(ILL).await, ["fails its checks"]);
    assert_eq!(after(WELL).await, [""; 0]);
    assert!(!router.endpoint("a").healthy());
}

/// The lines written since the last call, in short.
fn short(log: &Log) -> Vec<&'static str> {
    let known = [
        "fails its checks",
        "failed too often",
        "out of service",
        "back in service",
    ];
    let said = |line: &str| {
        let said = known.into_iter().find(|words| line.contains(words));
        said.unwrap_or_else(|| panic!("{line}"))
    };
    log.take().lines().map(said).collect()
}

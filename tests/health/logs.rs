//! Log lines about the health of endpoints.

use std::io;
use std::sync::Mutex;

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::filter::LevelFilter;

use super::*;

#[tokio::test]
async fn each_change_of_health_is_logged_once() {
    let log = Log::default();
    let _installed = log.install();
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
        log.take()
    };
    assert_eq!(after(WELL).await, [""; 0]);
    assert_eq!(after(ILL).await, ["fails its checks", "out of service"]);
    assert_eq!(after(ILL).await, [""; 0]);
    assert_eq!(after(WELL).await, ["back in service"]);

    router.go.add_permits(1);
    soon(router.ask("breaks")).await.unwrap();
    assert_eq!(log.take(), ["failed too often", "out of service"]);
    assert_eq!(after(ILL).await, ["fails its checks"]);
    assert_eq!(after(WELL).await, [""; 0]);
    assert!(!router.endpoint("a").healthy());
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn install(&self) -> (DefaultGuard, Dispatch) {
        // `tracing` caches per log line whether any subscriber wants it, and with a single subscriber asks only that of
        // the first thread to reach the line. The tests beside this one have none, so a second subscriber is needed.
        let another = Dispatch::new(NoSubscriber::new());
        let written = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::INFO)
            .with_writer(move || written.clone())
            .finish();
        (tracing::subscriber::set_default(subscriber), another)
    }

    /// The lines written since the last call, in short.
    fn take(&self) -> Vec<&'static str> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let said = |line: &str| {
            let known = [
                "fails its checks",
                "failed too often",
                "out of service",
                "back in service",
            ];
            let said = known.into_iter().find(|words| line.contains(words));
            said.unwrap_or_else(|| panic!("{line}"))
        };
        text.lines().map(said).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

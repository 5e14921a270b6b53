//! The request of a check, and what its result decides.

use http::header::{AUTHORIZATION, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn the_first_result_decides_at_once() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{:10000}",
        ""
    );
    for (answer, healthy) in [
        (WELL, true),
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        (&endless, true),
        (ILL, false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbreaks", false),
        ("HTTP/1.1 200", false),
        ("", false),
    ] {
        let upstream = Upstream::bind().await;
        let router = TestRouter::of([endpoint("a", &upstream).health(once())]);
        let checks = router.checks();
        tokio::join!(
            super::answer(&upstream, answer),
            soon(checks.first_results())
        );
        assert_eq!(router.endpoint("a").healthy(), healthy, "{answer}");
    }
}

/// At the default path, a page that is missing, forbidden or moved still shows that the endpoint works.
#[tokio::test]
async fn a_404_fails_only_a_configured_path() {
    for (status, well) in [
        ("301 Moved Permanently", true),
        ("302 Found", true),
        ("307 Temporary Redirect", true),
        ("401 Unauthorized", true),
        ("403 Forbidden", true),
        ("404 Not Found", true),
        ("405 Method Not Allowed", true),
        ("400 Bad Request", false),
        ("429 Too Many Requests", false),
        ("500 Internal Server Error", false),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        for (check, healthy) in [(once(), well), (HealthCheck::new("/up"), false)] {
            let upstream = Upstream::bind().await;
            let router = TestRouter::of([endpoint("a", &upstream).health(check)]);
            let checks = router.checks();
            tokio::join!(
                super::answer(&upstream, &answer),
                soon(checks.first_results())
            );
            assert_eq!(router.endpoint("a").healthy(), healthy, "{status}");
        }
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_down() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(once())]);
    drop(upstream);
    let checks = router.checks();
    soon(checks.first_results()).await;
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test]
async fn three_failures_mean_down_and_two_successes_up() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([endpoint("a", &upstream).health(often())]);
    let _checks = router.checks();
    let mut healthy_before = true;
    for (answer, healthy) in [
        (WELL, true),
        (ILL, true),
        (ILL, true),
        (WELL, true),
        (ILL, true),
        (ILL, true),
        (ILL, false),
        (WELL, false),
        (ILL, false),
        (WELL, false),
        (WELL, true),
        (ILL, true),
    ] {
        let (mut check, _) = check_at(&upstream).await;
        assert_eq!(router.endpoint("a").healthy(), healthy_before);
        check.send(answer).await;
        healthy_before = healthy;
    }
    check_at(&upstream).await;
    assert_eq!(router.endpoint("a").healthy(), healthy_before);
}

#[tokio::test]
async fn a_hanging_check_times_out_before_the_next() {
    for begins in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let upstream = Upstream::bind().await;
        let check = often().timeout(Duration::from_millis(20));
        let router = TestRouter::of([endpoint("a", &upstream).health(check)]);
        let _checks = router.checks();
        for _ in 0..3 {
            let mut hangs = soon(upstream.accept()).await;
            // Either may come too late on a busy machine: the check times out all the same.
            _ = hangs.0.read(&mut [0; 1024]).await;
            _ = hangs.0.write_all(begins.as_bytes()).await;
            soon(hangs.closed()).await;
        }
        assert!(!router.endpoint("a").healthy());
    }
}

#[tokio::test]
async fn checks_do_not_wait_for_each_other() {
    let (a, b) = (Upstream::bind().await, Upstream::bind().await);
    let router = TestRouter::of([
        endpoint("a", &a).health(once()),
        endpoint("b", &b).health(once()),
    ]);
    let checks = router.checks();
    let (mut hangs, _) = check_at(&a).await;
    answer(&b, ILL).await;
    until(|| !router.endpoint("b").healthy()).await;
    hangs.send(WELL).await;
    soon(checks.first_results()).await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test]
async fn a_check_uses_endpoint_headers_and_a_new_connection() {
    let upstream = Upstream::bind().await;
    let addr = upstream.addr();
    let url = format!("http://{addr}/base/").parse().unwrap();
    let router = TestRouter::of([Endpoint::new("a", url)
        .header(AUTHORIZATION, HeaderValue::from_static("Bearer key"))
        .health(HealthCheck::new("/v1/models?x=1"))]);
    let _checks = router.checks();
    let (mut check, head) = check_at(&upstream).await;
    let mut lines: Vec<_> = head.trim_end().lines().collect();
    lines[1..].sort_unstable();
    let host = format!("host: {addr}");
    assert_eq!(
        lines,
        [
            "get /base/v1/models?x=1 http/1.1",
            "authorization: bearer key",
            &host
        ]
    );
    check.send(WELL).await;
    soon(check.closed()).await;
}

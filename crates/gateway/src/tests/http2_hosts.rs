//! The hosts for which operators' pages are served over HTTP/2, which has the host in `:authority`, over real sockets.

use axum::http::Version;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::*;

async fn connect(addr: SocketAddr) -> SendRequest<Full<Bytes>> {
    let socket = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (client, connection) = handshake(TokioExecutor::new(), socket).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Returns the status of a request with this authority and these `Host` headers.
async fn status(
    client: &SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    authority: Option<&str>,
    hosts: &[&str],
) -> u16 {
    let request = Request::builder().method(method);
    let request = match authority {
        Some(authority) => request.uri(format!("http://{authority}{path}")),
        // The client sends one without an authority as what came over HTTP/1.
        None => request.uri(path).version(Version::HTTP_11),
    };
    let request = hosts
        .iter()
        .fold(request, |r, host| r.header("host", *host));
    let request = request.body(Full::default()).unwrap();
    let response = client.clone().send_request(request).await.unwrap();
    response.status().as_u16()
}

/// Asserts what is served of an address.
async fn assert_known_hosts_are_served(addr: SocketAddr, page: &str) {
    let client = connect(addr).await;
    for (authority, hosts, expected) in [
        (Some("localhost"), &[][..], 200),
        (Some("LocalHost:8081"), &[], 200),
        (Some("127.0.0.1:8081"), &[], 200),
        (Some("[::1]:8081"), &[], 200),
        (None, &["localhost"], 200),
        (Some("localhost"), &["localhost"], 200),
        (Some("evil.example"), &[], 421),
        (Some("evil.example:8081"), &[], 421),
        (Some("localhost.evil.example"), &[], 421),
        (Some("evil.example"), &["localhost"], 421),
        (Some("localhost"), &["evil.example"], 421),
        (None, &["evil.example"], 421),
        (None, &["localhost", "evil.example"], 421),
        (None, &[""], 421),
        (None, &[], 421),
    ] {
        let status = status(&client, Method::GET, page, authority, hosts).await;
        assert_eq!(status, expected, "{page} {authority:?} {hosts:?}");
    }
}

#[tokio::test]
async fn the_admin_address_serves_only_known_hosts_over_http2() {
    let (addr, _server) = start_admin_address().await;
    assert_known_hosts_are_served(addr, "/admin/state").await;
    assert_known_hosts_are_served(addr, "/metrics").await;
    let client = connect(addr).await;
    for authority in [Some("evil.example:8081"), None] {
        let refused = status(&client, Method::POST, "/admin/unload", authority, &[]);
        assert_eq!(refused.await, 421, "{authority:?}");
    }
}

#[tokio::test]
async fn the_main_address_has_operators_pages_for_known_hosts_over_http2() {
    let gateway = Running::start().await;
    let addr = gateway.url.strip_prefix("http://").unwrap();
    let addr: SocketAddr = addr.parse().unwrap();
    assert_known_hosts_are_served(addr, "/admin/state").await;
    let client = connect(addr).await;
    for authority in [Some("gateway.lan"), None] {
        let models = status(&client, Method::GET, "/v1/models", authority, &[]);
        assert_eq!(models.await, 200, "{authority:?}");
    }
}

//! Tests of the operator's pages: on the main address for clients on this machine, or on an address of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use crate::client::{Client, ClientRequest};
use crate::process::{Gateway, Setup};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

#[tokio::test]
async fn admin_pages_are_on_the_admin_address_only() {
    let gateway = Setup::new().top(ADMIN).start().await;
    gateway.logs(&["INFO", "admin on http://127.0.0.1:"]).await;
    for path in ["/metrics", "/admin/state"] {
        let main = gateway.get(path).answer().await;
        main.assert_error(404, "not_found");
        assert!(main.message().contains("[admin]"), "{}", main.message());
        assert_eq!(gateway.admin().get(path).answer().await.status, 200);
    }
    assert_eq!(gateway.state().await.0["schema"], 1);
    for path in ["/admin/nothing", "/admin/stream/", "/v1/nothing"] {
        let admin = gateway.admin().get(path).answer().await;
        admin.assert_error(404, "not_found");
    }
    let model = gateway.admin().ask("m").answer().await;
    model.assert_error(404, "not_found");
    assert_eq!(gateway.get("/healthz").answer().await.status, 200);
}

#[tokio::test]
async fn main_address_takes_no_post_to_admin_pages() {
    for top in ["", ADMIN] {
        let gateway = Setup::new().top(top).start().await;
        for path in ["/metrics", "/admin/state", "/admin/unload"] {
            let answer = gateway.ask("m").path(path).answer().await;
            answer.assert_error(404, "not_found");
            assert!(answer.message().contains("[admin]"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn admin_token_is_needed_for_every_page() {
    let top = format!("{ADMIN}token = \"${{ADMIN_TOKEN}}\"");
    let gateway = Setup::new()
        .top(&top)
        .environment("ADMIN_TOKEN", "sk-1234")
        .start()
        .await;
    let pages: [fn(&Client) -> ClientRequest; 4] = [
        |admin| admin.get("/metrics"),
        |admin| admin.get("/admin/state"),
        |admin| admin.get("/admin/nothing"),
        |admin| admin.post("/admin/unload"),
    ];
    for page in pages {
        let page = || page(gateway.admin());
        for refused in [
            page(),
            page().header("authorization", ""),
            page().header("authorization", "Bearer"),
            page().header("authorization", "Bearer "),
            page().header("authorization", "Bearer sk-1235"),
            page().header("authorization", "Bearer sk-12345"),
            page().header("authorization", "Basic sk-1234"),
            page().header("authorization", "sk-1234"),
            page().header("authorization", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        ] {
            let answer = refused.answer().await;
            answer.assert_error(401, "unauthorized");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let with_token = |scheme: &str| {
        let page = gateway.admin().get("/admin/state");
        page.header("authorization", format!("{scheme} sk-1234"))
    };
    assert_eq!(with_token("Bearer").answer().await.status, 200);
    let state = with_token("bearer").answer().await;
    assert_eq!(state.status, 200);
    assert!(!state.text().contains("sk-"));
    assert_eq!(gateway.logged("sk-"), 0);
}

/// An address of this machine that is not loopback, if it has one.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?; // chooses a route, sends nothing
    let addr = socket.local_addr().ok()?.ip();
    (!addr.is_loopback() && !addr.is_unspecified()).then_some(addr)
}

#[tokio::test]
async fn without_admin_address_pages_are_for_loopback_peers() {
    let Some(outside) = outside_address() else {
        eprintln!("not tested: this machine has no address but loopback");
        return;
    };
    let gateway = Setup::new().listen("0.0.0.0:0").start().await;
    let port = gateway.addr().parse::<SocketAddr>().unwrap().port();
    let from = |ip: IpAddr| Client::new(format!("http://{}", SocketAddr::new(ip, port)));
    for path in ["/metrics", "/admin/state", "/admin/nothing"] {
        let refused = from(outside).get(path).answer().await;
        refused.assert_error(403, "forbidden");
        assert!(
            refused.message().contains("[admin]"),
            "{}",
            refused.message()
        );
    }
    assert_eq!(from(outside).get("/healthz").answer().await.status, 200);
    let own = from(Ipv4Addr::LOCALHOST.into());
    assert_eq!(own.get("/admin/state").answer().await.status, 200);
}

#[tokio::test]
async fn without_token_the_admin_address_serves_only_known_hosts() {
    let top = format!("{ADMIN}[server]\nallowed_origins = [\"http://gateway.lan:8081\"]");
    let gateway = Setup::new().top(&top).start().await;
    let admin = gateway.admin();
    for host in [
        "evil.example:8081",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8081",
        "gateway.lan.evil.example",
        "",
    ] {
        let origin = format!("http://{host}");
        let action = admin.post("/admin/unload").header("origin", &origin);
        let action = action.header("sec-fetch-site", "same-origin");
        for request in [action, admin.get("/admin/state")] {
            let refused = request.header("host", host).answer().await;
            refused.assert_error(421, "misdirected_request");
            assert!(refused.message().contains("token"), "{refused:?}");
        }
    }
    for host in [
        "127.0.0.1:8081",
        "[::1]",
        "localhost",
        "LocalHost:8081",
        "gateway.lan",
    ] {
        let page = admin.get("/admin/state").header("host", host);
        assert_eq!(page.answer().await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn with_token_the_admin_address_serves_any_host() {
    let gateway = Setup::new()
        .top(&format!("{ADMIN}token = \"sk-1234\""))
        .start()
        .await;
    let page = gateway.admin().get("/admin/state");
    let page = page.header("authorization", "Bearer sk-1234");
    let page = page.header("host", "gateway.lan").header("via", "1.1 p");
    assert_eq!(page.answer().await.status, 200);
}

#[tokio::test]
async fn forwarded_requests_are_no_loopback_peers() {
    for top in ["", ADMIN] {
        let gateway = Setup::new().top(top).start().await;
        let operators = if top.is_empty() {
            gateway.client()
        } else {
            gateway.admin()
        };
        for header in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
            for path in ["/metrics", "/admin/state"] {
                let page = operators.get(path).header(header, "127.0.0.1");
                page.answer().await.assert_error(403, "forbidden");
            }
        }
        assert_eq!(operators.get("/metrics").answer().await.status, 200);
        let health = gateway.get("/healthz").header("via", "1.1 proxy");
        assert_eq!(health.answer().await.status, 200);
    }
}

#[tokio::test]
async fn without_admin_address_pages_are_for_known_hosts() {
    let gateway = Setup::new().start().await;
    for path in ["/metrics", "/admin/state"] {
        let refused = gateway.get(path).header("host", "evil.example").answer();
        refused.await.assert_error(421, "misdirected_request");
    }
    let models = gateway.get("/v1/models").header("host", "gateway.lan");
    assert_eq!(models.answer().await.status, 200);
}

#[tokio::test]
async fn own_pages_are_not_stored_or_sniffed() {
    let gateway = Setup::new().top(ADMIN).start().await;
    let admin = gateway.admin();
    for page in [
        admin.get("/metrics"),
        admin.get("/admin/state"),
        admin.get("/admin/nothing"),
        admin.head("/admin/state"),
        admin.post("/admin/unload"),
        admin.get("/metrics").header("host", "evil.example"),
        gateway.get("/v1/models"),
        gateway.get("/metrics"),
    ] {
        let page = page.answer().await;
        assert_eq!(page.header("cache-control"), Some("no-store"), "{page:?}");
        let sniffing = page.header("x-content-type-options");
        assert_eq!(sniffing, Some("nosniff"), "{page:?}");
    }
    let events = admin.get("/admin/events").open().await;
    assert_eq!(events.headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn admin_address_without_token_must_be_loopback() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (message, file) = Gateway::refusal(&format!("[admin]\nlisten = \"{listen}\"")).await;
        for word in [&file, "[admin]: ", listen, "set `token`"] {
            assert!(message.contains(word), "{word}\n{message}");
        }
    }
}

#[tokio::test]
async fn invalid_admin_token_error_names_the_problem_and_no_secret() {
    for (token, problem) in [
        ("${NO_SUCH_TOKEN}", "NO_SUCH_TOKEN, which is not set"),
        ("sk-1234${", "write `${NAME}`"),
        ("", "is empty"),
        ("sk-1234 x", "has a space"),
        ("sk-1234é", "not ASCII"),
    ] {
        let config = format!("[admin]\ntoken = \"{token}\"");
        let (message, file) = Gateway::refusal(&config).await;
        assert!(
            message.starts_with(&format!("{file}: line 1, [admin]: `token` ")),
            "{message}"
        );
        assert!(message.contains(problem), "{message}");
        assert!(!message.contains("sk-"), "{message}");
    }
}

#[tokio::test]
async fn admin_section_takes_effect_after_a_restart() {
    let gateway = Setup::new().start().await;
    let backend = Setup::new().backend_at("a", "http://127.0.0.1:9", 1, &["m"]);
    gateway.reload(&backend.top(ADMIN));
    gateway.logs(&["WARN", "`[admin]`", "restart"]).await;
    assert_eq!(gateway.get("/metrics").answer().await.status, 200);
}

#[tokio::test]
async fn taken_admin_address_error_names_it() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = taken.local_addr().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"{addr}\"");
    let (message, _) = Gateway::refusal(&config).await;
    assert!(message.contains(&addr.to_string()), "{message}");
}

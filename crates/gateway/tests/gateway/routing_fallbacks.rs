//! Tests of fallback chains, used when no endpoint can serve the requested model.

use http_body_util::BodyExt;

use crate::backend::Backend;
use crate::client::Answer;
use crate::process::{Gateway, Setup};

const EJECT_AT_ONCE: &str = "eject_after = 1\neject_seconds = 600";

/// Asserts that the error lists every model of the chain, in order.
#[track_caller]
fn assert_chain(answer: &Answer, chain: &[&str]) {
    answer.assert_error(503, "fallback_chain_exhausted");
    let message = answer.message();
    assert!(message.contains(&chain.join(", ")), "{message}");
}

#[tokio::test]
async fn first_available_fallback_serves_the_request() {
    let backend = Backend::replying("mistral").await;
    let setup = Setup::new()
        .routing("fallbacks = { \"claude-3-opus\" = [\"llama3:70b\", \"mistral:7b\", \"last\"] }")
        .backend("gpu-1", &backend, 1, &["mistral:7b", "last"]);
    let gateway = setup.start().await;
    let answer = gateway.ask("claude-3-opus").answer().await;
    answer.assert_ok("mistral");
    assert_eq!(answer.header("x-triage-model"), Some("mistral:7b"));
}

#[tokio::test]
async fn exhausted_fallback_chain_is_listed_in_the_error() {
    let routing = "fallbacks = { \"claude-3-opus\" = [\"llama3:70b\", \"mistral:7b\"] }";
    let chain = ["claude-3-opus", "llama3:70b", "mistral:7b"];
    let gateway = Setup::new().routing(routing).start().await;
    assert_chain(&gateway.ask("claude-3-opus").answer().await, &chain);

    let gone = Backend::unreachable();
    let setup = Setup::new()
        .routing("fallbacks = { m = [\"llama3:70b\", \"mistral:7b\"] }")
        .backend_checked("gpu-1", &gone, "interval_seconds = 3600");
    let gateway = setup.start().await;
    let chain = ["m", "llama3:70b", "mistral:7b"];
    assert_chain(&gateway.ask("m").answer().await, &chain);
}

#[tokio::test]
async fn chain_that_is_gone_is_listed_before_health_notices() {
    let setup = Setup::new()
        .routing("fallbacks = { m = [\"spare\"] }\neject_after = 0")
        .backend_at("gpu-1", &Backend::unreachable(), 1, &["m"])
        .backend_at("gpu-2", &Backend::unreachable(), 1, &["spare"]);
    let gateway = setup.start().await;
    for _ in 0..3 {
        assert_chain(&gateway.ask("m").answer().await, &["m", "spare"]);
        let spare = gateway.ask("spare").answer().await;
        spare.assert_error(502, "upstream_unreachable");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn alias_uses_the_fallbacks_of_its_target() {
    let (big, small) = (Backend::unreachable(), Backend::replying("small").await);
    let setup = Setup::new()
        .routing(EJECT_AT_ONCE)
        .routing("aliases = { gpt = \"big\", claude = \"none\" }")
        .routing("fallbacks = { big = [\"small\"], none = [\"small\"] }")
        .backend_at("gpu-1", &big, 1, &["big"])
        .backend("gpu-2", &small, 1, &["small"]);
    let gateway = setup.start().await;
    for name in ["gpt", "gpt", "claude"] {
        let answer = gateway.ask(name).answer().await;
        answer.assert_ok("small");
        assert_eq!(answer.header("x-triage-model"), Some("small"));
    }
}

#[tokio::test]
async fn empty_fallback_chain_counts_as_none() {
    let gone = Backend::unreachable();
    let setup = Setup::new()
        .routing("fallbacks = { m = [], unknown = [] }")
        .backend_checked("gpu-1", &gone, "interval_seconds = 3600");
    let gateway = setup.start().await;
    let unknown = gateway.ask("unknown").answer().await;
    unknown.assert_error(404, "model_not_found");
    let known = gateway.ask("m").answer().await;
    known.assert_error(503, "no_healthy_backend");
}

#[tokio::test]
async fn fallbacks_of_fallbacks_are_not_tried() {
    let backend = Backend::replying("C").await;
    let setup = Setup::new()
        .routing("fallbacks = { a = [\"b\"], b = [\"c\"] }")
        .backend("gpu-1", &backend, 1, &["c"]);
    let gateway = setup.start().await;
    gateway.ask("b").answer().await.assert_ok("C");
    assert_chain(&gateway.ask("a").answer().await, &["a", "b"]);
}

/// A gateway with a primary that refuses connections, and a fallback.
async fn primary_is_gone(fallback: &Backend) -> Gateway {
    let setup = Setup::new()
        .queue("max_size = 100\nmax_wait_seconds = 600")
        .routing(EJECT_AT_ONCE)
        .routing("fallbacks = { \"llama3:70b\" = [\"llama3:8b\"] }")
        .backend_at("primary", &Backend::unreachable(), 1, &["llama3:70b"])
        .backend("spare", fallback, 1, &["llama3:8b"]);
    setup.start().await
}

#[tokio::test]
async fn fallback_serves_at_once_when_primary_is_down() {
    let spare = Backend::start().await;
    let gateway = primary_is_gone(&spare).await;
    let body = |model: &str| {
        format!(
            "{{\n\t\"n\": 1.50e400,  \"x\":{{\"model\":\"llama3:70b\"}}, \"mod\\u0065l\" : \"{model}\" ,\"s\":\"\\u00e9 \u{1f999}\"}} "
        )
    };
    for (healthy, asked) in [
        ([true, true], "llama3:70b"),
        ([false, true], "llama3:70b"),
        ([false, true], "llama3:7\\u0030b"),
    ] {
        assert_eq!(gateway.state().await.healthy(), healthy);
        let ask = gateway.ask("").body(body(asked));
        let (answer, (head, seen)) = tokio::join!(ask.answer(), async {
            let arrived = spare.next().await;
            let (head, body) = (arrived.head.clone(), arrived.body.clone());
            assert_eq!(gateway.state().await.depth(), 0);
            arrived.answer("spare");
            (head, body)
        });
        answer.assert_ok("spare");
        assert_eq!(answer.header("x-triage-model"), Some("llama3:8b"));
        assert_eq!(answer.header("x-triage-endpoint"), Some("spare"));
        assert_eq!(seen, body("llama3:8b"));
        let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
        assert_eq!(lengths, [seen.len().to_string().as_str()]);
    }
    assert_eq!(spare.counts().arrived, 3);
}

#[tokio::test]
async fn primary_with_failing_health_check_is_skipped() {
    let spare = Backend::replying("spare").await;
    let primary = format!(
        "[[backends]]\nname = \"primary\"\nurl = {:?}\nmodels = [{{ name = \"big\" }}]\n",
        Backend::unreachable()
    );
    let setup = Setup::new()
        .queue("max_wait_seconds = 600")
        .routing("fallbacks = { big = [\"small\"] }")
        .backend("spare", &spare, 1, &["small"])
        .sections(&primary);
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, false]);
    let answer = gateway.ask("big").answer().await;
    answer.assert_ok("spare");
    assert_eq!(answer.header("x-triage-model"), Some("small"));
    assert_eq!(gateway.logged("no answer from the endpoint"), 0);
}

#[tokio::test]
async fn fallback_response_is_streamed() {
    let spare = Backend::start().await;
    let gateway = primary_is_gone(&spare).await;
    let asked = gateway.ask("llama3:70b").open();
    let (response, stream) = tokio::join!(asked, async { spare.next().await.stream() });
    assert_eq!(response.headers()["x-triage-model"], "llama3:8b");
    stream.send("word");
    stream.end();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "word");
}

#[tokio::test]
async fn requests_wait_for_busy_primary_by_default() {
    let (primary, spare) = (Backend::start().await, Backend::replying("spare").await);
    let setup = Setup::new()
        .routing("fallbacks = { big = [\"small\"] }")
        .backend("primary", &primary, 1, &["big"])
        .backend("spare", &spare, 1, &["small"]);
    let gateway = setup.start().await;
    let sent = [(); 2].map(|()| gateway.ask("big").send());
    gateway.depth(1).await;
    for _ in 0..2 {
        primary.next().await.answer("primary");
    }
    for sent in sent {
        sent.answer().await.assert_ok("primary");
    }
    assert_eq!(spare.counts().arrived, 0);
}

#[tokio::test]
async fn idle_fallback_serves_busy_primary_when_configured() {
    let (primary, spare) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("fallback_when = \"busy\"\nfallbacks = { big = [\"small\"] }")
        .backend("primary", &primary, 1, &["big"])
        .backend("spare", &spare, 1, &["small"]);
    let gateway = setup.start().await;
    let first = gateway.ask("big").send();
    let at_primary = primary.next().await;
    let second = gateway.ask("big").send();
    let at_spare = spare.next().await;
    assert_eq!(at_spare.model(), "small");
    // Both are busy: the next requests take the endpoint that becomes free first.
    let third = gateway.ask("big").send();
    gateway.depth(1).await;
    at_spare.answer("spare");
    second.answer().await.assert_ok("spare");
    let at_spare = spare.next().await;
    let fourth = gateway.ask("big").send();
    gateway.depth(1).await;
    at_primary.answer("primary");
    first.answer().await.assert_ok("primary");
    let at_primary = primary.next().await;
    assert_eq!(at_primary.model(), "big");
    at_primary.answer("primary");
    at_spare.answer("spare");
    third.answer().await.assert_ok("spare");
    fourth.answer().await.assert_ok("primary");
    gateway.idle().await;
}

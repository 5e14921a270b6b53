//! Who answers when nobody can serve the model that was asked for.

use http_body_util::BodyExt;

use crate::backend::Backend;
use crate::client::Answer;
use crate::process::{Gateway, Setup};

const LEFT_ALONE: &str = "eject_after = 1\neject_seconds = 600";

/// Asserts that every model of the chain is named, in order.
#[track_caller]
fn must_list(answer: &Answer, chain: &[&str]) {
    answer.must_be(503, "fallback_chain_exhausted");
    let message = answer.message();
    assert!(message.contains(&chain.join(", ")), "{message}");
}

#[tokio::test]
async fn the_first_of_the_chain_that_is_there_answers() {
    let backend = Backend::saying("mistral").await;
    let setup = Setup::new()
        .routing("fallbacks = { \"claude-3-opus\" = [\"llama3:70b\", \"mistral:7b\", \"last\"] }")
        .backend("gpu-1", &backend, 1, &["mistral:7b", "last"]);
    let gateway = setup.start().await;
    let answer = gateway.ask("claude-3-opus").answer().await;
    answer.must_say("mistral");
    assert_eq!(answer.header("x-triage-model"), Some("mistral:7b"));
}

#[tokio::test]
async fn a_chain_without_anybody_is_listed() {
    let routing = "fallbacks = { \"claude-3-opus\" = [\"llama3:70b\", \"mistral:7b\"] }";
    let chain = ["claude-3-opus", "llama3:70b", "mistral:7b"];
    let gateway = Setup::new().routing(routing).start().await;
    must_list(&gateway.ask("claude-3-opus").answer().await, &chain);

    let gone = Backend::gone().await;
    let setup = Setup::new()
        .routing("fallbacks = { m = [\"llama3:70b\", \"mistral:7b\"] }")
        .backend_checked("gpu-1", &gone, "interval_seconds = 3600");
    let gateway = setup.start().await;
    let chain = ["m", "llama3:70b", "mistral:7b"];
    must_list(&gateway.ask("m").answer().await, &chain);
}

#[tokio::test]
async fn an_alias_has_the_chain_of_its_target() {
    let (big, small) = (Backend::gone().await, Backend::saying("small").await);
    let setup = Setup::new()
        .routing(LEFT_ALONE)
        .routing("aliases = { gpt = \"big\", claude = \"none\" }")
        .routing("fallbacks = { big = [\"small\"], none = [\"small\"] }")
        .backend_at("gpu-1", &big, 1, &["big"])
        .backend("gpu-2", &small, 1, &["small"]);
    let gateway = setup.start().await;
    for name in ["gpt", "gpt", "claude"] {
        let answer = gateway.ask(name).answer().await;
        answer.must_say("small");
        assert_eq!(answer.header("x-triage-model"), Some("small"));
    }
}

#[tokio::test]
async fn an_empty_chain_is_none() {
    let gone = Backend::gone().await;
    let setup = Setup::new()
        .routing("fallbacks = { m = [], unknown = [] }")
        .backend_checked("gpu-1", &gone, "interval_seconds = 3600");
    let gateway = setup.start().await;
    let unknown = gateway.ask("unknown").answer().await;
    unknown.must_be(404, "model_not_found");
    let known = gateway.ask("m").answer().await;
    known.must_be(503, "no_healthy_backend");
}

#[tokio::test]
async fn a_fallbacks_own_fallbacks_are_not_tried() {
    let backend = Backend::saying("C").await;
    let setup = Setup::new()
        .routing("fallbacks = { a = [\"b\"], b = [\"c\"] }")
        .backend("gpu-1", &backend, 1, &["c"]);
    let gateway = setup.start().await;
    gateway.ask("b").answer().await.must_say("C");
    must_list(&gateway.ask("a").answer().await, &["a", "b"]);
}

/// A primary that refuses connections, and a fallback.
async fn primary_is_gone(fallback: &Backend) -> Gateway {
    let setup = Setup::new()
        .queue("max_size = 100\nmax_wait_seconds = 600")
        .routing(LEFT_ALONE)
        .routing("fallbacks = { \"llama3:70b\" = [\"llama3:8b\"] }")
        .backend_at("primary", &Backend::gone().await, 1, &["llama3:70b"])
        .backend("spare", fallback, 1, &["llama3:8b"]);
    setup.start().await
}

#[tokio::test]
async fn with_the_primary_down_the_fallback_answers_at_once() {
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
        answer.must_say("spare");
        assert_eq!(answer.header("x-triage-model"), Some("llama3:8b"));
        assert_eq!(answer.header("x-triage-endpoint"), Some("spare"));
        assert_eq!(seen, body("llama3:8b"));
        let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
        assert_eq!(lengths, [seen.len().to_string().as_str()]);
    }
    assert_eq!(spare.counts().arrived, 3);
}

#[tokio::test]
async fn a_primary_whose_health_check_fails_is_not_even_tried() {
    let spare = Backend::saying("spare").await;
    let primary = format!(
        "[[backends]]\nname = \"primary\"\nurl = {:?}\nmodels = [{{ name = \"big\" }}]\n",
        Backend::gone().await
    );
    let setup = Setup::new()
        .queue("max_wait_seconds = 600")
        .routing("fallbacks = { big = [\"small\"] }")
        .backend("spare", &spare, 1, &["small"])
        .more(&primary);
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, false]);
    let answer = gateway.ask("big").answer().await;
    answer.must_say("spare");
    assert_eq!(answer.header("x-triage-model"), Some("small"));
    assert_eq!(gateway.logged("no answer from the endpoint"), 0);
}

#[tokio::test]
async fn a_fallback_can_stream() {
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
async fn while_the_primary_is_busy_one_waits_for_it() {
    let (primary, spare) = (Backend::start().await, Backend::saying("spare").await);
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
        sent.answer().await.must_say("primary");
    }
    assert_eq!(spare.counts().arrived, 0);
}

#[tokio::test]
async fn an_idle_fallback_may_help_a_busy_primary() {
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
    // All are busy: who comes now takes whichever is free first.
    let third = gateway.ask("big").send();
    gateway.depth(1).await;
    at_spare.answer("spare");
    second.answer().await.must_say("spare");
    let at_spare = spare.next().await;
    let fourth = gateway.ask("big").send();
    gateway.depth(1).await;
    at_primary.answer("primary");
    first.answer().await.must_say("primary");
    let at_primary = primary.next().await;
    assert_eq!(at_primary.model(), "big");
    at_primary.answer("primary");
    at_spare.answer("spare");
    third.answer().await.must_say("spare");
    fourth.answer().await.must_say("primary");
    gateway.idle().await;
}

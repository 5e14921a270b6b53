//! Tests of stored requests: receipts, answers, order, and who may see them.

use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::backend::{Backend, status};
use crate::durable_support::{Folder, id, stored, until};
use crate::process::Setup;

#[tokio::test]
async fn receipt_leads_to_the_answer() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let receipt = stored(client, "1").answer().await;
    let id = id(&receipt);
    assert_eq!(receipt.header("preference-applied"), Some("respond-async"));
    assert_eq!(receipt.header("vary"), Some("Prefer"));
    assert!(receipt.header("retry-after").is_some(), "{receipt:?}");
    let urls = &receipt.json()["urls"];
    assert_eq!(urls["get"], format!("/requests/{id}"));
    assert_eq!(urls["cancel"], format!("/requests/{id}/cancel"));
    assert_eq!(urls["response"], format!("/requests/{id}/response"));

    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "1");
    assert_eq!(arrived.model(), "m");
    assert_eq!(arrived.header("x-triage-request-id"), Some(&*id));
    assert_eq!(arrived.header("x-triage-attempt"), Some("1"));
    assert_eq!(arrived.header("prefer"), None);
    until(client, &id, &["processing"]).await;
    let early = client
        .get(&format!("/requests/{id}/response"))
        .answer()
        .await;
    early.assert_error(409, "request_not_finished");
    let mut answer = http::Response::new("fine".to_owned());
    answer
        .headers_mut()
        .insert("x-own", "kept".parse().unwrap());
    arrived.respond(answer);

    let request = until(client, &id, &["succeeded"]).await;
    assert_eq!(request["attempts"], 1);
    assert_eq!(request["response_status"], 200);
    let answer = client
        .get(&format!("/requests/{id}/response"))
        .answer()
        .await;
    answer.assert_ok("fine");
    assert_eq!(answer.header("x-own"), Some("kept"));
    assert_eq!(answer.header("x-triage-endpoint"), Some("gpu-1"));
}

#[tokio::test]
async fn requests_without_its_headers_are_not_stored() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = Setup::new()
        .top("body_limit_bytes = 200")
        .backend("gpu-1", &backend, 1, &["m"])
        .sections(&folder.section("body_limit_bytes = 300"))
        .start()
        .await;
    gateway.ask("m").answer().await.assert_ok("fine");
    let list = gateway.get("/requests").answer().await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 0);
    let body = |length| {
        let start = r#"{"model":"m"}"#;
        format!("{start:length$}")
    };
    let ask = |length| gateway.ask("m").body(body(length));
    ask(200).answer().await.assert_ok("fine");
    ask(201).answer().await.assert_error(413, "body_too_large");
    let wait = |length| ask(length).header("prefer", "wait=30");
    wait(300).answer().await.assert_ok("fine");
    assert_eq!(wait(301).answer().await.status, 413);
    assert_eq!(gateway.get("/requests/x").answer().await.status, 404);
}

#[tokio::test]
async fn unknown_model_is_refused_before_it_is_stored() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let setup = folder.setup("", &backend);
    let setup = setup.routing("aliases = { alias = \"m\", astray = \"gone\" }");
    let gateway = setup.start().await;
    for (body, status, code) in [
        (r#"{"model":"gpt-5"}"#, 404, "model_not_found"),
        (r#"{"model":"astray"}"#, 404, "model_not_found"),
        (r#"{"model":"#, 400, "malformed_body"),
        ("{}", 400, "model_missing"),
    ] {
        let refused = stored(gateway.client(), "").body(body).answer().await;
        assert_eq!(refused.error(), (status, code.to_owned()), "{body}");
    }
    let list = gateway.get("/requests").answer().await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 0);
    let alias = gateway.ask("alias").header("prefer", "wait=30");
    alias.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn prefer_wait_has_the_answer_or_a_receipt() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder
        .setup("max_wait_seconds = 60", &backend)
        .start()
        .await;
    let waiting = gateway.ask("m").header("prefer", "wait=50").send();
    backend.next().await.answer("fine");
    let answer = waiting.answer().await;
    answer.assert_ok("fine");
    assert_eq!(answer.header("preference-applied"), Some("wait=50"));

    let receipt = gateway.ask("m").header("prefer", "wait=0").answer().await;
    let id = id(&receipt);
    let capped = gateway.ask("m").header("prefer", "wait=999").send();
    backend.next().await.answer("first");
    backend.next().await.answer("second");
    let capped = capped.answer().await;
    capped.assert_ok("second");
    assert_eq!(capped.header("preference-applied"), Some("wait=60"));
    let path = format!("/requests/{id}?wait=30");
    let ended = gateway.get(&path).answer().await.json();
    assert_eq!(ended["status"], "succeeded");
    let unreadable = gateway.get(&format!("/requests/{id}?wait=soon")).answer();
    assert_eq!(unreadable.await.status, 400);
}

#[tokio::test]
async fn failed_response_is_the_answer() {
    let (folder, backend) = (Folder::new(), Backend::failing(422).await);
    let gateway = folder.setup("", &backend).start().await;
    let answer = gateway.ask("m").header("prefer", "wait=30").answer().await;
    assert_eq!(answer.status, 422);
    let list = gateway.get("/requests?status=failed").answer().await.json();
    assert_eq!(list["data"][0]["response_status"], 422);
}

#[tokio::test]
async fn same_key_is_the_same_request() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let keyed = || stored(gateway.client(), "").header("idempotency-key", "k-1");
    let first = id(&keyed().answer().await);
    backend.next().await.answer("fine");
    until(gateway.client(), &first, &["succeeded"]).await;
    assert_eq!(id(&keyed().answer().await), first);
    let other = keyed().body(r#"{"model":"m","n":2}"#).answer().await;
    other.assert_error(422, "idempotency_key_reused");
    let other_tenant = keyed().tenant("b").answer().await;
    assert_ne!(id(&other_tenant), first);
    let attached = gateway.ask("m").header("idempotency-key", "k-1");
    attached.answer().await.assert_ok("fine");
    backend.next().await.answer("of b");
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn cancelled_request_never_starts() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let running = id(&stored(client, "running").answer().await);
    let arrived = backend.next().await;
    let queued = id(&stored(client, "queued").answer().await);
    let request = until(client, &queued, &["queued"]).await;
    assert_eq!(request["position"], 1);
    let cancel = |id: &str| client.post(&format!("/requests/{id}/cancel")).answer();
    let canceled = cancel(&queued).await;
    assert_eq!(canceled.status, 200);
    assert_eq!(canceled.json()["status"], "canceled");
    let response = client.get(&format!("/requests/{queued}/response"));
    response
        .answer()
        .await
        .assert_error(409, "request_canceled");

    assert_eq!(cancel(&running).await.json()["status"], "canceled");
    arrived.disconnected().await;
    let last = client.ask("m").header("prefer", "wait=30").send();
    backend.next().await.answer("last");
    last.answer().await.assert_ok("last");
    assert_eq!(cancel(&running).await.json()["status"], "canceled");
}

#[tokio::test]
async fn request_is_seen_by_its_tenant_alone() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder.setup("", &backend).start().await;
    let mine = stored(gateway.client(), "").tenant("a").answer().await;
    let id = id(&mine);
    let pages = ["", "/response", "/stream"].map(|page| format!("/requests/{id}{page}"));
    for page in &pages {
        for other in [gateway.get(page), gateway.get(page).tenant("b")] {
            assert_eq!(other.answer().await.status, 404, "{page}");
        }
    }
    let cancel = gateway.client().post(&format!("/requests/{id}/cancel"));
    assert_eq!(cancel.tenant("b").answer().await.status, 404);
    let ids = |list: Value| list["data"].as_array().unwrap().len();
    let list = |tenant: &str| gateway.get("/requests?tenant=a").tenant(tenant).answer();
    assert_eq!(ids(list("b").await.json()), 0);
    assert_eq!(ids(list("a").await.json()), 1);
    // The paths in `urls` lead operators to a request, too.
    for all in ["/admin/requests", "/requests"] {
        let all = gateway.admin().get(all).answer().await.json();
        assert_eq!(ids(all.clone()), 1);
        let url = all["data"][0]["urls"]["get"].as_str().unwrap();
        let page = gateway.admin().get(url).answer().await;
        assert_eq!((page.status, page.json()["id"].as_str()), (200, Some(&*id)));
        let cancel = gateway.admin().post(&format!("{url}/cancel"));
        assert_eq!(cancel.answer().await.status, 200);
    }
}

#[tokio::test]
async fn lists_are_newest_first_and_in_pages() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, id(&stored(gateway.client(), "").answer().await));
    }
    let page = gateway.get("/requests?limit=2").answer().await.json();
    assert_eq!(page["object"], "list");
    assert_eq!(page["first_id"], *ids[0]);
    assert_eq!(page["last_id"], *ids[1]);
    assert_eq!(page["has_more"], true);
    let rest = gateway.get(&format!("/requests?after={}", ids[1]));
    let rest = rest.answer().await.json();
    assert_eq!(rest["data"][0]["id"], *ids[2]);
    assert_eq!(rest["has_more"], false);
}

#[tokio::test]
async fn stored_answer_is_read_as_a_stream() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let id = id(&stored(client, "").answer().await);
    let arrived = backend.next().await;
    let path = format!("/requests/{id}/stream");
    let stream = client.get(&path).open().await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut data = stream.into_body().into_data_stream();
    let backend_stream = arrived.stream();
    let mut text = String::new();
    for event in ["one", "two"] {
        backend_stream.send(&format!("data: {event}\n\n"));
        while !text.contains(event) {
            let piece = data.next().await.expect("the stream has ended").unwrap();
            text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
    assert!(text.contains("id: 1"), "{text}");
    backend_stream.end();
    until(client, &id, &["succeeded"]).await;
    let again = client
        .get(&path)
        .header("last-event-id", "1")
        .answer()
        .await;
    assert!(again.text().contains("two"), "{again:?}");
    assert!(!again.text().contains("one"), "{again:?}");
}

#[tokio::test]
async fn urgent_requests_go_first_and_batch_work_last() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let level = |label: &str, level: &str| stored(client, label).header("x-priority", level);
    level("first", "normal").answer().await;
    let running = backend.next().await;
    for (label, name) in [("3", "batch"), ("2", "normal"), ("1", "high")] {
        id(&level(label, name).answer().await);
    }
    let online = gateway.ask("m").label("2").send();
    gateway.until("both wait", |state| state.depth() == 2).await;
    running.answer("");
    let mut order = Vec::new();
    for _ in 0..4 {
        let arrived = backend.next().await;
        order.push(arrived.label().to_owned());
        arrived.answer("");
    }
    assert_eq!(online.answer().await.status, 200);
    assert_eq!(order, ["1", "2", "2", "3"]);
}

#[tokio::test]
async fn without_a_healthy_backend_it_waits_until_its_deadline() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let url = Backend::unreachable();
    let down =
        format!("[[backends]]\nname = \"down\"\nurl = {url:?}\nmodels = [{{ name = \"n\" }}]\n");
    let gateway = folder.setup("", &backend).sections(&down).start().await;
    let client = gateway.client();
    let ask = || client.ask("n").header("prefer", "respond-async");
    let patient = id(&ask().answer().await);
    let hurried = id(&ask().header("cancel-after", "1").answer().await);
    let request = until(client, &hurried, &["aborted"]).await;
    assert_eq!(request["reason"], "deadline_exceeded");
    assert_eq!(request["attempts"], 0);
    let response = client.get(&format!("/requests/{hurried}/response"));
    response
        .answer()
        .await
        .assert_error(504, "deadline_exceeded");
    assert_eq!(until(client, &patient, &["queued"]).await["attempts"], 0);
    client
        .ask("n")
        .answer()
        .await
        .assert_error(503, "no_healthy_backend");
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn front_stores_all_requests_and_runs_none() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let front = folder.setup("role = \"front\"", &backend).start().await;
    front
        .logs(&["WARN", "[durable]", "`role = \"front\"`"])
        .await;
    let plain = front.ask("m").label("plain").send();
    let receipt = stored(front.client(), "receipt").answer().await;
    let receipt = id(&receipt);
    let mut front = front;
    let list = || front.get("/requests").answer();
    while list().await.json()["data"].as_array().unwrap().len() < 2 {}
    assert_eq!(
        until(front.client(), &receipt, &["queued"]).await["attempts"],
        0
    );
    plain.disconnect();
    front.signal("TERM");
    assert!(front.exit().await.success());
    assert_eq!(backend.counts().arrived, 0);

    let both = folder.setup("", &backend).start().await;
    for _ in 0..2 {
        backend.next().await.answer("later");
    }
    until(both.client(), &receipt, &["succeeded"]).await;
}

#[tokio::test]
async fn more_than_the_store_holds_is_refused() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let lines = "max_size = 2\nmax_size_per_tenant = 1";
    let gateway = folder.setup(lines, &backend).start().await;
    let ask = |tenant| stored(gateway.client(), "").tenant(tenant).answer();
    let first = id(&ask("a").await);
    ask("a").await.assert_error(429, "tenant_queue_full");
    id(&ask("b").await);
    ask("c").await.assert_error(503, "queue_full");
    backend.next().await.answer("");
    let seen = gateway.get(&format!("/requests/{first}?wait=30"));
    assert_eq!(
        seen.tenant("a").answer().await.json()["status"],
        "succeeded"
    );
    id(&ask("a").await);
}

#[tokio::test]
async fn gateway_without_the_section_stores_nothing() {
    let backend = Backend::replying("fine").await;
    let gateway = Setup::new()
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    stored(gateway.client(), "")
        .answer()
        .await
        .assert_ok("fine");
    gateway
        .get("/requests")
        .answer()
        .await
        .assert_error(404, "not_found");
    gateway
        .get("/admin/requests")
        .answer()
        .await
        .assert_error(404, "not_found");
}

#[tokio::test]
async fn one_backend_at_most_works_on_a_request() {
    for (lines, retries_after_reset) in [("", false), ("on_crash = \"retry\"", true)] {
        let folder = Folder::new();
        let (first, second) = (Backend::start().await, Backend::start().await);
        let lines_of = |priority| format!("priority = {priority}\nmodels = [{{ name = \"m\" }}]");
        let gateway = Setup::new()
            .routing("strategy = \"priority_only\"\neject_after = 0")
            .backend_with("first", &first.url(), &lines_of(1))
            .backend_with("second", &second.url(), &lines_of(2))
            .sections(&folder.section(lines))
            .start()
            .await;
        let client = gateway.client();
        let refused = id(&stored(client, "").answer().await);
        first.next().await.respond(status(503));
        second.next().await.answer("");
        until(client, &refused, &["succeeded"]).await;
        let broken = id(&stored(client, "").answer().await);
        drop(first.next().await);
        if retries_after_reset {
            drop(first.next().await); // the connection was a kept one
            second.next().await.answer("");
            until(client, &broken, &["succeeded"]).await;
        } else {
            until(client, &broken, &["failed"]).await;
            assert_eq!(second.more().await, 0);
        }
    }
}

#[tokio::test]
async fn refused_request_is_logged_with_its_code() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("max_size = 1", &backend).start().await;
    let client = gateway.client();
    stored(client, "1").answer().await;
    let running = backend.next().await;
    stored(client, "2").answer().await;
    let full = stored(client, "3").header("x-request-id", "late");
    full.answer().await.assert_error(503, "queue_full");
    gateway
        .logs(&["id=\"late\"", "status=503", "code=\"queue_full\""])
        .await;
    let missing = gateway
        .get("/requests/nothing")
        .header("x-request-id", "lost");
    missing
        .answer()
        .await
        .assert_error(404, "request_not_found");
    gateway
        .logs(&["id=\"lost\"", "code=\"request_not_found\""])
        .await;
    running.answer("fine");
}

#[tokio::test]
async fn run_is_live_and_logged_with_the_id_of_its_request() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let request = stored(gateway.client(), "1").header("x-request-id", "mine");
    let receipt = request.answer().await;
    let running = backend.next().await;
    let live = gateway.admin().get("/admin/live").answer().await.json();
    assert_eq!(live["requests"][0]["id"], "mine");
    assert_eq!(live["requests"][0]["phase"], "running");
    assert_eq!(live["requests"][0]["endpoint"], "gpu-1");
    running.answer(r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#);
    let stored = format!("stored=\"{}\"", id(&receipt));
    let line = gateway.logs(&["id=\"mine\"", &stored]).await;
    for word in [
        "attempt=\"1\"",
        "status=200",
        "endpoint=\"gpu-1\"",
        "model=\"m\"",
        "tries=1",
        "result=\"complete\"",
        "prompt_tokens=3",
        "tokens=2",
    ] {
        assert!(line.contains(word), "{word}\n{line}");
    }
    // The client has one answer, the receipt.
    let requests = |line: &&str| line.starts_with("http_server_request_duration_seconds_count");
    let metrics = gateway.admin().get("/metrics").answer().await;
    let counted: Vec<_> = metrics.text().lines().filter(requests).collect();
    let chats: Vec<_> = counted
        .iter()
        .filter(|it| it.contains("/v1/chat"))
        .collect();
    assert_eq!(chats.len(), 1, "{counted:?}");
    assert!(chats[0].ends_with(" 1"), "{chats:?}");
    assert!(metrics.text().contains("gen_ai_client_token_usage_count"));
}

#[tokio::test]
async fn run_that_an_operator_cancels_ends_at_its_backend() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let request = stored(gateway.client(), "1").header("x-request-id", "mine");
    let receipt = request.answer().await;
    let running = backend.next().await;
    let path = "/admin/requests/mine/cancel";
    assert_eq!(gateway.admin().post(path).answer().await.status, 200);
    running.disconnected().await;
    let request = until(gateway.client(), &id(&receipt), &["succeeded", "failed"]).await;
    assert_eq!(request["response_status"], 503);
}

#[tokio::test]
async fn an_encoding_that_no_run_could_read_is_refused_at_the_door() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    for (encoding, is_stored) in [("br", false), ("gzip, identity", false), ("identity", true)] {
        let request = stored(client, "1").header("content-encoding", encoding);
        let answer = request.answer().await;
        match is_stored {
            true => assert_eq!(answer.status, 202, "{encoding}"),
            false => answer.assert_error(415, "unsupported_encoding"),
        }
    }
}

#[tokio::test]
async fn a_failed_request_runs_again_where_the_policy_allows_it() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let lines = "max_attempts = 3\nbackoff_seconds = 0.01";
    let routing = "eject_after = 0\nmax_retries = 0";
    let gateway = folder.setup(lines, &backend).routing(routing).start().await;
    let client = gateway.client();
    let passes = id(&stored(client, "").answer().await);
    for code in [500, 502] {
        backend.next().await.respond(status(code));
    }
    let third = backend.next().await;
    assert_eq!(third.header("x-triage-attempt"), Some("3"));
    third.answer("fine");
    until(client, &passes, &["succeeded"]).await;
    let fails = id(&stored(client, "").answer().await);
    backend.next().await.respond(status(502));
    drop(backend.next().await); // the connection breaks
    backend.next().await.respond(status(503));
    let ended = until(client, &fails, &["failed"]).await;
    assert_eq!(ended["response_status"], 503);
}

//! Tests of what operators see of stored requests and do with them: on the admin address, by the command line, in metrics.

use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::admin_stream::Stream;
use crate::backend::{Backend, status};
use crate::durable_support::{Folder, id, stored, until};
use crate::process::{Gateway, Setup, output};

/// Runs `triage-gateway requests` for this gateway; returns what it prints.
async fn requests(gateway: &Gateway, arguments: &[&str]) -> String {
    let (code, text, problem) = asked(gateway, arguments).await;
    assert_eq!(code, Some(0), "{problem}");
    text
}

async fn asked(gateway: &Gateway, arguments: &[&str]) -> (Option<i32>, String, String) {
    let admin = ["--admin", gateway.admin_url()];
    output(&[&["requests"], arguments, &admin].concat()).await
}

#[tokio::test]
async fn command_line_lists_shows_cancels_and_retries() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    assert_eq!(requests(&gateway, &["ls"]).await, "no requests\n");
    let failed = id(&stored(client, "").tenant("team-a").answer().await);
    backend.next().await.respond(status(422));
    let failed_status = |words| requests(&gateway, words);
    while !failed_status(&["ls", "--status", "failed"])
        .await
        .contains(&failed)
    {}
    let blocking = id(&stored(client, "").answer().await);
    let arrived = backend.next().await;
    let queued = id(&stored(client, "").answer().await);

    let list = requests(&gateway, &["ls"]).await;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("ID "), "{list}");
    assert!(
        lines[1..].iter().all(|line| line.contains("normal")),
        "{list}"
    );
    for (line, (id, words)) in lines[1..].iter().zip([
        (&queued, "queued"),
        (&blocking, "processing"),
        (&failed, "team-a"),
    ]) {
        assert!(line.starts_with(&**id) && line.contains(words), "{list}");
    }
    let of_tenant = requests(&gateway, &["ls", "--tenant", "team-a", "--limit", "1"]).await;
    assert_eq!(of_tenant.lines().count(), 2, "{of_tenant}");
    let shown = requests(&gateway, &["show", &failed]).await;
    for words in ["team-a", "422", "normal", " UTC, "] {
        assert!(shown.contains(words), "{shown}");
    }

    assert_eq!(
        requests(&gateway, &["cancel", &queued]).await,
        format!("{queued} canceled\n")
    );
    let retried = requests(&gateway, &["retry", &failed]).await;
    assert_eq!(retried, format!("{failed} queued\n"));
    arrived.answer("");
    backend.next().await.answer("at last");
    let response = client
        .get(&format!("/requests/{failed}?wait=30"))
        .tenant("team-a");
    assert_eq!(response.answer().await.json()["status"], "succeeded");
    let (code, _, problem) = asked(&gateway, &["retry", &failed]).await;
    assert_eq!(code, Some(1));
    assert!(problem.contains("has succeeded"), "{problem}");
}

#[tokio::test]
async fn command_line_errors_say_what_to_do() {
    let id = "0123456789abcdef0123456789abcdef";
    let (code, _, problem) = output(&["requests", "show", "x"]).await;
    assert_eq!(code, Some(2));
    assert!(problem.contains("not the id of a request"), "{problem}");
    let (code, _, problem) = output(&["requests", "ls", "--admin", "http://127.0.0.1:9"]).await;
    assert_eq!(code, Some(1));
    assert!(
        problem.contains("http://127.0.0.1:9") && problem.contains("--config"),
        "{problem}"
    );

    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let (code, _, problem) = asked(&gateway, &["show", id]).await;
    assert_eq!(code, Some(1));
    assert!(problem.starts_with("404"), "{problem}");
    assert!(problem.contains("gateway requests ls"), "{problem}");
    let without = Setup::new()
        .top("[admin]\nlisten = \"127.0.0.1:0\"\n")
        .start()
        .await;
    let (code, _, problem) = asked(&without, &["ls"]).await;
    assert_eq!(code, Some(1));
    assert!(problem.contains("[durable]"), "{problem}");
}

#[tokio::test]
async fn paused_queue_starts_nothing_until_it_is_resumed() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let (client, admin) = (gateway.client(), gateway.admin());
    let pause = admin
        .post("/admin/durable/pause")
        .body(r#"{"queue":"m","reason":"update"}"#);
    assert_eq!(pause.answer().await.status, 200);
    let paused = id(&stored(client, "").answer().await);
    let state = admin.get("/admin/durable").answer().await;
    assert!(state.text().contains("update"), "{state:?}");
    assert_eq!(state.json()["queues"][0]["priority"], "normal");
    gateway.ask("m").send().disconnect();
    let online = gateway.ask("m").send();
    backend.next().await.answer("online");
    online.answer().await;
    assert_eq!(until(client, &paused, &["queued"]).await["attempts"], 0);
    let resume = admin.post("/admin/durable/resume").body(r#"{"queue":"m"}"#);
    assert_eq!(resume.answer().await.status, 200);
    backend.next().await.answer("stored");
    until(client, &paused, &["succeeded"]).await;
}

#[tokio::test]
async fn actions_on_requests_have_the_rules_of_the_admin_address() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let path = format!("/admin/requests/{}/retry", "0".repeat(32));
    for path in [&*path, "/admin/durable/pause", "/admin/requests"] {
        let main = gateway.client().post(path).answer().await;
        main.assert_error(404, "not_found");
        let other_site = gateway
            .admin()
            .post(path)
            .header("origin", "http://evil.example");
        other_site.answer().await.assert_error(403, "cross_site");
    }
    gateway
        .get("/admin/requests")
        .answer()
        .await
        .assert_error(404, "not_found");
    let forwarded = gateway
        .admin()
        .get("/admin/requests")
        .header("via", "1.1 p");
    forwarded.answer().await.assert_error(403, "forbidden");
    gateway
        .admin()
        .post(&path)
        .answer()
        .await
        .assert_error(404, "request_not_found");
}

#[tokio::test]
async fn metrics_have_depth_and_age_by_queue_and_level() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    id(&stored(client, "").answer().await);
    let arrived = backend.next().await;
    let queued = id(&stored(client, "")
        .header("x-priority", "batch")
        .answer()
        .await);
    let page = async || {
        gateway
            .admin()
            .get("/metrics")
            .answer()
            .await
            .text()
            .to_owned()
    };
    let text = page().await;
    for line in [
        "triage_durable_depth{queue=\"m\",priority=\"batch\"} 1\n",
        "triage_durable_running{queue=\"m\",priority=\"normal\"} 1\n",
        "triage_durable_oldest_seconds{queue=\"m\",priority=\"batch\"} ",
        "triage_durable_store_up 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    arrived.answer("");
    backend.next().await.answer("");
    until(client, &queued, &["succeeded"]).await;
    let text = page().await;
    for line in [
        "triage_durable_attempts_total 2\n",
        "triage_durable_outcomes_total{queue=\"m\",outcome=\"succeeded\"} 2\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let empty = "triage_durable_depth{queue=\"m\",priority=\"batch\"} 0\n";
    assert!(text.contains(empty), "{text}");
}

#[tokio::test]
async fn metrics_count_how_requests_end() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let broken = id(&stored(client, "").answer().await);
    let arrived = backend.next().await;
    let cancelled = id(&stored(client, "").answer().await);
    let cancel = client.post(&format!("/requests/{cancelled}/cancel"));
    assert_eq!(cancel.answer().await.status, 200);
    let late = stored(client, "").header("cancel-after", "1s");
    let late = id(&late.answer().await);
    until(client, &late, &["aborted"]).await;
    let stream = arrived.stream();
    stream.send("data: 1\n\n");
    let seen = client.get(&format!("/requests/{broken}/stream"));
    let mut seen = seen.open().await.into_body().into_data_stream();
    seen.next().await.expect("the stream has ended").unwrap();
    stream.abort();
    until(client, &broken, &["failed"]).await;
    let metrics = gateway.admin().get("/metrics").answer().await;
    for end in [
        "outcome=\"canceled\",reason=\"request_canceled\"",
        "outcome=\"aborted\",reason=\"deadline_exceeded\"",
        "outcome=\"failed\",reason=\"service_failed\"",
    ] {
        let line = format!("triage_durable_outcomes_total{{queue=\"m\",{end}}} 1\n");
        assert!(metrics.text().contains(&line), "{line}\n{metrics:?}");
    }
    assert!(!metrics.text().contains("succeeded"), "{metrics:?}");
}

#[tokio::test]
async fn changed_section_takes_effect_after_a_restart() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder.setup("", &backend).start().await;
    gateway.reload(&folder.setup("max_size = 1", &backend));
    gateway.logs(&["WARN", "`[durable]`", "restart"]).await;
    let levels = folder.setup("", &backend);
    let levels = levels.queue("priorities = [\"low\"]\ndefault_priority = \"low\"");
    gateway.reload(&levels);
    gateway.logs(&["WARN", "`priorities`", "restart"]).await;
    gateway.logs(&["INFO", "[queue] has changed"]).await;
    let state: Value = gateway.state().await.0;
    assert_eq!(state["queue"]["levels"][1]["name"], "batch");
}

#[tokio::test]
async fn misspelt_key_is_refused_with_its_line() {
    let (message, file) = Gateway::refusal("[durable]\nstore = \"embedded\"\nretention = 5").await;
    assert!(
        message.starts_with(&format!("{file}: line 3, column 1")),
        "{message}"
    );
    assert!(message.contains("unknown field `retention`"), "{message}");
}

#[tokio::test]
async fn operators_page_shows_depths_pauses_and_failures() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let (client, admin) = (gateway.client(), gateway.admin());
    let failed = id(&stored(client, "").tenant("team-a").answer().await);
    backend.next().await.respond(status(422));
    while !requests(&gateway, &["ls", "--status", "failed"])
        .await
        .contains(&failed)
    {}
    let pause = admin
        .post("/admin/durable/pause")
        .body(r#"{"queue":"m","reason":"update"}"#);
    assert_eq!(pause.answer().await.status, 200);
    id(&stored(client, "").answer().await);

    let (_, _, snapshot) = Stream::open(admin).await.next().await.unwrap();
    let durable = &snapshot["state"]["durable"];
    assert_eq!(durable["queues"]["m normal"]["queued"], 1, "{durable}");
    assert_eq!(durable["pauses"][0]["reason"], "update");
    let shown = &durable["failed"][&failed];
    assert_eq!(shown["tenant"], "team-a");
    assert_eq!(shown["reason"], "error_response");
}

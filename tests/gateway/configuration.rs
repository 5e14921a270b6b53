//! What the gateway makes of its command line and its file.

use std::net::TcpListener;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, run};

const BACKEND: &str = "[[backends]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n";

/// Asserts that the file is refused by the names of file, line and key.
async fn refuse(config: &str, line: usize, key: &str) {
    let (said, file) = Gateway::refusal(config).await;
    for word in [file.as_str(), key, &format!("line {line},")] {
        assert!(said.contains(word), "{word:?} is missing\n{config}\n{said}");
    }
}

/// Asserts that the file is refused by its name and these words.
async fn refuse_whole(config: &str, words: &[&str]) {
    let (said, file) = Gateway::refusal(config).await;
    for word in words.iter().chain([&file.as_str()]) {
        assert!(said.contains(word), "{word:?} is missing\n{config}\n{said}");
    }
}

#[tokio::test]
async fn an_unknown_key_is_named_with_its_line() {
    for (section, key) in [
        ("", "lissten = 1"),
        ("[queue]", "max_sise = 1"),
        ("[queue.retry_after]", "min = 1"),
        ("[routing]", "retries = 1"),
        ("[routing.weights]", "speed = 1"),
        ("[health]", "pth = \"/\""),
        ("[upstream]", "timeout = 1"),
        ("", "[queues]"),
    ] {
        let name = key.split(' ').next().unwrap().trim_matches(['[', ']']);
        refuse(&format!("{section}\n{key}"), 2, name).await;
    }
    refuse(&format!("{BACKEND}slots = 3"), 4, "slots").await;
    refuse(&format!("{BACKEND}health = {{ pth = \"/\" }}"), 4, "pth").await;
    let models = "models = [\n{ name = \"m\" },\n{ name = \"n\", size = 1 }]";
    refuse(&format!("{BACKEND}{models}"), 6, "size").await;
}

#[tokio::test]
async fn a_value_of_the_wrong_kind_is_named_with_its_line() {
    for line in [
        "listen = \"here\"",
        "listen = 8080",
        "body_limit_bytes = -1",
        "body_limit_bytes = \"10 MiB\"",
    ] {
        refuse(line, 1, line.split(' ').next().unwrap()).await;
    }
    for line in [
        "enabled = 1",
        "max_size = -1",
        "max_size = \"many\"",
        "max_wait_seconds = -1",
        "max_wait_seconds = nan",
        "max_wait_seconds = \"never\"",
        "overflow = \"drop\"",
        "discipline = \"lifo\"",
        "priorities = \"high\"",
        "max_size_per_tenant = -1",
        "promote_after_seconds = -1",
        "streaming = \"maybe\"",
        "hold = \"forever\"",
        "displace = \"yes\"",
        "tenant_weights = { a = -1 }",
        "retry_after = { mode = \"never\" }",
        "retry_after = { min_seconds = -1 }",
    ] {
        refuse(
            &format!("[queue]\n{line}"),
            2,
            line.split(' ').next().unwrap(),
        )
        .await;
    }
    for line in [
        "priority = -1",
        "max_concurrent = 0",
        "max_concurrent = -1",
        "health = 3",
        "models = [\"m\"]",
        "models = [{ context_length = 1 }]",
        "models = [{ name = \"m\", vision = 1 }]",
    ] {
        let key = line.split(' ').next().unwrap();
        refuse(&format!("{BACKEND}{line}"), 4, key).await;
    }
    refuse("[[backends]]\nname = \"a\"", 1, "url").await;
    refuse("[[backends]]\nurl = \"http://a\"", 1, "name").await;
    refuse("[[backends]]\nname = \"a\"\nurl = \"a b\"", 3, "url").await;
    refuse("[[backends]]\nname = \"a\"\nurl = \"ftp://a\"", 3, "url").await;
    refuse("[routing]\nmax_retries = -1", 2, "max_retries").await;
    refuse("[routing]\nweights = { priority = 60 }", 2, "weights").await;
    refuse("[health]\ninterval_seconds = 0", 2, "interval_seconds").await;
    refuse("[health]\nunhealthy_after = 0", 2, "unhealthy_after").await;
    for key in ["connect_timeout_seconds", "first_byte_timeout_seconds"] {
        for value in ["0", "-1", "nan", "\"soon\""] {
            refuse(&format!("[upstream]\n{key} = {value}"), 2, key).await;
        }
    }
    refuse("listen = ", 1, "").await;
    refuse("[swap]", 1, "swap").await;
    refuse("[durable]", 1, "durable").await;
}

#[tokio::test]
async fn bad_levels_are_named_with_the_line_of_their_table() {
    for (line, words) in [
        ("priorities = []", "`priorities` is empty"),
        (
            "priorities = [\"normal\", \"NORMAL\"]",
            "`priorities` names \"NORMAL\" twice",
        ),
        (
            "default_priority = \"vip\"",
            "`default_priority` is \"vip\"",
        ),
    ] {
        refuse(&format!("[queue]\n{line}"), 1, words).await;
    }
}

#[tokio::test]
async fn values_that_do_not_go_together_are_named() {
    for (line, words) in [
        ("priority_header = \"x y\"", &["priority_header", "x y"][..]),
        ("tenant_header = \"\"", &["tenant_header"]),
        ("promote_after_seconds = 0", &["promote_after_seconds"]),
        ("tenant_weights = { a = 0 }", &["tenant_weights", "\"a\""]),
        ("retry_after = { jitter = 2 }", &["retry_after.jitter"]),
        (
            "retry_after = { min_seconds = 61 }",
            &["retry_after.min_seconds", "61"],
        ),
    ] {
        let words: Vec<&str> = [&["[queue]"], words].concat();
        refuse_whole(&format!("[queue]\n{line}"), &words).await;
    }
    refuse_whole(&BACKEND.repeat(2), &["[[backends]]", "name", "\"a\""]).await;
    for (line, words) in [
        (
            "models = [{ name = \"m\" }, { name = \"m\" }]",
            &["\"a\"", "\"m\""][..],
        ),
        ("models = [{ name = \"\" }]", &["\"a\"", "model", "name"]),
        (
            "models = [{ name = \"a\\nb\" }]",
            &["\"a\"", "model", "name"],
        ),
    ] {
        let words: Vec<&str> = [&["[[backends]]"], words].concat();
        refuse_whole(&format!("{BACKEND}{line}"), &words).await;
    }
    let nameless = BACKEND.replace("\"a\"", "\"\"");
    refuse_whole(&nameless, &["[[backends]]", "endpoint 1", "name"]).await;
    let with_key = BACKEND.replace(":9", ":9/?key=1");
    refuse_whole(&with_key, &["[[backends]]", "url", "query"]).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let nowhere = std::env::temp_dir().join("tower-triage-no-such-file.toml");
    for path in [nowhere, std::env::temp_dir()] {
        let path = path.to_str().unwrap();
        let (code, said) = run(&["--config", path]).await;
        assert_eq!(code, Some(1));
        assert!(said.contains(path), "{said}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let (said, _) = Gateway::refusal(&format!("listen = \"{addr}\"")).await;
    assert!(said.contains(&addr), "{said}");
}

#[tokio::test]
async fn the_command_line_is_explained_and_its_mistakes_named() {
    let (code, _) = run(&["--help"]).await;
    assert_eq!(code, Some(0));
    for (args, word) in [
        (&["--confg", "x"][..], "--confg"),
        (&["--config"], "--config"),
        (&["--grace", "soon"], "soon"),
        (&["--log", "xml"], "xml"),
    ] {
        let (code, said) = run(args).await;
        assert_eq!(code, Some(2));
        assert!(said.contains(word) && said.contains("Usage"), "{said}");
    }
}

#[tokio::test]
async fn a_limit_that_would_be_ignored_is_refused() {
    refuse("[queue]\nconcurrency = 3", 1, "concurrency").await;
}

#[tokio::test]
async fn every_key_of_the_example_is_read() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("body_limit_bytes = 10485760")
        .queue(
            r#"
            enabled = true
            max_size = 100
            max_wait_seconds = 30
            overflow = "reject"
            discipline = "fifo"
            priorities = ["high", "normal"]
            default_priority = "normal"
            priority_header = "x-priority"
            tenant_header = "x-tenant-id"
            max_size_per_tenant = 0
            promote_after_seconds = 10
            streaming = "queue"
            hold = "body"
            displace = false
            [queue.tenant_weights]
            "team-a" = 3
            [queue.retry_after]
            mode = "estimate"
            min_seconds = 1
            max_seconds = 60
            jitter = 0.2
            [routing]
            strategy = "smart"
            max_retries = 2
            [routing.weights]
            priority = 50
            load = 30
            latency = 20
            [routing.aliases]
            "gpt-4" = "m"
            [routing.fallbacks]
            "m" = ["n"]
            [health]
            path = "/health"
            interval_seconds = 10
            timeout_seconds = 5
            unhealthy_after = 3
            healthy_after = 2
            [upstream]
            connect_timeout_seconds = 10
            first_byte_timeout_seconds = 600
            [[backends]]
            name = "gpu-0"
            url = "http://127.0.0.1:9"
            priority = 1
            max_concurrent = 4
            health = { path = "/v1/models" }
            models = [{ name = "o", context_length = 8192, vision = false, tools = true, json_mode = true }]
            "#,
        )
        .backend("gpu-1", &backend, 1, &["m", "n"]);
    let gateway = setup.start().await;
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        backend.next().await.answer("fine");
    });
    answer.must_say("fine");
}

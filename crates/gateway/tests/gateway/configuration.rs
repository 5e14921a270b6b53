//! Tests of the command line and of the errors for an invalid configuration file.

use std::net::TcpListener;

use crate::backend::Backend;
use crate::process::{ConfigFile, Gateway, Setup, output, run};

const BACKEND: &str = "[[backends]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\n";

/// Asserts that the file is refused, with an error that names file, line and key.
async fn assert_refused_at(config: &str, line: usize, key: &str) {
    let (message, file) = Gateway::refusal(config).await;
    for word in [file.as_str(), key, &format!("line {line},")] {
        assert!(
            message.contains(word),
            "{word:?} is missing\n{config}\n{message}"
        );
    }
}

/// Asserts that the file is refused, with an error that contains its name and these words.
async fn assert_refused(config: &str, words: &[&str]) {
    let (message, file) = Gateway::refusal(config).await;
    for word in words.iter().chain([&file.as_str()]) {
        assert!(
            message.contains(word),
            "{word:?} is missing\n{config}\n{message}"
        );
    }
}

#[tokio::test]
async fn unknown_key_error_names_file_line_and_key() {
    for (section, key) in [
        ("", "lissten = 1"),
        ("[queue]", "max_sise = 1"),
        ("[queue.retry_after]", "min = 1"),
        ("[routing]", "retries = 1"),
        ("[routing.weights]", "speed = 1"),
        ("[health]", "pth = \"/\""),
        ("[upstream]", "timeout = 1"),
        ("[admin]", "tokn = \"x\""),
        ("", "[queues]"),
    ] {
        let name = key.split(' ').next().unwrap().trim_matches(['[', ']']);
        assert_refused_at(&format!("{section}\n{key}"), 2, name).await;
    }
    assert_refused_at(&format!("{BACKEND}slots = 3"), 4, "slots").await;
    assert_refused_at(&format!("{BACKEND}health = {{ pth = \"/\" }}"), 4, "pth").await;
    let model = "[swap.models.a]\ncmd = \"run\"\n";
    assert_refused_at("[swap]\nmemry = 1", 2, "memry").await;
    assert_refused_at(&format!("{model}ttl = 1"), 3, "ttl").await;
    assert_refused_at("[swap.groups.g]\nmember = []", 2, "member").await;
    assert_refused_at("[swap.matrix]\nvar = {}", 2, "var").await;
    let models = "models = [\n{ name = \"m\" },\n{ name = \"n\", size = 1 }]";
    assert_refused_at(&format!("{BACKEND}{models}"), 6, "size").await;
}

#[tokio::test]
async fn invalid_value_error_names_file_line_and_key() {
    for line in [
        "listen = \"here\"",
        "listen = 8080",
        "body_limit_bytes = -1",
        "body_limit_bytes = \"10 MiB\"",
    ] {
        assert_refused_at(line, 1, line.split(' ').next().unwrap()).await;
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
        "tenant_limits = { a = { concurrency = -1 } }",
        "level_weights = { high = -1 }",
        "retry_after = { mode = \"never\" }",
        "retry_after = { min_seconds = -1 }",
    ] {
        assert_refused_at(
            &format!("[queue]\n{line}"),
            2,
            line.split(' ').next().unwrap(),
        )
        .await;
    }
    for line in [
        "priority = -1",
        "max_concurrent = -1",
        "health = 3",
        "models = [\"m\"]",
        "models = [{ context_length = 1 }]",
        "models = [{ name = \"m\", vision = 1 }]",
    ] {
        let key = line.split(' ').next().unwrap();
        assert_refused_at(&format!("{BACKEND}{line}"), 4, key).await;
    }
    assert_refused_at("[[backends]]\nname = \"a\"", 1, "url").await;
    assert_refused_at("[[backends]]\nurl = \"http://a\"", 1, "name").await;
    assert_refused_at("[[backends]]\nname = \"a\"\nurl = \"a b\"", 3, "url").await;
    assert_refused_at("[[backends]]\nname = \"a\"\nurl = \"ftp://a\"", 3, "url").await;
    assert_refused_at("[routing]\nmax_retries = -1", 2, "max_retries").await;
    assert_refused_at("[routing]\nweights = { priority = 60 }", 2, "weights").await;
    assert_refused_at("[health]\ninterval_seconds = 0", 2, "interval_seconds").await;
    assert_refused_at("[health]\nunhealthy_after = 0", 2, "unhealthy_after").await;
    for key in ["connect_timeout_seconds", "first_byte_timeout_seconds"] {
        for value in ["0", "-1", "nan", "\"soon\""] {
            assert_refused_at(&format!("[upstream]\n{key} = {value}"), 2, key).await;
        }
    }
    for name in ["header", "body", "idle", "write"] {
        for value in ["0", "-1", "nan", "\"soon\""] {
            let line = format!("[server]\n{name}_timeout_seconds = {value}");
            assert_refused_at(&line, 2, &format!("{name}_timeout_seconds")).await;
        }
    }
    for line in ["workers = -1", "workers = 1025", "max_connections = 0"] {
        let key = line.split(' ').next().unwrap();
        assert_refused_at(&format!("[server]\n{line}"), 2, key).await;
    }
    assert_refused_at("[admin]\nlisten = 8081", 2, "listen").await;
    assert_refused_at("[admin]\nlisten = \"localhost\"", 2, "listen").await;
    assert_refused_at("[admin]\ntoken = 1", 2, "token").await;
    assert_refused_at("listen = ", 1, "").await;
}

#[tokio::test]
async fn bad_level_weights_error_names_the_key() {
    for (lines, words) in [
        ("level_weights.high = 0", ["level_weights", "at least 1"]),
        (
            "level_weights.gold = 3",
            ["level_weights", "\"high\", \"normal\""],
        ),
        (
            "level_weights.high = 3\nreserve.high = 1",
            ["level_weights", "`reserve`"],
        ),
        (
            "level_weights.high = 3\ndiscipline = \"deadline\"",
            ["level_weights", "`discipline = \"deadline\"`"],
        ),
        (
            "level_weights.high = 3\npromote_after_seconds = 1",
            ["level_weights", "`promote_after_seconds`"],
        ),
    ] {
        assert_refused(&format!("[queue]\n{lines}"), &words).await;
    }
}

#[tokio::test]
async fn bad_levels_error_names_line_of_their_table() {
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
        assert_refused_at(&format!("[queue]\n{line}"), 1, words).await;
    }
}

#[tokio::test]
async fn conflicting_values_error_names_section_and_key() {
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
        assert_refused(&format!("[queue]\n{line}"), &words).await;
    }
    assert_refused(&BACKEND.repeat(2), &["[[backends]]", "name", "\"a\""]).await;
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
        assert_refused(&format!("{BACKEND}{line}"), &words).await;
    }
    let nameless = BACKEND.replace("\"a\"", "\"\"");
    assert_refused(&nameless, &["[[backends]]", "endpoint 1", "name"]).await;
    let with_key = BACKEND.replace(":9", ":9/?key=1");
    assert_refused(&with_key, &["[[backends]]", "url", "query"]).await;
}

#[tokio::test]
async fn conflicting_models_error_names_section_and_key() {
    let model = "[swap.models.a]\ncmd = \"run\"\n";
    for (lines, words) in [
        (
            "[swap]\nmemory = 1\nmatrix = { vars = {}, sets = {} }",
            &["`memory`", "`matrix`", "exclude"][..],
        ),
        (
            "[swap.groups]\ng.members = [\"a\"]\nh.members = [\"a\"]",
            &["`a`", "`g`", "`h`"],
        ),
        ("[swap.groups]\ng.members = [\"b\"]", &["`b`"]),
        ("[swap]\ndefault = \"b\"", &["`default`", "`b`"]),
        ("[swap]\nmemory = 1", &["`a`", "`memory`"]),
        (
            "[swap.matrix]\nvars = { a = \"a\" }\nsets = { s = \"a & b\" }",
            &["`s`", "`b`"],
        ),
    ] {
        let words = [&["line 1, ", "`swap`"], words].concat();
        assert_refused(&format!("{lines}\n{model}"), &words).await;
    }
    let unset = format!("{model}stop_cmd = \"stop ${{NO_SUCH_NAME}}\"");
    let words = ["[swap]", "`stop_cmd`", "\"a\"", "NO_SUCH_NAME"];
    assert_refused(&unset, &words).await;
    let same = format!("{model}{}", BACKEND);
    assert_refused(&same, &["[swap]", "\"a\"", "[[backends]]"]).await;
}

#[tokio::test]
async fn unreadable_config_file_error_names_its_path() {
    let nowhere = std::env::temp_dir().join("tower-triage-no-such-file.toml");
    for path in [nowhere, std::env::temp_dir()] {
        let path = path.to_str().unwrap();
        let (code, message) = run(&["--config", path]).await;
        assert_eq!(code, Some(1));
        assert!(message.contains(path), "{message}");
    }
}

#[tokio::test]
async fn bind_failure_error_names_the_address() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let (message, _) = Gateway::refusal(&format!("listen = \"{addr}\"")).await;
    assert!(message.contains(&addr), "{message}");
}

#[tokio::test]
async fn invalid_arguments_exit_with_status_2_and_say_what_helps() {
    let (code, _) = run(&["--help"]).await;
    assert_eq!(code, Some(0));
    for (args, word) in [
        (&["--confg", "x"][..], "--confg"),
        (&["--config"], "--config"),
        (&["--grace", "soon"], "soon"),
        (&["--log", "xml"], "xml"),
    ] {
        let (code, message) = run(args).await;
        assert_eq!(code, Some(2));
        assert!(
            message.contains(word) && message.contains("--help"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn queue_concurrency_key_is_rejected() {
    assert_refused_at("[queue]\nconcurrency = 3", 1, "concurrency").await;
}

#[tokio::test]
async fn gateway_starts_with_every_key_of_the_example() {
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
    answer.assert_ok("fine");
}

#[tokio::test]
async fn check_prints_addresses_and_warnings_and_starts_nothing() {
    // The address is in use, and a start would fail.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let file = ConfigFile::new(&format!(
        "listen = \"{taken}\"\n[admin]\n[routing]\naliases = {{ a = \"b\" }}\n{BACKEND}"
    ));
    let path = file.path();
    let (code, report, problem) = output(&["check", "--config", path]).await;
    assert_eq!((code, problem.as_str()), (Some(0), ""), "{report}");
    for line in [
        format!("{path} is valid"),
        format!("it would listen on http://{taken}"),
        "it would have its admin address on http://127.0.0.1:8081".to_owned(),
    ] {
        assert!(report.lines().any(|it| it == line), "{line}\n{report}");
    }
    assert!(report.contains("warning: "), "{report}");
    assert!(report.contains("the alias \"a\""), "{report}");
    let path = format!("--config={path}");
    let (code, report, _) = output(&["check", &path, "--listen=[::1]:7"]).await;
    assert_eq!(code, Some(0));
    assert!(report.contains("http://[::1]:7\n"), "{report}");
}

#[tokio::test]
async fn check_says_that_a_front_without_backends_takes_any_model() {
    let front = "[durable]\npath = \"x\"\nrole = \"front\"";
    let file = ConfigFile::new(front);
    let (code, report, _) = output(&["check", "--config", file.path()]).await;
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("any model name"), "{report}");
    let file = ConfigFile::new(&format!("{front}\n{BACKEND}"));
    let (_, report, _) = output(&["check", "--config", file.path()]).await;
    assert!(!report.contains("any model name"), "{report}");
}

#[tokio::test]
async fn check_fails_with_the_error_of_a_start() {
    let file = ConfigFile::new("[queue]\nmax_sise = 1");
    let path = file.path();
    let (code, report, problem) = output(&["check", "--config", path]).await;
    assert_eq!((code, report.as_str()), (Some(1), ""));
    assert!(
        problem.contains("max_sise") && problem.contains("line 2,"),
        "{problem}"
    );
    let (_, _, started) = output(&["--config", path]).await;
    assert_eq!(problem, started);
    let file = ConfigFile::new(&format!(
        "listen = \"127.0.0.1:7\"\n[admin]\nlisten = \"127.0.0.1:7\"\n{BACKEND}"
    ));
    let (code, _, problem) = output(&["check", "--config", file.path()]).await;
    assert_eq!(code, Some(1));
    assert!(problem.contains("the address of clients"), "{problem}");
    let (code, _, problem) = output(&["check"]).await;
    assert_eq!(code, Some(2));
    assert!(problem.contains("--config <FILE>"), "{problem}");
}

#[tokio::test]
async fn version_is_printed() {
    let (code, text, problem) = output(&["--version"]).await;
    assert_eq!((code, problem.as_str()), (Some(0), ""));
    let version = concat!("triage-gateway ", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(version) && text.ends_with('\n'), "{text}");
}

#[tokio::test]
async fn listen_argument_replaces_the_address_of_the_file() {
    let backend = Backend::replying("fine").await;
    let setup = || Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = setup()
        .listen("127.0.0.1:1") // only root may listen there
        .arguments(&["--listen=127.0.0.1:0"])
        .start()
        .await;
    assert!(!gateway.addr().ends_with(":1"), "{}", gateway.addr());
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.reload(&setup().listen("127.0.0.1:2").queue("max_size = 7"));
    gateway.logs(&["[queue] has changed"]).await;
    assert_eq!(gateway.logged("takes effect after a restart"), 0);
}

#[tokio::test]
async fn start_up_errors_are_json_where_the_log_is() {
    let file = ConfigFile::new("[queue]\nmax_sise = 1");
    let path = file.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", taken.local_addr().unwrap());
    for (arguments, exit, words) in [
        (&["--config", path, "--log", "json"][..], 1, "max_sise"),
        (&["--log=json", &taken], 1, "cannot listen on"),
        (&["--log=json", "--nonsense"], 2, "--nonsense"),
        (&["check", "--log=json", "--config", path], 1, "max_sise"),
    ] {
        let (code, lines) = run(arguments).await;
        assert_eq!(code, Some(exit), "{arguments:?}\n{lines}");
        let last = lines.lines().last().unwrap();
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["timestamp"].is_string() && line["level"].is_string());
        }
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["level"], "ERROR");
        assert!(last["message"].as_str().unwrap().contains(words), "{last}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_a_pipe_without_a_writer_is_refused() {
    let dir = std::env::temp_dir().join(format!("tower-triage-fifo-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let (file, keys) = (dir.join("config.toml"), dir.join("keys"));
    for pipe in [&file, &keys] {
        let made = std::process::Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
    }
    let config = file.to_str().unwrap();
    for command in [vec!["check", "--config", config], vec!["--config", config]] {
        let (code, message) = run(&command).await;
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("no regular file"), "{message}");
    }
    let keys = keys.display();
    let tenant = format!("{BACKEND}[[tenants]]\nname = \"a\"\nkeys_file = \"{keys}\"\n");
    assert_refused(&tenant, &["keys_file", "not a regular file"]).await;
    std::fs::remove_dir_all(&dir).unwrap();
}

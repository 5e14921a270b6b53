use super::*;

fn read(text: &str) -> Result<Config, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn every_section_of_the_format_is_read() {
    let config = read(
        r#"
        listen = "127.0.0.1:0"
        body_limit_bytes = 1000

        [routing]
        strategy = "round_robin"
        max_retries = 0
        weights = { priority = 0, load = 80 }
        aliases = { "gpt-4" = "llama3:70b" }
        fallbacks = { "llama3:70b" = ["llama3:8b"], "x" = [] }

        [health]
        path = "/up"
        interval_seconds = 0.5

        [[backends]]
        name = "gpu-1"
        url = "http://127.0.0.1:9001/base"
        priority = 1000
        max_concurrent = 2
        health = { timeout_seconds = 1 }
        models = [{ name = "llama3:70b", context_length = 8192, tools = true }, { name = "llama3:8b" }]

        [[backends]]
        name = "gpu-2"
        url = "http://[::1]:9002"
        health = false
        "#,
    )
    .unwrap();
    let registry = Registry::new(config.endpoints()).unwrap();
    assert_eq!(
        registry.models().collect::<Vec<_>>(),
        ["llama3:70b", "llama3:8b"]
    );
    assert_eq!(registry.endpoints()[0].max_concurrent, 2);
    let checked = config.backends[0].health(&config.health).unwrap();
    assert!(
        format!("{checked:?}").contains("path: \"/up\", interval: 500ms, timeout: 1s"),
        "{checked:?}"
    );
    assert_eq!(config.backends[1].health(&config.health), None);
}

#[test]
fn an_empty_file_is_all_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.listen, ([127, 0, 0, 1], 8080).into());
    assert_eq!(config.body_limit_bytes, 10_485_760);
}

#[test]
fn mistakes_are_named_with_key_and_line() {
    let backend = "[[backends]]\nname = 'a'\nurl = 'http://a'\n";
    for (text, line, problem) in [
        ("lissten = 'x'".to_owned(), 1, "unknown field `lissten`"),
        ("\nlisten = 'here'".to_owned(), 2, "invalid socket address"),
        (
            "[routing]\nretries = 1".to_owned(),
            2,
            "unknown field `retries`",
        ),
        (
            "[routing]\n[routing.weights]\npriority = 60".to_owned(),
            2,
            "sum to 110",
        ),
        ("[routing.aliases]\n'' = 'x'".to_owned(), 1, "empty name"),
        ("[health]\ninterval_seconds = 0".to_owned(), 2, "above 0"),
        ("[health]\npath = 'up'".to_owned(), 2, "must begin with /"),
        (
            "[swap]\nhealth_timeout_seconds = 1".to_owned(),
            1,
            "not supported yet",
        ),
        ("[durable]".to_owned(), 1, "not supported yet"),
        (format!("{backend}slots = 3"), 4, "unknown field `slots`"),
        (format!("{backend}max_concurrent = 0"), 4, "nonzero"),
        (
            format!("{backend}health = {{ pth = '/' }}"),
            4,
            "unknown field `pth`",
        ),
        (format!("{backend}health = 3"), 4, "`false`, or a table"),
        (
            format!("{backend}models = [{{ name = 'm', size = 1 }}]"),
            4,
            "unknown field `size`",
        ),
        (
            "[[backends]]\nname = 'a'\nurl = 'a'".to_owned(),
            3,
            "http:// or https://",
        ),
        (
            "[[backends]]\nname = 'a'\nurl = 'https://a'".to_owned(),
            3,
            "https:// is not supported yet",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(problem), "{text}\n{error}");
        assert!(error.contains(&format!("line {line},")), "{text}\n{error}");
    }
}

#[test]
fn an_unknown_strategy_is_no_error() {
    let config = read("[routing]\nstrategy = 'best'").unwrap();
    assert!(format!("{:?}", config.routing).contains("Unknown(\"best\")"));
}

#[test]
fn what_only_the_whole_shows_names_the_file() {
    let path = std::env::temp_dir().join(format!("gateway-twice-{}.toml", std::process::id()));
    let backend = "[[backends]]\nname = 'a'\nurl = 'http://a'\n";
    std::fs::write(&path, backend.repeat(2)).unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(
        error.contains("two endpoints have the `name` \"a\""),
        "{error}"
    );
}

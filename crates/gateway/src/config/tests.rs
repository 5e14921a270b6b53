use std::time::Duration;

use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
use tower_triage::endpoints::{EngineMetrics, HealthCheck};
use tower_triage::route::StrategyChoice;
use tower_triage::swap::SwapModel;

use super::*;

mod durable;
mod tenants;
mod tls;

/// Reads a temporary file with this text. Errors come without its name.
fn read_in(text: &str, environment: Environment) -> Result<Config, String> {
    let path = temporary("toml");
    std::fs::write(&path, text).unwrap();
    let read = Config::read(&path, environment);
    std::fs::remove_file(&path).unwrap();
    read.map_err(|error| {
        let message = error.to_string();
        let prefix = format!("{}: ", path.display());
        message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
    })
}

fn read(text: &str) -> Result<Config, String> {
    read_in(text, |_| None)
}

/// A path that no other test uses.
fn temporary(extension: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("gateway-{}-{count}.{extension}", std::process::id());
    std::env::temp_dir().join(name)
}

const BACKEND: &str = "[[backends]]\nname = 'a'\nurl = 'http://a'\n";

#[test]
fn every_section_is_parsed() {
    let config = read(
        r#"
        listen = "127.0.0.1:0"
        body_limit_bytes = 1000

        [server]
        allowed_origins = ["https://chat.example", "http://localhost:3000", "app://notes"]

        [routing]
        strategy = "round_robin"
        max_retries = 0
        weights = { priority = 0, load = 80 }
        aliases = { "gpt-4" = "llama3:70b" }
        fallbacks = { "llama3:70b" = ["llama3:8b"], "x" = [] }

        [upstream]
        connect_timeout_seconds = 0.5
        first_byte_timeout_seconds = 60

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
        url = "https://[::1]:9002"
        max_concurrent = "auto"
        limit = { algorithm = "aimd", max = 64, initial = 8 }
        load = { metrics = "/load", interval_seconds = 0.5 }
        health = false
        models = [{ name = "llama3:8b" }]
        "#,
    )
    .unwrap();
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let origins = config.server.allowed_origins.iter();
    let hosts: Vec<_> = origins.map(|origin| &*origin.host).collect();
    assert_eq!(hosts, ["chat.example", "localhost", "notes"]);
    assert!(config.routing.strategy == StrategyChoice::RoundRobin);
    assert_eq!(config.routing.aliases["gpt-4"].model, "llama3:70b");
    assert_eq!(
        config.registry.models().collect::<Vec<_>>(),
        ["llama3:70b", "llama3:8b"]
    );
    let endpoints = config.registry.endpoints();
    assert_eq!((endpoints[0].max_concurrent, endpoints[0].limit), (2, None));
    let limit = AdaptiveLimit::default()
        .algorithm(LimitAlgorithm::Aimd)
        .max(64)
        .initial(8);
    assert_eq!(endpoints[1].limit, Some(limit));
    let load = EngineMetrics::new("/load").interval(Duration::from_millis(500));
    assert_eq!(endpoints[1].load, Some(load));
    assert_eq!(endpoints[0].load, None);
    let check = HealthCheck::new("/up")
        .interval(Duration::from_millis(500))
        .timeout(Duration::from_secs(1));
    assert_eq!(endpoints[0].health, Some(check));
    assert_eq!(endpoints[1].health, None);
}

#[test]
fn example_file_states_the_defaults() {
    let example = read(include_str!("../../gateway.example.toml")).unwrap();
    let default = read("").unwrap();
    assert_eq!(example.listen, default.listen);
    assert_eq!(example.body_limit_bytes, default.body_limit_bytes);
    assert_eq!(example.server, default.server);
    assert_eq!(example.queue, default.queue);
    assert_eq!(example.upstream, default.upstream);
    let mut routing = example.routing;
    assert!(!routing.aliases.is_empty() && !routing.fallbacks.is_empty());
    routing.aliases.clear();
    routing.fallbacks.clear();
    assert!(routing == default.routing);
    let endpoint = &example.registry.endpoints()[0];
    let plain = Endpoint::new("gpu-1", endpoint.url.clone()).health(HealthCheck::default());
    let plain = endpoint.models.iter().cloned().fold(plain, Endpoint::model);
    assert_eq!(*endpoint, plain);
    let swap = example.swap.unwrap();
    let plain = SwapModel::new("qwen:7b", &swap.models[0].cmd).memory(8.0);
    assert_eq!(swap, SwapConfig::memory(24.0).model(plain));
    assert_eq!(default.swap, None);
    assert_eq!(default.durable, None);
    assert_eq!(example.durable, read("[durable]").unwrap().durable);
    assert!(!example.clients_may_unload && !default.clients_may_unload);
    let may =
        read("[swap]\nmemory = 1\nclients_may_unload = true\ndefault = 'a'\nmodels.a = { cmd = 'a', memory = 1 }")
            .unwrap();
    assert!(may.clients_may_unload && may.swap.unwrap().default.is_some());
    assert!(example.warnings.is_empty(), "{:?}", example.warnings);
}

#[test]
fn empty_file_means_all_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.listen, ([127, 0, 0, 1], 8080).into());
    assert_eq!(config.body_limit_bytes, 10_485_760);
    assert!(config.routing == RoutingConfig::default());
    assert_eq!(config.upstream, Upstream::default());
    let config = read(BACKEND).unwrap();
    let check = &config.registry.endpoints()[0].health;
    assert_eq!(*check, Some(HealthCheck::default()));
}

#[test]
fn memory_below_the_limit_of_one_body_is_an_error() {
    let error = read("\n[server]\nbody_memory_bytes = 10485759").unwrap_err();
    let problem = "line 2, [server]: `body_memory_bytes` is 10485759, less than `body_limit_bytes`";
    assert!(error.starts_with(problem), "{error}");
    // The default for stored requests is above this memory.
    let durable = "\n[server]\nbody_memory_bytes = 20000000\n[durable]\npath = \"x\"";
    let config = read(durable).unwrap();
    assert_eq!(config.durable.unwrap().body_limit_bytes, 20_000_000);
}

#[test]
fn invalid_config_error_names_line_and_key() {
    for (text, line, problem) in [
        ("lissten = 'x'".to_owned(), 1, "unknown field `lissten`"),
        (
            "\nlisten = 'here'".to_owned(),
            2,
            "in `listen`: \"here\" must be an IP address and a port",
        ),
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
        (
            "[routing.aliases]\na = 'b'\nb = 'a'".to_owned(),
            1,
            "a → b → a",
        ),
        (
            "[health]\ninterval_seconds = 0".to_owned(),
            2,
            "in `health.interval_seconds`: 0 must be",
        ),
        ("[health]\npath = 'up'".to_owned(), 2, "must begin with /"),
        (
            "[upstream]\nfirst_byte_timeout_seconds = 0".to_owned(),
            2,
            "in `upstream.first_byte_timeout_seconds`: 0 must be",
        ),
        (
            "[upstream]\nidle_timeout_seconds = 0".to_owned(),
            2,
            "in `upstream.idle_timeout_seconds`: 0 must be",
        ),
        (
            "[upstream]\nca = 'x'".to_owned(),
            2,
            "unknown field `ca`, expected one of",
        ),
        (
            "[swap]\nmemry = 1".to_owned(),
            2,
            "unknown field `memry`, expected one of",
        ),
        (
            "[swap]\nclients_may_unload = 1".to_owned(),
            2,
            "in `swap.clients_may_unload`: invalid type: integer `1`, expected a boolean",
        ),
        (
            "[swap.models.a]\ncmd = 'a'\nttl = 1".to_owned(),
            3,
            "unknown field `ttl`, expected one of",
        ),
        (
            "[swap.models.a]\nmemory = 1".to_owned(),
            1,
            "in `swap.models.a`: missing field `cmd`",
        ),
        (
            "[swap]\nswap_after_seconds = -1".to_owned(),
            2,
            "in `swap.swap_after_seconds`: -1 must be",
        ),
        (
            "[swap]\nmemory = 1\npools = { a = 1 }".to_owned(),
            1,
            "in `swap`: `memory` and `pools` exclude each other",
        ),
        (
            "[swap.models.a]\ncmd = 'a'\n[swap.groups]\nx.members = ['a']\ny.members = ['a']"
                .to_owned(),
            1,
            "in `swap`: model `a` is in group `x` and in group `y`",
        ),
        (
            "[swap]\nmemory = 1\nmodels.a = { cmd = 'a', memory = 2 }".to_owned(),
            1,
            "`a`",
        ),
        (
            "[swap.models.a]\ncmd = \"a 'b\"".to_owned(),
            1,
            "model `a`: `cmd` is",
        ),
        (format!("{BACKEND}slots = 3"), 4, "unknown field `slots`"),
        (
            format!("{BACKEND}max_concurrent = -1"),
            4,
            "expected a whole number of at most",
        ),
        (
            format!("{BACKEND}max_concurrent = 'many'"),
            4,
            "in `backends.max_concurrent`: invalid value: string \"many\", expected a whole number \
             of at most 4294967295, or \"auto\"",
        ),
        (
            format!("{BACKEND}max_concurrent = 'auto'\nlimit.algorithm = 'tcp'"),
            5,
            "unknown variant `tcp`, expected `aimd` or `vegas`",
        ),
        (
            format!("{BACKEND}load.metrics = 'metrics'"),
            4,
            "in `backends.load.metrics`: \"metrics\" must begin with /",
        ),
        (
            format!("{BACKEND}[backends.load]\ninterval_seconds = 0"),
            5,
            "in `backends.load.interval_seconds`: 0 must be",
        ),
        (
            format!("{BACKEND}health = {{ pth = '/' }}"),
            4,
            "unknown field `pth`",
        ),
        (
            "[routing]\nmax_retries = -1".to_owned(),
            2,
            "expected a whole number, at least 0",
        ),
        (
            "[queue]\nmax_wait_seconds = '30 s'".to_owned(),
            2,
            "must be a number of seconds",
        ),
        (
            "[queue]\nlifo_when_standing = false".to_owned(),
            2,
            "in `queue.lifo_when_standing`: `lifo_when_standing` is gone",
        ),
        (
            "[queue]\nreserve = { high = 1, lend = true }".to_owned(),
            2,
            "in `queue.reserve`: `reserve.lend` is gone",
        ),
        (format!("{BACKEND}health = 3"), 4, "`false`, or a table"),
        (
            format!("{BACKEND}models = [{{ name = 'm', size = 1 }}]"),
            4,
            "unknown field `size`",
        ),
        (
            "[[backends]]\nname = 'a'\nurl = 'a'".to_owned(),
            3,
            "in `backends.url`: the URL must begin with http://",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(problem), "{text}\n{error}");
        assert!(
            error.starts_with(&format!("line {line}, column ")),
            "{text}\n{error}"
        );
        assert!(!error.contains('\n'), "{text}\n{error}");
    }
}

#[test]
fn type_error_says_what_toml_value_is_expected() {
    for (line, problem) in [
        (
            "[queue]\nstreaming = true",
            "in `queue.streaming`: invalid type, expected a string",
        ),
        (
            "[queue]\nretry_after = 3",
            "in `queue.retry_after`: invalid type: integer `3`, expected a table",
        ),
        (
            "[queue]\nmax_size = 99999999999999999999",
            "in `queue.max_size`: invalid type: integer `99999999999999999999`, expected a whole number, at least 0",
        ),
        (
            "[queue]\ntenant_weights.a = 99999999999",
            "expected a whole number, at least 0 and at most 4294967295",
        ),
        (
            "[queue]\nmax_size = 1\nmax_size = 2",
            "duplicate key `max_size`",
        ),
        (
            "[routing]\nfallback_when = 1",
            "in `routing.fallback_when`: invalid type, expected a string",
        ),
        (
            "[routing]\nmax_ejected_percent = 'half'",
            "string \"half\", expected a whole number",
        ),
        (
            "[routing]\nrooms.m = 3",
            "in `routing.rooms.m`: invalid type: integer `3`, expected a table",
        ),
        (
            "[health]\nunhealthy_after = 99999999999",
            "expected a whole number above 0, at most 4294967295",
        ),
        (
            "[backends]\nname = 'a'",
            "in `backends`: invalid type: table, expected an array (an array of tables is written [[name]])",
        ),
        (
            "[upstream]\nca_file = 1",
            "in `upstream.ca_file`: invalid type: integer `1`, expected a string",
        ),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.ends_with(problem), "{error}");
        assert!(error.starts_with("line "), "{error}");
    }
}

#[test]
fn an_unknown_strategy_is_an_error_even_if_a_variable_overrides_it() {
    let set: Environment = |name| (name == "TRIAGE_ROUTING_STRATEGY").then(|| "random".into());
    for environment in [(|_| None) as Environment, set] {
        let error = read_in("[routing]\nstrategy = 'best'", environment).unwrap_err();
        let choices = StrategyChoice::NAMES.join(", ");
        let problem =
            format!("in `routing.strategy`: \"best\" is unknown: the choices are {choices}");
        assert!(error.starts_with("line 2"), "{error}");
        assert!(error.ends_with(&problem), "{error}");
    }
}

#[test]
fn backends_and_aliases_without_effect_are_warned_of() {
    let warnings = |text: &str| read(text).unwrap().warnings.join("\n");
    assert!(warnings("").contains("no [[backends]]"));
    assert!(warnings(BACKEND).contains("backend \"a\" has no `models`"));
    let aliases = "[routing.aliases]\na = 'b'\nb = 'c'";
    assert!(warnings(aliases).contains("[routing]: the alias \"a\" stands for \"b\""));
}

#[test]
fn model_with_name_of_backend_or_bad_reference_is_refused() {
    let model = |cmd: &str| format!("{BACKEND}[swap.models.m]\ncmd = '{cmd}'\ninstances = 2");
    for (text, problem) in [
        (
            model("run").replace("name = 'a'", "name = 'm'"),
            "the model \"m\" has the name of one of [[backends]]",
        ),
        (
            model("run").replace("name = 'a'", "name = 'm#2'"),
            "the model \"m\" has the name of one of [[backends]]",
        ),
        (
            model("run ${NO_SUCH_DIR}"),
            "`cmd` of the model \"m\" needs the environment variable NO_SUCH_DIR, which is not set",
        ),
        (
            model("run") + "\nstop_cmd = 'stop ${'",
            "`stop_cmd` of the model \"m\" has a `${`",
        ),
        (
            model("run") + "\nenv.KEY = '${NO_SUCH_KEY}'",
            "`env.KEY` of the model \"m\" needs the environment variable NO_SUCH_KEY",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with("line "), "{text}\n{error}");
        assert!(error.contains(", [swap]: "), "{text}\n{error}");
        assert!(error.contains(problem), "{text}\n{error}");
    }
    assert!(read(&model("run ${PORT}")).is_ok());
}

#[test]
fn duplicate_backend_error_names_the_file() {
    let path = temporary("toml");
    std::fs::write(&path, BACKEND.repeat(2)).unwrap();
    let error = Config::read(&path, |_| None).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(
        error.contains("two endpoints have the `name` \"a\""),
        "{error}"
    );
}

#[test]
fn limit_without_auto_is_refused_by_backend() {
    for slots in ["", "max_concurrent = 4"] {
        let refused = read(&format!("{BACKEND}{slots}\nlimit.max = 8")).unwrap_err();
        let said = "line 1, [[backends]]: endpoint \"a\": `limit` is there without `max_concurrent";
        assert!(refused.starts_with(said), "{refused}");
    }
    let refused = read(&format!("{BACKEND}max_concurrent = 'auto'\nlimit.min = 0")).unwrap_err();
    assert!(
        refused.contains("endpoint \"a\": `limit.min` is 0"),
        "{refused}"
    );
}

#[test]
fn header_value_from_environment_is_never_shown() {
    let set: Environment = |name| (name == "OPENAI_KEY").then(|| "sk-1234".into());
    let text = format!("{BACKEND}headers = {{ authorization = 'Bearer ${{OPENAI_KEY}}' }}");
    let config = read_in(&text, set).unwrap();
    assert!(!format!("{config:?}").contains("sk-"));
    let url = http::Uri::from_static("http://a");
    let key = http::HeaderValue::from_static("Bearer sk-1234");
    let endpoint = Endpoint::new("a", url)
        .health(HealthCheck::default())
        .header(http::header::AUTHORIZATION, key);
    assert_eq!(config.registry.endpoints()[0], endpoint);

    let error = read(&text).unwrap_err();
    assert_eq!(
        error,
        "line 1, [[backends]]: the header `authorization` of \"a\" needs the environment variable OPENAI_KEY, \
         which is not set"
    );
}

#[test]
fn invalid_config_errors_never_show_secrets() {
    let set: Environment = |name| match name {
        "KEY" => Some("sk-1234\n".into()),
        _ => None,
    };
    for (headers, problem) in [
        ("'sk-1234'", "must be a table"),
        ("{ authorization = ['sk-1234'] }", "must be a string"),
        (
            "{ authorization = 'sk-1234', 'x y' = '' }",
            "is not a header name",
        ),
        ("{ x = 'sk-1234', X = '' }", "appears twice"),
        ("{ x = 'sk-1234${' }", "write `${NAME}`"),
        ("{ x = '${sk-1234}' }", "write `${NAME}`"),
        ("{ x = '${KEY}' }", "control character"),
        ("{ x = 'sk-1234\u{1}' }", ""),
        ("{ x = sk-1234 }", ""),
        ("{ x = 'sk-1234', y }", ""),
        ("{ x = 'sk-1234' }\nslots = 3", "unknown field `slots`"),
        ("{ host = 'sk-1234' }", "`host`"),
    ] {
        let error = read_in(&format!("{BACKEND}headers = {headers}"), set).unwrap_err();
        assert!(error.contains(problem), "{headers}\n{error}");
        assert!(!error.contains("sk-"), "{headers}\n{error}");
    }
    let url = "[[backends]]\nname = 'a'\nurl = 'http://me:sk-1234@a b'";
    let error = read(url).unwrap_err();
    assert!(!error.contains("sk-"), "{error}");
}

#[test]
fn silent_mistakes_are_refused_with_their_line() {
    let backend = |lines: &str| format!("\n{BACKEND}{lines}");
    for (text, line, problem) in [
        (
            backend("max_concurrent = 'auto'\nlimit.initial = 300"),
            6,
            "`limit.initial` is 300",
        ),
        (
            backend("max_concurrent = 'auto'\nlimit = { max = 8, initial = 9 }"),
            6,
            "which is 8",
        ),
        (
            backend("load.metrics = '/metrics'"),
            2,
            "`load` is there without `max_concurrent = \"auto\"`",
        ),
        (
            backend("models = [\n{ name = 'm', context_length = 0 }]"),
            6,
            "context_length",
        ),
        (
            "\n[swap.models.a]\ncmd = 'a'\ncontext_length = 0".to_owned(),
            2,
            "`context_length` is 0",
        ),
        (
            "\nbody_limit_bytes = 0".to_owned(),
            2,
            "in `body_limit_bytes`: 0 must be",
        ),
        (
            backend("").replace("http://a", "http://a/#v1"),
            4,
            "fragment",
        ),
        (
            "\n[queue]\ndefault_priority = 'vip'".to_owned(),
            2,
            "[\"high\", \"normal\"]",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(
            error.starts_with(&format!("line {line}, ")),
            "{text}\n{error}"
        );
        assert!(error.contains(problem), "{text}\n{error}");
    }
}

#[test]
fn problems_of_whole_sections_name_their_line() {
    for (text, line, section) in [
        (
            "\n[queue]\npriority_header = 'x y'".to_owned(),
            2,
            "[queue]",
        ),
        (
            "\n[routing]\nretry_share = 0.5\nweights = { priority = 50 }\nfallbacks.a = ['']"
                .to_owned(),
            5,
            "fallbacks",
        ),
        ("\n\n[admin]\ntoken = ''".to_owned(), 3, "[admin]"),
        (
            "\n[upstream]\nca_file = '/no/such/file'".to_owned(),
            2,
            "[upstream]",
        ),
        (
            format!("{BACKEND}headers = {{ x = '${{NONE}}' }}"),
            1,
            "[[backends]]",
        ),
        (format!("{BACKEND}\n{BACKEND}"), 5, "[[backends]]"),
        (
            format!("{BACKEND}\n{}", BACKEND.replace("'a'", "''")),
            5,
            "endpoint 2",
        ),
        (
            format!("{BACKEND}\n[swap.models.a]\ncmd = 'a'"),
            5,
            "[swap]",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(
            error.starts_with(&format!("line {line}, ")),
            "{text}\n{error}"
        );
        assert!(error.contains(section), "{text}\n{error}");
    }
}

#[test]
fn very_large_numbers_are_shown_without_their_zeros() {
    for text in [
        "[health]\ninterval_seconds = 1e300",
        "[queue]\nmax_wait_seconds = 1e300",
        "[queue]\ntarget_wait = 1e300",
        "[queue]\nmax_size = 1e300",
        "[queue]\nretry_after.jitter = 1e300",
        "[routing]\nretry_share = 1e300",
        "[routing]\neject_seconds = 1e300",
        "[swap]\nswap_after_seconds = 1e300",
        "[swap]\nmemory = 1e300",
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains("1e300"), "{text}\n{error}");
        assert!(!error.contains("00000"), "{text}\n{error}");
    }
}

#[test]
fn names_that_lead_to_no_model_are_warned_of() {
    let routing = "[routing]\naliases = { gpt = 'gone', here = 'm', started = 's' }\n\
                   fallbacks = { old = ['m', 'lost'], m = ['s'] }\n\
                   rooms = { nowhere = {}, m = {}, s = {} }\n";
    let models =
        format!("{BACKEND}models = [{{ name = 'm' }}]\n[swap.models.s]\ncmd = 's ${{PORT}}'");
    let warnings = read(&format!("{routing}{models}")).unwrap().warnings;
    let expected = [
        "alias \"gpt\" stands for \"gone\"",
        "\"old\" name \"lost\"",
        "room for \"nowhere\"",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.contains(expected), "{warning}");
    }
}

#[test]
fn unusable_ca_file_error_names_the_path() {
    let roots = temporary("pem");
    let text = format!("[upstream]\nca_file = {:?}", roots.to_str().unwrap());
    let place = format!("line 1, [upstream]: `ca_file` {}: ", roots.display());
    let error = read(&text).unwrap_err();
    assert!(error.starts_with(&place), "{error}");
    std::fs::write(&roots, "").unwrap();
    let error = read(&text).unwrap_err();
    std::fs::remove_file(&roots).unwrap();
    assert!(error.starts_with(&place), "{error}");
    assert!(error.contains("no PEM certificate"), "{error}");
}

#[test]
fn ca_file_is_relative_to_the_config_file() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
    let roots = temporary("pem");
    std::fs::write(&roots, params.self_signed(&key).unwrap().pem()).unwrap();
    let name = roots.file_name().unwrap().to_str().unwrap();
    let config = read(&format!("[upstream]\nca_file = {name:?}"));
    std::fs::remove_file(&roots).unwrap();
    assert_ne!(config.unwrap().upstream, Upstream::default());
}

//! What is read from a file.

use super::*;

/// The section of the example file, with the defaults of `SwapModel`.
const EXAMPLE: &str = r#"
[swap]
memory = 24.0                  # one budget, in any unit; or pools = { gpu0 = 24.0, gpu1 = 24.0 }
swap_after_seconds = 10
min_loaded_seconds = 5
abandoned_load = "yield"
health_timeout_seconds = 120
[swap.models."qwen:7b"]
cmd = "llama-server --port ${PORT} -m qwen.gguf"
env = { CUDA_VISIBLE_DEVICES = "0" }
memory = 8.0
concurrency = 4
health_path = "/health"
ttl_seconds = 300
stop_signal = "TERM"
stop_grace_seconds = 10
settle_seconds = 0
"#;

#[derive(Debug, serde::Deserialize)]
struct File {
    swap: SwapConfig,
}

fn read(text: &str) -> Result<SwapConfig, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn the_example_file_spells_out_the_defaults() {
    let file: File = toml::from_str(EXAMPLE).expect("the example is a valid file");
    let mut model =
        SwapModel::new("qwen:7b", "llama-server --port ${PORT} -m qwen.gguf").memory(8.0);
    let device = ("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned());
    model.env = [device].into();
    assert_eq!(file.swap, SwapConfig::memory(24.0).model(model));
    assert_eq!(read(""), Ok(SwapConfig::default()));
}

#[test]
fn every_key_of_a_model_is_read() {
    let config = read(
        r#"
        swap_after_seconds = 0.5
        min_loaded_seconds = 0
        abandoned_load = "finish"
        health_timeout_seconds = 7
        loading_state = "reasoning"
        default = "m"
        [models.m]
        cmd = "serve"
        proxy = "http://10.0.0.7:8000/base"
        use_model_name = "qwen"
        set_params = { temperature = 0.2 }
        strip_params = ["top_k"]
        loading_state = "none"
        context_length = 8192
        vision = true
        tools = true
        json_mode = true
        evict_cost = 3
        concurrency = 2
        instances = 5
        health_path = "none"
        health_interval_seconds = 0
        hang_seconds = 60
        ttl_seconds = 0
        pinned = true
        preload = true
        stop_cmd = "docker stop m"
        stop_signal = "SIGINT"
        stop_grace_seconds = 1.5
        settle_seconds = 2
        start_timeout_seconds = 900
        sleep_path = "/sleep"
        wake_path = "/wake"
        ignore_paths = ["/ws"]
        ignore_websockets = true
        "#,
    )
    .unwrap();
    let seconds = Duration::from_secs;
    let mut model = SwapModel::new("m", "serve").concurrency(2).ttl(None);
    model.model = model.model.context_length(8192);
    model.model = model.model.vision(true).tools(true).json_mode(true);
    let params = SetParams::default().param("temperature", "0.2").unwrap();
    model.model = model.model.use_model_name("qwen").set_params(params);
    model.model = model.model.strip_params(["top_k"]);
    let model = SwapModel {
        proxy: Some(Uri::from_static("http://10.0.0.7:8000/base")),
        loading_state: Some(LoadingState::None),
        evict_cost: 3,
        instances: 5,
        health_path: None,
        health_interval: None,
        hang_timeout: Some(seconds(60)),
        pinned: true,
        preload: true,
        stop_cmd: Some("docker stop m".to_owned()),
        stop_signal: StopSignal::Int,
        stop_grace: Duration::from_millis(1500),
        settle: seconds(2),
        start_timeout: Some(seconds(900)),
        sleep_path: Some("/sleep".to_owned()),
        wake_path: Some("/wake".to_owned()),
        ignore_paths: vec!["/ws".to_owned()],
        ignore_websockets: true,
        ..model
    };
    let expected = SwapConfig {
        models: vec![model],
        swap_after: Duration::from_millis(500),
        min_loaded: Duration::ZERO,
        abandoned_load: AbandonedLoad::Finish,
        health_timeout: seconds(7),
        loading_state: LoadingState::Reasoning,
        default: Some("m".to_owned()),
        ..SwapConfig::default()
    };
    assert_eq!(config, expected);
}

/// The names, in their order.
fn names<T>(pairs: &[(String, T)]) -> Vec<&str> {
    pairs.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn tables_keep_the_order_in_which_they_are_written() {
    let config = read(
        r#"
        [models.zebra]
        cmd = "z"
        [models."b:2"]
        cmd = "b"
        [models.monkey]
        cmd = "m"
        [models.ant]
        cmd = "a"
        [matrix]
        vars = { z = "zebra", b = "b:2", a = "ant" }
        evict_costs = { z = 3, a = 2 }
        [matrix.sets]
        nine = "z & a"
        four = "b | monkey"
        two = "+nine"
        "#,
    )
    .unwrap();
    let models = config.models.iter().map(|model| model.model.name.as_str());
    assert_eq!(
        models.collect::<Vec<_>>(),
        ["zebra", "b:2", "monkey", "ant"]
    );
    let SwapPolicy::Matrix(matrix) = &config.policy else {
        panic!("{:?}", config.policy);
    };
    assert_eq!(names(&matrix.vars), ["z", "b", "a"]);
    assert_eq!(names(&matrix.sets), ["nine", "four", "two"]);
    assert_eq!(matrix.evict_costs[0], ("z".to_owned(), 3));
    assert_eq!(config.validate(), Ok(()));

    let config = read("pools = { gpu1 = 24, gpu0 = 16.5 }").unwrap();
    let pools = [("gpu1".to_owned(), 24.0), ("gpu0".to_owned(), 16.5)];
    assert_eq!(config.policy, SwapPolicy::Memory(pools.into()));

    let config = read(
        "[groups.second]\nmembers = ['b']\nswap = false\n[groups.first]\nmembers = []\npersistent = true\nexclusive = false",
    );
    let groups = vec![
        (
            "second".to_owned(),
            Group {
                swap: false,
                ..Group::new(["b"])
            },
        ),
        (
            "first".to_owned(),
            Group {
                persistent: true,
                exclusive: false,
                ..Group::new([""; 0])
            },
        ),
    ];
    assert_eq!(config.unwrap().policy, SwapPolicy::Groups(groups));
}

#[test]
fn what_can_not_be_read_is_named() {
    let model = |line: &str| format!("[models.m]\ncmd = 'x'\n{line}");
    for (text, said) in [
        ("memry = 3".to_owned(), "unknown field `memry`"),
        (model("ttl = 3"), "unknown field `ttl`"),
        ("[models.m]".to_owned(), "missing field `cmd`"),
        (
            "memory = 3\n[groups.g]\nmembers = []".to_owned(),
            "`memory` and `groups` exclude each other",
        ),
        (
            "memory = 3\npools = {}".to_owned(),
            "`memory` and `pools` exclude each other",
        ),
        (
            "[groups]\n[matrix.sets]".to_owned(),
            "`groups` and `matrix` exclude each other",
        ),
        (
            "[groups.g]\nmember = []".to_owned(),
            "unknown field `member`",
        ),
        ("[matrix]\nset = {}".to_owned(), "unknown field `set`"),
        (
            model("stop_signal = 'term'"),
            "\"term\" must be one of \"TERM\", \"INT\", \"QUIT\", \"HUP\", \"KILL\"",
        ),
        (
            model("ttl_seconds = -1"),
            "-1 must be a number of seconds from 0",
        ),
        (
            "abandoned_load = 'stop'".to_owned(),
            "expected one of `yield`, `abort`, `finish`",
        ),
    ] {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(said), "{error}");
    }
    // With the line.
    let error = read(&model("ttl_seconds = 'x'")).unwrap_err();
    assert!(error.contains("3 | ttl_seconds = 'x'"), "{error}");
}

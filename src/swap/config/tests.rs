//! Checking a configuration, and what instances make of it.

use http::Uri;

use super::*;
use crate::endpoints::SetParams;
use crate::swap::swapper::{InstanceId, RunningInstance, Swapper};

fn model(name: &str) -> SwapModel {
    SwapModel::new(name, "serve --port ${PORT}")
}

fn error(config: &SwapConfig) -> String {
    let error = config.validate().expect_err("it is invalid");
    error.to_string()
}

/// One model, changed so.
fn error_of(change: impl Fn(&mut SwapModel)) -> String {
    let mut one = model("a").memory(1.0);
    change(&mut one);
    error(&SwapConfig::memory(8.0).model(one))
}

#[test]
fn errors_name_model_and_key() {
    for (found, expected) in [
        (
            error_of(|model| model.model.name.clear()),
            "a model has an empty name",
        ),
        (
            error_of(|model| model.cmd = "serve 'x".to_owned()),
            "model `a`: `cmd` is \"serve 'x\": it must be a command line with closed quotes",
        ),
        (
            error_of(|model| model.stop_cmd = Some(" ".to_owned())),
            "model `a`: `stop_cmd` is \" \": it must be a command line with closed quotes",
        ),
        (
            error_of(|model| model.concurrency = 0),
            "model `a`: `concurrency` is 0: it must be above 0",
        ),
        (
            error_of(|model| model.instances = 0),
            "model `a`: `instances` is 0: it must be above 0",
        ),
        (
            error_of(|model| model.instances = u32::MAX),
            "model `a`: `instances` is 4294967295: it must be at most 1000",
        ),
        (
            error_of(|model| model.evict_cost = 0),
            "model `a`: `evict_cost` is 0: it must be above 0",
        ),
        (
            error_of(|model| model.start_timeout = Some(Duration::ZERO)),
            "model `a`: `start_timeout_seconds` is 0: it must be above 0",
        ),
        (
            error_of(|model| model.ttl = Some(Duration::ZERO)),
            "model `a`: `ttl_seconds` is 0: it must be above 0",
        ),
        (
            error_of(|model| model.health_path = Some("health".to_owned())),
            "model `a`: `health_path` is \"health\": it must be a path that begins with `/`",
        ),
        (
            error_of(|model| model.sleep_path = Some("/a b".to_owned())),
            "model `a`: `sleep_path` is \"/a b\": it must be a path that begins with `/`",
        ),
        (
            error_of(|model| model.proxy = Some(Uri::from_static("https://a/b"))),
            "model `a`: `proxy` is \"https://a/b\": it must be a URL that begins with `http://` and has no query",
        ),
        (
            error_of(|model| model.wake_path = Some("/wake".to_owned())),
            "model `a`: `sleep_path` and `wake_path` need each other: set both or none",
        ),
        (
            error_of(|model| model.memory = None),
            "model `a`: `memory` is missing",
        ),
        (
            error_of(|model| model.memory = Some(9.0)),
            "model `a` takes 9, and the largest pool has 8",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_process_runs_on_through_changes_that_do_not_reach_it() {
    let old = model("a");
    let runs_as = |change: fn(&mut SwapModel)| {
        let mut new = old.clone();
        change(&mut new);
        new.runs_as(&old)
    };
    assert!(runs_as(
        |model| model.proxy = Some(Uri::from_static("http://a"))
    ));
    assert!(runs_as(
        |model| model.loading_state = Some(LoadingState::Reasoning)
    ));
    assert!(runs_as(
        |model| model.model.use_model_name = Some("b".to_owned())
    ));
    assert!(runs_as(|model| model
        .model
        .strip_params
        .push("b".to_owned())));
    assert!(runs_as(|model| {
        model.model.set_params = SetParams::default().param("b", "1").unwrap();
    }));
    assert!(!runs_as(|model| model.cmd.push_str(" -v")));
}

#[test]
fn variables_can_be_set() {
    for (name, value) in [("", ""), ("A=B", ""), ("A\0", ""), ("A", "b\0")] {
        let set = |model: &mut SwapModel| _ = model.env.insert(name.into(), value.into());
        let expected = format!("model `a`: the variable {name:?} of `env` can't be set: ");
        assert!(error_of(set).starts_with(&expected));
    }
    let mut model = model("a");
    model.env.insert(" é\n".into(), "=\n".into());
    assert_eq!(SwapConfig::default().model(model).validate(), Ok(()));
}

#[test]
fn errors_name_what_does_not_go_together() {
    let small = || model("a").memory(1.0);
    let mut twins = model("a").memory(1.0);
    twins.instances = 2;
    let config = SwapConfig::memory(8.0);
    for (config, expected) in [
        (
            config.clone().model(small()).model(small()),
            "model `a` is there twice",
        ),
        (
            config.clone().model(twins).model(model("a#2").memory(1.0)),
            "model `a#2` is there twice",
        ),
        (
            SwapConfig::default().model(small()),
            "model `a` has `memory`, and there is no budget: set `memory` or `pools` for all",
        ),
        (
            SwapConfig {
                default: Some("b".to_owned()),
                ..config.clone()
            },
            "`default` is `b`, and there is no such model",
        ),
        (
            SwapConfig {
                health_timeout: Duration::ZERO,
                ..config
            },
            "`health_timeout_seconds` is 0: it must be above 0",
        ),
    ] {
        let found = error(&config);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn pinned_models_have_to_fit_together() {
    let pinned = |name: &str, memory: f64| SwapModel {
        pinned: true,
        ..model(name).memory(memory)
    };
    let config = SwapConfig::memory(8.0)
        .model(pinned("a", 4.0))
        .model(model("b").memory(8.0))
        .model(pinned("c", 4.0));
    assert_eq!(config.validate(), Ok(()));
    let twins = SwapModel {
        instances: 2,
        ..pinned("c", 3.0)
    };
    let config = SwapConfig::memory(8.0).model(pinned("a", 4.0)).model(twins);
    assert_eq!(
        error(&config),
        "models `c` and `a` are `pinned`, and may not run together with all that are"
    );
    // Either may be the last to start.
    let pinned = |name: &str| SwapModel {
        pinned: true,
        ..model(name)
    };
    let mut groups = vec![
        ("one".to_owned(), Group::new(["a"])),
        ("two".to_owned(), Group::new(["b"])),
    ];
    groups[1].1.exclusive = false;
    for order in [["a", "b"], ["b", "a"]] {
        let config = SwapConfig {
            policy: SwapPolicy::Groups(groups.clone()),
            models: order.map(pinned).into(),
            ..SwapConfig::default()
        };
        assert_eq!(
            error(&config),
            "models `a` and `b` are `pinned`, and may not run together with all that are"
        );
    }
}

/// The instances that have to stop for a target, by their numbers.
fn evicted(config: &SwapConfig, target: u32, running: &[u32]) -> Vec<u32> {
    evicted_of(&*config.swapper().unwrap(), target, running)
}

fn evicted_of(swapper: &dyn Swapper, target: u32, running: &[u32]) -> Vec<u32> {
    // Each has the memory of `two_of_a`.
    let running = running.iter().map(|&id| RunningInstance {
        memory: 3_000_000,
        ..RunningInstance::new(InstanceId(id))
    });
    let plan = swapper.plan(InstanceId(target), &running.collect::<Vec<_>>());
    plan.evict.iter().map(|model| model.0).collect()
}

/// `a` and `a#2`, then `b`.
fn two_of_a(policy: SwapPolicy) -> SwapConfig {
    let memory = matches!(policy, SwapPolicy::Memory(_)).then_some(3.0);
    let one = |name, instances| SwapModel {
        instances,
        memory,
        ..model(name)
    };
    SwapConfig {
        policy,
        models: vec![one("a", 2), one("b", 1)],
        ..SwapConfig::default()
    }
}

#[test]
fn each_instance_takes_the_memory_of_its_model() {
    let config = two_of_a(SwapPolicy::one_pool(6.0));
    assert_eq!(evicted(&config, 1, &[0]), [0; 0]);
    assert_eq!(evicted(&config, 2, &[0, 1]), [0]);
    assert_eq!(evicted(&config, 1, &[0, 2]), [0]);
}

#[test]
fn instances_of_a_model_run_side_by_side_in_a_group_that_swaps() {
    let config = two_of_a(SwapPolicy::Groups(Vec::new()));
    assert_eq!(evicted(&config, 1, &[0]), [0; 0]);
    assert_eq!(evicted(&config, 2, &[0, 1]), [0, 1]);
    assert_eq!(evicted(&config, 0, &[2]), [2]);
}

#[test]
fn a_set_permits_all_instances_of_a_model() {
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs.map(|&(a, b)| (a.to_owned(), b.to_owned())).collect()
    };
    let matrix = MatrixConfig {
        vars: pairs(&[("x", "a")]),
        sets: pairs(&[("one", "x"), ("two", "b | c & d | c & x")]),
        ..MatrixConfig::default()
    };
    let mut config = two_of_a(SwapPolicy::Matrix(matrix));
    config.models.extend(["c", "d"].map(model));
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(evicted(&config, 1, &[0]), [0; 0]);
    assert_eq!(evicted(&config, 2, &[0, 1]), [0, 1]);
    // For c, either a or d has to stop: what comes first in the set stays, unless it is cheaper.
    assert_eq!(evicted(&config, 3, &[0, 1, 4]), [0, 1]);
    config.models[0].evict_cost = 2;
    assert_eq!(evicted(&config, 3, &[0, 1, 4]), [4]);
    let SwapPolicy::Matrix(matrix) = &mut config.policy else {
        unreachable!("it was made above");
    };
    // The matrix's own costs count before those of the models.
    matrix.evict_costs.push(("x".to_owned(), 1));
    assert_eq!(evicted(&config, 3, &[0, 1, 4]), [0, 1]);
}

#[test]
fn instances_of_a_model_are_a_class_of_their_own() {
    let mut config = two_of_a(SwapPolicy::Groups(Vec::new()));
    config.models.push(model("c"));
    let swapper = config.swapper().unwrap();
    let [a, again, b, c] = [0, 1, 2, 3].map(|id| swapper.plan_class(InstanceId(id)));
    assert_eq!((a, b), (again, c));
    // Beside the first instance nothing stops for the second, and the first stops for b.
    assert_ne!(a, b);
}

#[test]
fn an_instance_does_not_start_beside_what_another_one_stops_or_is_stopped_for() {
    let config = two_of_a(SwapPolicy::Groups(Vec::new()));
    let swapper = config.swapper().unwrap();
    let [first, second, b] = [0, 1, 2].map(InstanceId);
    let stopping = |model| RunningInstance {
        is_stopping: true,
        ..RunningInstance::new(model)
    };
    let evicted = |running: &[RunningInstance]| swapper.plan(second, running).evict;
    assert_eq!(evicted(&[stopping(first), RunningInstance::new(b)]), [b]);
    assert_eq!(evicted(&[RunningInstance::new(first), stopping(b)]), [b]);
    assert_eq!(
        evicted(&[RunningInstance::new(first), RunningInstance::new(b)]),
        []
    );
    assert_eq!(evicted(&[stopping(first)]), []);
}

#[test]
fn numbers_of_instances_may_be_others() {
    let config = two_of_a(SwapPolicy::Groups(Vec::new()));
    let names = ["b", "gone", "a#2", "a"].map(str::to_owned);
    let swapper = config.swapper_of(&names).unwrap();
    assert_eq!(evicted_of(&*swapper, 0, &[1, 2, 3]), [1, 2, 3]);
    assert_eq!(evicted_of(&*swapper, 3, &[2]), [0; 0]);
}

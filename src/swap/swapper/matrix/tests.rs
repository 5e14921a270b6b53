use super::parse::{Expression, parse};
use super::*;

fn names(models: &str) -> Vec<String> {
    models.split(' ').map(str::to_owned).collect()
}

fn pairs<T: Clone>(pairs: &[(&str, T)]) -> Vec<(String, T)> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn config(sets: &[(&str, &str)], costs: &[(&str, u64)]) -> MatrixConfig {
    let sets = sets.iter().map(|(name, text)| (*name, (*text).to_owned()));
    MatrixConfig {
        vars: Vec::new(),
        evict_costs: pairs(costs),
        sets: pairs(&sets.collect::<Vec<_>>()),
    }
}

fn running(models: &[InstanceId]) -> Vec<RunningInstance> {
    models.iter().copied().map(RunningInstance::new).collect()
}

/// The models that stop for `target`, by name.
fn evicted(models: &str, config: &MatrixConfig, target: &str, runs: &str) -> String {
    let models = names(models);
    let matrix = Matrix::new(&models, &[], config).unwrap();
    let id = |name: &str| model_named(&models, name).unwrap();
    let runs: Vec<_> = runs.split_terminator(' ').map(id).collect();
    let plan = matrix.plan(id(target), &running(&runs));
    let evict = plan.evict.iter();
    let evict: Vec<_> = evict
        .map(|model| models[model.0 as usize].as_str())
        .collect();
    evict.join(" ")
}

#[test]
fn the_cheapest_combination_with_the_target_is_chosen() {
    let models = "g q m v e sd L";
    let config = config(
        &[
            ("standard", "(g|q|m)&v"),
            ("with_rerank", "(g|q)&v&e"),
            ("creative", "(g|q)&sd"),
            ("full", "L"),
        ],
        &[("v", 50), ("L", 30)],
    );
    for (target, runs, expected) in [
        ("sd", "g v", "v"),
        ("m", "e g v", "e g"),
        ("e", "g v", ""),
        ("L", "g v", "g v"),
        ("g", "L", "L"),
        ("q", "sd", ""),
    ] {
        assert_eq!(
            evicted(models, &config, target, runs),
            expected,
            "{target} beside {runs}"
        );
    }
}

#[test]
fn of_equal_costs_the_first_set_and_then_the_first_combination_counts() {
    let models = "g q v sd x";
    let standard = ("standard", "(g|q)&v");
    let creative = ("creative", "(g|q)&sd");
    let first = config(&[standard, creative], &[]);
    assert_eq!(evicted(models, &first, "g", "sd v"), "sd");
    let second = config(&[creative, standard], &[]);
    assert_eq!(evicted(models, &second, "g", "sd v"), "v");
    // A set that another one refers to is not earlier for that.
    let referred = config(&[("all", "+creative | x&g"), standard, creative], &[]);
    assert_eq!(evicted(models, &referred, "g", "sd v"), "v");
    let written = config(&[("one", "g&(v|sd)")], &[]);
    assert_eq!(evicted(models, &written, "g", "sd v"), "sd");
}

#[test]
fn a_model_in_no_set_runs_alone() {
    let config = config(&[("one", "a&b")], &[]);
    assert_eq!(evicted("a b c", &config, "c", "a b"), "a b");
    assert_eq!(evicted("a b c", &config, "a", "b c"), "c");
}

#[test]
fn short_names_go_before_models() {
    let mut config = config(&[("one", "b&c")], &[("b", 3)]);
    config.vars = pairs(&[("b", "vendor/a:7b".to_owned())]);
    assert_eq!(
        evicted("vendor/a:7b b c", &config, "c", "vendor/a:7b b"),
        "b"
    );
}

/// All combinations in the order in which they are written.
fn combinations(
    expression: &Expression,
    sets: &[(String, String)],
    models: &[String],
) -> Vec<Vec<InstanceId>> {
    match expression {
        Expression::Name { name, .. } => vec![vec![model_named(models, name).unwrap()]],
        Expression::Set { name, .. } => {
            let (_, text) = sets.iter().find(|(set, _)| set == name).unwrap();
            combinations(&parse(text).unwrap(), sets, models)
        }
        Expression::OneOf(parts) => parts
            .iter()
            .flat_map(|part| combinations(part, sets, models))
            .collect(),
        Expression::All(parts) => parts.iter().fold(vec![Vec::new()], |united, part| {
            let part = combinations(part, sets, models);
            let unite = |one: &Vec<InstanceId>| {
                let one = one.clone();
                part.iter()
                    .map(move |other| [one.clone(), other.clone()].concat())
                    .collect::<Vec<_>>()
            };
            united.iter().flat_map(unite).collect()
        }),
    }
}

/// As the words have it, one combination after the other.
fn by_brute_force(
    config: &MatrixConfig,
    models: &[String],
    target: InstanceId,
    runs: &[InstanceId],
) -> Vec<InstanceId> {
    let cost = |model: &InstanceId| {
        let own = config
            .evict_costs
            .iter()
            .find(|(name, _)| models[model.0 as usize] == *name);
        own.map_or(1, |(_, cost)| *cost)
    };
    let mut best: Option<(u64, Vec<InstanceId>)> = None;
    for (_, text) in &config.sets {
        for combination in combinations(&parse(text).unwrap(), &config.sets, models) {
            if !combination.contains(&target) {
                continue;
            }
            let outside = |model: &InstanceId| !combination.contains(model);
            let stopped: Vec<_> = runs.iter().copied().filter(outside).collect();
            let cost = stopped.iter().map(cost).sum();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, stopped));
            }
        }
    }
    best.map_or_else(|| runs.to_vec(), |(_, stopped)| stopped)
}

/// An expression of at most this depth. `sets`: those that it may refer to.
fn random_expression(
    random: &mut fastrand::Rng,
    models: &[String],
    sets: &[String],
    depth: u32,
) -> String {
    match random.u32(..if depth == 0 { 2 } else { 5 }) {
        1 if !sets.is_empty() => format!("+{}", sets[random.usize(..sets.len())]),
        2 | 3 => {
            let parts =
                (0..random.usize(2..4)).map(|_| random_expression(random, models, sets, depth - 1));
            let parts: Vec<_> = parts.collect();
            format!("({})", parts.join(["&", "|"][random.usize(..2)]))
        }
        _ => models[random.usize(..models.len())].clone(),
    }
}

#[test]
fn decisions_are_those_of_brute_force() {
    let mut random = fastrand::Rng::with_seed(7);
    let models = names("a b c d e f g");
    for round in 0..4_000 {
        let mut sets: Vec<(String, String)> = Vec::new();
        for nth in 0..random.usize(1..4) {
            let others: Vec<_> = sets.iter().map(|(name, _)| name.clone()).collect();
            let text = random_expression(&mut random, &models, &others, 2);
            // Also before the sets that it refers to.
            let at = random.usize(..=sets.len());
            sets.insert(at, (format!("s{nth}"), text));
        }
        let costs: Vec<_> = models.iter().filter(|_| random.bool()).cloned().collect();
        let costs = costs
            .into_iter()
            .map(|model| (model, random.u64(1..4)))
            .collect();
        let config = MatrixConfig {
            vars: Vec::new(),
            evict_costs: costs,
            sets,
        };
        let matrix = Matrix::new(&models, &[], &config).unwrap();
        for _ in 0..4 {
            let all = (0..models.len() as u32).map(InstanceId);
            let mut runs: Vec<_> = all.filter(|_| random.u8(..3) == 0).collect();
            let target = InstanceId(random.u32(..models.len() as u32));
            runs.retain(|&id| id != target); // a target does not run
            let plan = matrix.plan(target, &running(&runs));
            for other in (0..models.len() as u32).map(InstanceId) {
                let is_same = matrix.plan_class(other) == matrix.plan_class(target);
                if is_same && !runs.contains(&other) {
                    let others = matrix.plan(other, &running(&runs));
                    assert_eq!(plan, others, "{other:?} as {target:?} in {config:?}");
                }
            }
            let expected = by_brute_force(&config, &models, target, &runs);
            assert_eq!(
                plan.evict, expected,
                "round {round}: {target:?} beside {runs:?} in {config:?}"
            );
        }
    }
}

#[test]
fn models_of_one_list_are_one_class() {
    let models = names("a b c d e f");
    let classes = |sets: &[(&str, &str)]| {
        let matrix = Matrix::new(&models, &[], &config(sets, &[])).unwrap();
        let classes = (0..models.len() as u32).map(|id| matrix.plan_class(InstanceId(id)));
        classes
            .map(|class| models[class as usize].as_str())
            .collect::<String>()
    };
    // e and f are in no set.
    assert_eq!(classes(&[("one", "(a | b | c) & d")]), "aaadee");
    let several = [
        ("list", "a | b"),
        ("one", "+list & c"),
        ("two", "+list & (d | e)"),
    ];
    assert_eq!(classes(&several), "aacddf");
    // One stands elsewhere, too.
    assert_eq!(classes(&[("one", "(a | b | c) & (a | d)")]), "abbdee");
    // Two of the list may run together.
    assert_eq!(
        classes(&[("list", "a | b"), ("one", "+list & +list")]),
        "abcccc"
    );
}

#[test]
fn many_combinations_are_not_written_out() {
    // 10 of each of 7 kinds: ten million combinations, which would take minutes.
    let models: Vec<String> = (0..70).map(|nth| format!("m{nth}")).collect();
    let kinds: Vec<_> = models
        .chunks(10)
        .map(|kind| format!("({})", kind.join("|")))
        .collect();
    let config = config(&[("all", &kinds.join("&"))], &[]);
    let matrix = Matrix::new(&models, &[], &config).unwrap();
    let runs: Vec<_> = (0..7).map(|kind| InstanceId(kind * 10)).collect();
    let plan = matrix.plan(InstanceId(35), &running(&runs));
    assert_eq!(plan.evict, [InstanceId(30)]);
}

#[test]
fn errors_name_the_key_and_the_place() {
    let models = names("a b vendor/c");
    let error = |vars: &[(&str, &str)], costs: &[(&str, u64)], sets: &[(&str, &str)]| {
        let mut config = config(sets, costs);
        let vars = vars.iter().map(|(var, model)| (*var, (*model).to_owned()));
        config.vars = pairs(&vars.collect::<Vec<_>>());
        Matrix::new(&models, &[], &config).unwrap_err()
    };
    let one = [("one", "a")];
    for (found, expected) in [
        (error(&[], &[], &[]), "sets: there has to be at least one"),
        (
            error(&[("x", "y")], &[], &one),
            "vars: `x` stands for `y`, and there is no such model",
        ),
        (
            error(&[("x y", "a")], &[], &one),
            "vars: `x y` is no name: it may have letters, digits, `-`, `_` and `.`",
        ),
        (
            error(&[("x", "a"), ("x", "b")], &[], &one),
            "vars: `x` is there twice",
        ),
        (
            error(&[], &[("x", 2)], &one),
            "evict_costs: `x` is neither in `vars` nor a model",
        ),
        (
            error(&[], &[("a", 0)], &one),
            "evict_costs: `a` costs 0, and the least is 1",
        ),
        (
            error(&[("x", "a")], &[("a", 2), ("x", 3)], &one),
            "evict_costs: `x` is there twice",
        ),
        (
            error(&[], &[], &[("one", "a"), ("one", "b")]),
            "sets: `one` is there twice",
        ),
        (
            error(&[], &[], &[("one", "a & x")]),
            "sets: `one`, column 5: `x` is neither in `vars` nor a model",
        ),
        (
            error(&[], &[], &[("one", "a & +x")]),
            "sets: `one`, column 5: there is no set `x`",
        ),
        (
            error(&[], &[], &[("one", "a"), ("two", "b | +two")]),
            "sets: `two`, column 5: set `two` would be a part of itself",
        ),
        (
            error(&[], &[], &[("one", "+two"), ("two", "(a | +one)")]),
            "sets: `two`, column 6: set `one` would be a part of itself",
        ),
        (
            error(&[], &[], &[("one", "a ; b")]),
            "sets: `one`, column 3: `;` is not expected here: there may be names, `+set`, `&`, `|` and parentheses",
        ),
        (
            error(&[], &[], &[("one", "(a | b")]),
            "sets: `one`, column 1: this `(` is not closed",
        ),
    ] {
        assert_eq!(found, expected);
    }
    let many: Vec<String> = (0..200).map(|nth| format!("m{nth}")).collect();
    let sets = config(&[("all", &many.join("|"))], &[]);
    let error = Matrix::new(&many, &[], &sets).unwrap_err();
    assert_eq!(error, "sets: they name 200 models, and may name 128");
}

#[test]
fn what_is_stopping_costs_nothing_and_what_is_pinned_more_than_all() {
    let models = names("a b c");
    let matrix = Matrix::new(
        &models,
        &[],
        &config(&[("all", "(a | b) & c")], &[("b", 9)]),
    )
    .unwrap();
    let [a, b, c] = [0, 1, 2].map(InstanceId);
    let mut both = running(&[a, b]);
    assert_eq!(matrix.plan(c, &both).evict, [a]);
    both[1].is_stopping = true;
    assert_eq!(matrix.plan(c, &both).evict, [b]);
    both[1].is_stopping = false;
    both[0].is_pinned = true;
    assert_eq!(matrix.plan(c, &both).evict, [b]);
}

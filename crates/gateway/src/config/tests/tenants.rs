//! Tests of `[[tenants]]` and of `paths`.

use tower_triage::admit::TenantLimits;

use super::*;

fn environment(name: &str) -> Option<std::ffi::OsString> {
    (name == "KEY_A").then(|| "sk-a".into())
}

#[test]
fn tenants_have_keys_and_limits() {
    let file = temporary("keys");
    std::fs::write(&file, "# team b\nsk-b # bob\n\nsk-c\r\n").unwrap();
    let text = format!(
        "[queue]\nmax_size_per_tenant = 9\ndiscipline = 'fair'\n\
         [[tenants]]\nname = 'a'\nkeys = ['${{KEY_A}}', 'sk-b2']\nweight = 3\nmax_level = 'HIGH'\nmax_size = 2\n\
         models = ['m']\npaths = ['/v1']\n\
         [[tenants]]\nname = 'team b'\nkeys_file = {file:?}\nconcurrency = 4\n"
    );
    let config = read_in(&text, environment).unwrap();
    std::fs::remove_file(&file).unwrap();
    let [a, b] = &config.tenants[..] else {
        panic!("{:?}", config.tenants);
    };
    let hashes = |keys: [&str; 2]| keys.map(|key| KeyHash::of(key.as_bytes()));
    for (tenant, keys) in [(a, ["sk-a", "sk-b2"]), (b, ["sk-b", "sk-c"])] {
        let found: HashSet<_> = tenant.keys.hashes().collect();
        assert_eq!(found, HashSet::from(hashes(keys)), "{}", tenant.name);
    }
    assert_eq!(a.max_level.as_ref().unwrap(), "high");
    let room = &config.queue.room;
    assert_eq!(room.weights.get(&b"a"[..]), Some(&3));
    let limits = |name: &str| room.tenant_limits.get(name.as_bytes()).copied();
    assert_eq!(limits("a"), Some(TenantLimits::default().max_size(2)));
    assert_eq!(
        limits("team b"),
        Some(TenantLimits::default().concurrency(4))
    );
    let shown = format!("{config:?}");
    assert!(
        shown.contains("Keys(2)") && !shown.contains("sk-"),
        "{shown}"
    );
    let [warning] = &config.warnings[1..] else {
        panic!("{:?}", config.warnings);
    };
    assert!(
        warning.contains("\"a\" may use \"m\", a model that no backend"),
        "{warning}"
    );
}

#[test]
fn the_batch_level_may_be_the_most_urgent_one() {
    let tenant = "[[tenants]]\nname = 'a'\nkeys = ['k']\nmax_level = 'batch'\n";
    assert!(
        read(tenant)
            .unwrap_err()
            .contains("must be one of \"high\", \"normal\"")
    );
    let config = read(&format!("{tenant}[durable]\npath = 'x'")).unwrap();
    assert_eq!(config.tenants[0].max_level.as_ref().unwrap(), "batch");
}

#[test]
fn invalid_tenant_error_names_the_line_and_no_key() {
    let file = temporary("keys");
    let tenant = |lines: &str| format!("{BACKEND}[[tenants]]\nname = 'a'\n{lines}");
    let with_key = |lines: &str| tenant(&format!("keys = ['sk-1']\n{lines}"));
    let other = "\n[[tenants]]\nname = 'b'\nkeys = ['sk-2', 'sk-1']";
    for (text, problem) in [
        (
            tenant(""),
            "line 4, [[tenants]]: tenant \"a\": has no key: set `keys`",
        ),
        (tenant("keys = []"), "has no key"),
        (
            tenant("keys = ['${NONE}']"),
            "needs the environment variable NONE",
        ),
        (tenant("keys = ['sk 1']"), "has a space"),
        (tenant("keys = ['']"), "is empty"),
        (tenant("keys = 'sk-1'"), "must be an array of strings"),
        (tenant("keys = [1]"), "must be an array of strings"),
        (
            tenant("keys_file = '/no/such'"),
            "`keys_file` /no/such cannot be read",
        ),
        (tenant("keys_file = '/'"), "it is not a regular file"),
        (
            tenant(&format!("keys_file = {file:?}")),
            "line 2: a key has no spaces",
        ),
        (tenant("key = 'sk-1'"), "unknown field `key`"),
        (with_key("weight = 0"), "`weight` is 0"),
        (
            with_key("max_level = 'vip'"),
            "`max_level` is \"vip\": it must be one of \"high\", \"normal\"",
        ),
        (with_key("paths = ['v1']"), "\"v1\" is no prefix of paths"),
        (with_key("paths = ['/v1/../x']"), "is no prefix of paths"),
        (
            with_key(other),
            "line 8, [[tenants]]: the tenants \"a\" and \"b\" have a key in common",
        ),
        (
            with_key("[[tenants]]\nname = 'a'\nkeys = ['sk-2']"),
            "two tenants of the name \"a\"",
        ),
        (
            with_key("weight = 2\n[queue.tenant_weights]\na = 1"),
            "`tenant_weights`",
        ),
        (
            with_key("max_size = 2\n[queue.tenant_limits]\na = {}"),
            "`tenant_limits`",
        ),
        (
            with_key("[queue]\ntenant_header = 'none'"),
            "tenants need `tenant_header`",
        ),
        (
            with_key("[queue]\ntenant_header = 'X-API-Key'"),
            "has another use",
        ),
        (
            with_key("[queue]\ntenant_header = 'x-priority'"),
            "has another use",
        ),
        (
            "[[tenants]]\nname = ''\nkeys = ['k']".to_owned(),
            "`name` is empty",
        ),
        (
            "[[tenants]]\nname = 'é'\nkeys = ['k']".to_owned(),
            "not ASCII",
        ),
        (
            "[[tenants]]\nkeys = ['sk-1']".to_owned(),
            "missing field `name`",
        ),
    ] {
        std::fs::write(&file, "sk-1\nsk-2 sk-3\n").unwrap();
        let error = read(&text).unwrap_err();
        assert!(error.contains(problem), "{text}\n{error}");
        assert!(error.starts_with("line "), "{text}\n{error}");
        assert!(
            !error.contains("sk-") && !error.contains("sk 1"),
            "{text}\n{error}"
        );
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_weight_without_fair_shares_is_a_warning() {
    let config = read("[[tenants]]\nname = 'a'\nkeys = ['k']\nweight = 2").unwrap();
    let warning = config.warnings.last().unwrap();
    assert!(warning.contains("`weight` has no effect"), "{warning}");
}

#[test]
fn paths_are_a_name_or_prefixes() {
    for (value, expected) in [
        ("'apis'", Paths::Apis),
        ("'all'", Paths::All),
        (
            "['/v1', '/x/']",
            Paths::Below(vec!["/v1".to_owned(), "/x/".to_owned()]),
        ),
    ] {
        let config = read(&format!("[server]\npaths = {value}")).unwrap();
        assert_eq!(config.server.paths, expected);
    }
    assert_eq!(read("").unwrap().server.paths, Paths::Apis);
    for value in ["'known'", "[]", "true", "[1]", "['v1']", "['/v1//x']"] {
        let error = read(&format!("[server]\npaths = {value}")).unwrap_err();
        assert!(
            error.starts_with("line 2, column 9, in `server.paths`"),
            "{error}"
        );
        assert!(
            error.contains("such as [\"/v1\"]") || error.contains("no prefix"),
            "{error}"
        );
    }
}

//! The difference of two JSON values, as a merge patch (RFC 7396).

use serde_json::{Map, Value};

/// Returns the patch that makes `new` out of `old`. Neither of them has a null in an object, because a patch removes by
/// null.
pub(super) fn between(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: Map<String, Value> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => _ = patch.insert(key.clone(), between(before, value)),
            None => _ = patch.insert(key.clone(), value.clone()),
        }
    }
    Value::Object(patch)
}

/// Removes all keys whose value is null.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_has_what_differs_alone() {
        for (old, new, patch) in [
            (json!({ "a": 1 }), json!({ "a": 1 }), json!({})),
            (json!({ "a": 1 }), json!({ "a": 2 }), json!({ "a": 2 })),
            (json!({ "a": 1 }), json!({}), json!({ "a": null })),
            (json!({}), json!({ "a": {} }), json!({ "a": {} })),
            (
                json!({ "a": { "b": 1, "c": 2 }, "d": 3 }),
                json!({ "a": { "b": 1, "c": 4 }, "d": 3 }),
                json!({ "a": { "c": 4 } }),
            ),
            (
                json!({ "a": [1, 2] }),
                json!({ "a": [1] }),
                json!({ "a": [1] }),
            ),
            (
                json!({ "a": { "b": 1 } }),
                json!({ "a": 5 }),
                json!({ "a": 5 }),
            ),
        ] {
            assert_eq!(between(&old, &new), patch, "{old} {new}");
        }
    }

    #[test]
    fn nulls_are_removed_at_any_depth() {
        let mut value = json!({ "a": null, "b": { "c": null, "d": [{ "e": null }] } });
        without_nulls(&mut value);
        assert_eq!(value, json!({ "b": { "d": [{}] } }));
    }
}

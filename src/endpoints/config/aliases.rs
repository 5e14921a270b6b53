//! Checks aliases. A cycle is an error, while an alias that points at another alias is only a warning.

use std::collections::BTreeMap;

use super::{InvalidRouting, RoutingWarning};

type Aliases = BTreeMap<String, String>;

/// Returns an error if a name is empty or if aliases lead back to themselves.
pub(super) fn validate(aliases: &Aliases) -> Result<(), InvalidRouting> {
    for (alias, target) in aliases {
        if alias.is_empty() || target.is_empty() {
            let (alias, target) = (alias.clone(), target.clone());
            return Err(InvalidRouting::EmptyAlias { alias, target });
        }
        if let Some(chain) = cycle(aliases, alias) {
            return Err(InvalidRouting::AliasCycle { chain });
        }
    }
    Ok(())
}

/// Returns the names of the cycle that `start` belongs to, with `start` at both ends.
fn cycle(aliases: &Aliases, start: &str) -> Option<Vec<String>> {
    let mut chain = vec![start.to_owned()];
    let mut next = aliases.get(start)?;
    // If `start` only leads into a cycle of other aliases, the bound ends the loop. A later `start` inside that cycle
    // finds it.
    while chain.len() <= aliases.len() {
        chain.push(next.clone());
        if next == start {
            return Some(chain);
        }
        next = aliases.get(next)?;
    }
    None
}

/// Returns a warning for each alias whose target is an alias, too.
pub(super) fn warnings(aliases: &Aliases) -> impl Iterator<Item = RoutingWarning> {
    let of_aliases = aliases
        .iter()
        .filter(|(_, target)| aliases.contains_key(*target));
    of_aliases.map(|(alias, target)| RoutingWarning::AliasOfAlias {
        alias: alias.clone(),
        target: target.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(pairs: &[(&str, &str)]) -> Aliases {
        let owned = |&(alias, target): &(&str, &str)| (alias.to_owned(), target.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_circle_is_refused_and_named() {
        for (pairs, chain) in [
            (&[("a", "a")][..], "a → a"),
            (&[("a", "b"), ("b", "a")], "a → b → a"),
            (&[("x", "b"), ("b", "c"), ("c", "b")], "b → c → b"),
        ] {
            let error = validate(&aliases(pairs)).unwrap_err().to_string();
            assert!(error.contains(chain), "{error}");
        }
    }

    #[test]
    fn an_alias_of_an_alias_is_a_warning() {
        let aliases = aliases(&[("a", "b"), ("b", "c"), ("d", "c")]);
        assert_eq!(validate(&aliases), Ok(()));
        let warnings: Vec<_> = warnings(&aliases).collect();
        let (alias, target) = ("a".to_owned(), "b".to_owned());
        assert_eq!(warnings, [RoutingWarning::AliasOfAlias { alias, target }]);
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert!(validate(&aliases(&[("", "b")])).is_err());
        assert!(validate(&aliases(&[("a", "")])).is_err());
    }
}

//! References to environment variables in values of the file, such as `Bearer ${OPENAI_KEY}`.
//!
//! A key that is written into the file also ends up in its backups and its version history.

use super::Environment;

#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum InvalidReference {
    #[error("needs the environment variable {0}, which is not set")]
    Unset(String),
    #[error(
        "needs the environment variable {0}, which is not set, or a macro of this name in [swap.macros]"
    )]
    Unknown(String),
    #[error("uses ${{{0}}}, and [swap.macros] has no macro of this name")]
    NoMacro(String),
    #[error("needs the environment variable {0}, which is empty")]
    Empty(String),
    #[error("needs the environment variable {0}, which is not UTF-8")]
    NotUtf8(String),
    #[error("has a `${{` without a variable name and `}}` after it: write `${{NAME}}`")]
    Malformed,
    #[error("needs the path of this program, which is not known")]
    NoProgram,
}

/// Replaces each `${NAME}` in `text` by the value of the variable. Values are not expanded again.
pub(super) fn expand(text: &str, environment: Environment) -> Result<String, InvalidReference> {
    expand_with(text, is_variable, |name| variable(name, environment))
}

/// Replaces each `${NAME}` in `text` by what `value` returns for it, if that `is_name`. Values are not expanded again.
pub(super) fn expand_with(
    mut text: &str,
    is_name: impl Fn(&str) -> bool,
    value: impl Fn(&str) -> Result<String, InvalidReference>,
) -> Result<String, InvalidReference> {
    let mut expanded = String::new();
    while let Some((before, rest)) = text.split_once("${") {
        let (name, after) = rest.split_once('}').ok_or(InvalidReference::Malformed)?;
        if !is_name(name) {
            return Err(InvalidReference::Malformed);
        }
        expanded.push_str(before);
        expanded.push_str(&value(name)?);
        text = after;
    }
    expanded.push_str(text);
    Ok(expanded)
}

/// The value of the variable `name`, which must be set and not empty.
pub(super) fn variable(name: &str, environment: Environment) -> Result<String, InvalidReference> {
    let value = environment(name).ok_or_else(|| InvalidReference::Unset(name.to_owned()))?;
    let value = value
        .into_string()
        .map_err(|_| InvalidReference::NotUtf8(name.to_owned()))?;
    if value.is_empty() {
        return Err(InvalidReference::Empty(name.to_owned()));
    }
    Ok(value)
}

/// Returns `true` if an environment variable may have this name.
pub(super) fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_in_place() {
        let environment: Environment = |name| match name {
            "KEY" => Some("sk".into()),
            "NESTED" => Some("${KEY}".into()),
            "_2" => Some("two".into()),
            "EMPTY" => Some("".into()),
            _ => None,
        };
        for (text, expanded) in [
            ("", Ok("")),
            ("plain", Ok("plain")),
            ("Bearer ${KEY}", Ok("Bearer sk")),
            ("${KEY}${_2}", Ok("sktwo")),
            ("$KEY $ {KEY} }", Ok("$KEY $ {KEY} }")),
            ("${NESTED}", Ok("${KEY}")),
            ("a ${NONE}", Err(InvalidReference::Unset("NONE".to_owned()))),
            (
                "a ${EMPTY}",
                Err(InvalidReference::Empty("EMPTY".to_owned())),
            ),
            ("${KEY", Err(InvalidReference::Malformed)),
            ("${}", Err(InvalidReference::Malformed)),
            ("${sk-1234}", Err(InvalidReference::Malformed)),
            ("${2}", Err(InvalidReference::Malformed)),
        ] {
            let expanded = expanded.map(str::to_owned);
            assert_eq!(expand(text, environment), expanded, "{text}");
        }
    }
}

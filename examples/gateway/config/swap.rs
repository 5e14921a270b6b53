//! The `[swap]` section: models that are started when requests ask for them.
//!
//! In `cmd`, `stop_cmd` and the values of `env`, `${GATEWAY}` stands for the path of this program and `${NAME}` for a
//! variable of the environment. `${PORT}` and `${PID}` are left to the library, which knows them.

mod section;

use std::collections::HashSet;
use std::sync::OnceLock;

use tower_triage::endpoints::Endpoint;
use tower_triage::swap::{SwapConfig, SwapModel};

use super::Environment;
use super::expand::{InvalidReference, expand_with, variable};
pub(super) use section::SwapSection;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidSwapSection {
    #[error("`{key}` of the model {model:?} {problem}")]
    Reference {
        model: String,
        key: String,
        problem: InvalidReference,
    },
    #[error("the model {0:?} has the name of one of [[backends]]: rename that")]
    NameOfBackend(String),
}

/// Expands references, and checks the names beside those of the backends.
pub(super) fn load(
    mut config: SwapConfig,
    backends: &[Endpoint],
    environment: Environment,
) -> Result<SwapConfig, InvalidSwapSection> {
    for model in &mut config.models {
        let expanded = expand_model(model, environment);
        expanded.map_err(|(key, problem)| InvalidSwapSection::Reference {
            model: model.model.name.clone(),
            key,
            problem,
        })?;
    }
    let backends: HashSet<&str> = backends.iter().map(|backend| &*backend.name).collect();
    for model in &config.models {
        let name = &model.model.name;
        let mut further = (2..=model.instances).map(|nth| format!("{name}#{nth}"));
        if backends.contains(&**name) || further.any(|name| backends.contains(&*name)) {
            return Err(InvalidSwapSection::NameOfBackend(name.clone()));
        }
    }
    Ok(config)
}

/// Errors come with the key.
fn expand_model(
    model: &mut SwapModel,
    environment: Environment,
) -> Result<(), (String, InvalidReference)> {
    let at = |key: &str| {
        let key = key.to_owned();
        move |problem| (key, problem)
    };
    model.cmd = expand_words(&model.cmd, environment).map_err(at("cmd"))?;
    if let Some(cmd) = &mut model.stop_cmd {
        *cmd = expand_words(cmd, environment).map_err(at("stop_cmd"))?;
    }
    for (key, value) in &mut model.env {
        *value = expand(value, environment).map_err(at(&format!("env.{key}")))?;
    }
    Ok(())
}

/// Expands the words of a command line. A value is never split into words.
fn expand_words(cmd: &str, environment: Environment) -> Result<String, InvalidReference> {
    let Ok(words) = shell_words::split(cmd) else {
        return Ok(cmd.to_owned()); // `section` has refused it
    };
    let words = words.iter().map(|word| expand(word, environment));
    Ok(shell_words::join(words.collect::<Result<Vec<_>, _>>()?))
}

fn expand(text: &str, environment: Environment) -> Result<String, InvalidReference> {
    expand_with(text, |name| match name {
        "PORT" | "PID" => Ok(format!("${{{name}}}")),
        "GATEWAY" => program().ok_or(InvalidReference::NoProgram),
        _ => variable(name, environment),
    })
}

/// The path of this program, as it was at the first call: once its file is replaced, the system says another one.
fn program() -> Option<String> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let path = || {
        let path = std::env::current_exe().ok()?;
        path.into_os_string().into_string().ok()
    };
    PROGRAM.get_or_init(path).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_expanded_by_words() {
        let environment: Environment = |name| match name {
            "DIR" => Some("/my models".into()),
            "ARGS" => Some("--a --b".into()),
            _ => None,
        };
        let program = program().unwrap();
        for (cmd, words) in [
            ("run --port ${PORT}", Ok(vec!["run", "--port", "${PORT}"])),
            (
                "${GATEWAY} model --name 'a b'",
                Ok(vec![&*program, "model", "--name", "a b"]),
            ),
            (
                "run -m ${DIR}/x ${ARGS}",
                Ok(vec!["run", "-m", "/my models/x", "--a --b"]),
            ),
            (
                "sh -c \"exec run ${PORT}; echo '${DIR}'\"",
                Ok(vec!["sh", "-c", "exec run ${PORT}; echo '/my models'"]),
            ),
            ("kill ${PID}", Ok(vec!["kill", "${PID}"])),
            (
                "run ${NONE}",
                Err(InvalidReference::Unset("NONE".to_owned())),
            ),
            ("run ${", Err(InvalidReference::Malformed)),
        ] {
            let expanded = expand_words(cmd, environment);
            let expanded = expanded.map(|cmd| shell_words::split(&cmd).unwrap());
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(expanded, words, "{cmd}");
        }
    }
}

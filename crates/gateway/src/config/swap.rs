//! The `[swap]` section: models that are started when requests ask for them.
//!
//! In `cmd`, `stop_cmd` and the values of `env`, `${GATEWAY}` stands for the path of this program, `${MODEL_ID}` for the name of
//! the model, and `${NAME}` for a macro or a variable of the environment. `${PORT}` and `${PID}` are left to the library, which
//! knows them.

mod macros;
mod section;

use std::collections::HashSet;
use std::sync::OnceLock;

use tower_triage::endpoints::Endpoint;
use tower_triage::swap::{SwapConfig, SwapModel};

use super::Environment;
use super::expand::{InvalidReference, expand_with, is_variable, variable};
use macros::Macros;
pub(super) use section::SwapSection;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidSwapSection {
    #[error("`{key}` of the model {model:?} {problem}")]
    Reference {
        model: String,
        key: String,
        problem: InvalidReference,
    },
    #[error(
        "`{key}` of the model {model:?} has an open quote or no words once its macros are put in: write a command line"
    )]
    NoCommand { model: String, key: String },
    #[error("the model {0:?} has the name of one of [[backends]]: rename that")]
    NameOfBackend(String),
}

impl InvalidSwapSection {
    /// Returns the keys that lead to the mistake, from the section on.
    pub(super) fn path(&self) -> Vec<&str> {
        match self {
            Self::Reference { model, key, .. } | Self::NoCommand { model, key } => {
                let mut path = vec!["swap", "models", model];
                path.extend(key.splitn(2, '.')); // `env.NAME`
                path
            }
            Self::NameOfBackend(model) => vec!["swap", "models", model],
        }
    }
}

/// Expands macros and references, and checks the names beside those of the backends.
pub(super) fn load(
    mut config: SwapConfig,
    macros: &Macros,
    backends: &[Endpoint],
    environment: Environment,
) -> Result<SwapConfig, InvalidSwapSection> {
    for model in &mut config.models {
        expand_model(model, macros, environment)?;
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

/// Returns a line for each model of which the configuration does not say what it takes.
pub(crate) fn unknown_capabilities(config: &SwapConfig) -> Vec<String> {
    let lines = config.models.iter().filter_map(|SwapModel { model, .. }| {
        let known = [
            ("context_length", model.context_length.is_some()),
            ("vision", model.vision.is_some()),
            ("tools", model.tools.is_some()),
            ("json_mode", model.json_mode.is_some()),
        ];
        let unknown = known.iter().filter(|(_, is_known)| !is_known);
        let unknown: Vec<String> = unknown.map(|(key, _)| format!("`{key}`")).collect();
        (!unknown.is_empty()).then(|| {
            let keys = unknown.join(", ");
            format!(
                "the model {:?} has no {keys}: its engine decides on requests that need them, and clients are not told",
                model.name
            )
        })
    });
    lines.collect()
}

fn expand_model(
    model: &mut SwapModel,
    macros: &Macros,
    environment: Environment,
) -> Result<(), InvalidSwapSection> {
    let values = Values {
        model: &model.model.name,
        macros,
        environment,
    };
    model.cmd = values.command("cmd", &model.cmd)?;
    if let Some(cmd) = &mut model.stop_cmd {
        *cmd = values.command("stop_cmd", cmd)?;
    }
    for (key, value) in &mut model.env {
        let expanded = values.expand(&macros.expand(value));
        *value = expanded.map_err(|problem| values.problem(&format!("env.{key}"), problem))?;
    }
    Ok(())
}

/// The values of references in the commands of one model.
struct Values<'a> {
    /// The name of the model.
    model: &'a str,
    macros: &'a Macros,
    environment: Environment,
}

impl Values<'_> {
    /// Expands a command line.
    fn command(&self, key: &str, cmd: &str) -> Result<String, InvalidSwapSection> {
        let words = shell_words::split(&self.macros.expand(cmd)).unwrap_or_default();
        if words.is_empty() {
            let (model, key) = (self.model.to_owned(), key.to_owned());
            return Err(InvalidSwapSection::NoCommand { model, key });
        }
        let expanded = self.words(&words);
        expanded.map_err(|problem| self.problem(key, problem))
    }

    /// Expands the words of a command line. A value is never split into words.
    fn words(&self, words: &[String]) -> Result<String, InvalidReference> {
        let words = words.iter().map(|word| self.expand(word));
        Ok(shell_words::join(words.collect::<Result<Vec<_>, _>>()?))
    }

    fn expand(&self, text: &str) -> Result<String, InvalidReference> {
        expand_with(text, macros::is_name, |name| match name {
            "PORT" | "PID" => Ok(format!("${{{name}}}")),
            "GATEWAY" => program().ok_or(InvalidReference::NoProgram),
            "MODEL_ID" => Ok(self.model.to_owned()),
            _ if !is_variable(name) => Err(InvalidReference::NoMacro(name.to_owned())),
            _ => variable(name, self.environment).map_err(|problem| match problem {
                InvalidReference::Unset(name) => InvalidReference::Unknown(name),
                other => other,
            }),
        })
    }

    fn problem(&self, key: &str, problem: InvalidReference) -> InvalidSwapSection {
        InvalidSwapSection::Reference {
            model: self.model.to_owned(),
            key: key.to_owned(),
            problem,
        }
    }
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
        let values = Values {
            model: "org/a b",
            macros: &Macros::default(),
            environment,
        };
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
                Err(InvalidReference::Unknown("NONE".to_owned())),
            ),
            ("run ${", Err(InvalidReference::Malformed)),
            ("run ${a b}", Err(InvalidReference::Malformed)),
            (
                "run ${my-args}",
                Err(InvalidReference::NoMacro("my-args".to_owned())),
            ),
            ("run ${MODEL_ID}/x", Ok(vec!["run", "org/a b/x"])),
        ] {
            let expanded = values.words(&shell_words::split(cmd).unwrap());
            let expanded = expanded.map(|cmd| shell_words::split(&cmd).unwrap());
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(expanded, words, "{cmd}");
        }
    }
}

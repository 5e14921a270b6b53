//! The command lines of a model: their words, their placeholders, and the environment in which they run.

use std::process::Stdio;

use tokio::process::Command;

use crate::swap::Launch;

/// The values that replace `${PORT}` and `${PID}` in command lines and variables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placeholders {
    pub(super) port: u16,
    pub(super) pid: Option<u32>,
}

impl Placeholders {
    fn fill(self, text: &str) -> String {
        let text = text.replace("${PORT}", &self.port.to_string());
        match self.pid {
            Some(pid) => text.replace("${PID}", &pid.to_string()),
            None => text,
        }
    }
}

/// The variable that lists the devices for CUDA.
const DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Returns a command line of a model as a command without input.
pub(super) fn command(
    line: &str,
    launch: &Launch,
    placeholders: Placeholders,
) -> Result<Command, CommandError> {
    let mut words = shell_words::split(line)?.into_iter();
    let program = words.next().ok_or(CommandError::Empty)?;
    let mut command = Command::new(placeholders.fill(&program));
    command.args(words.map(|word| placeholders.fill(&word)));
    if let Some((number, name)) = &launch.pool {
        command.env(DEVICES, device(*number, name));
    }
    // After the devices, because the model's own value goes before.
    for (name, value) in &launch.model.env {
        command.env(name, placeholders.fill(value));
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// Returns the device of a pool: the digits at the end of its name (`gpu1`), or else its number.
fn device(number: u32, name: &str) -> String {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    match &name[start..] {
        "" => number.to_string(),
        digits => digits.to_owned(),
    }
}

/// The error of a command line that can't be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("the command line is empty")]
    Empty,
    #[error("the command line cannot be split into words: {0}")]
    Words(#[from] shell_words::ParseError),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::swap::SwapModel;

    fn launch(model: SwapModel) -> Launch {
        Launch::new(Arc::new(model), Duration::ZERO)
    }

    /// Returns the words of a command line, and the value of `name` in its environment.
    fn parts(line: &str, launch: &Launch, name: &str) -> (Vec<String>, Option<String>) {
        let (port, pid) = (81, Some(7));
        let command = command(line, launch, Placeholders { port, pid }).unwrap();
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_str().unwrap().to_owned());
        let mut env = command.get_envs();
        let value = env.find_map(|(key, value)| (key == name).then_some(value?));
        let value = value.map(|value| value.to_str().unwrap().to_owned());
        (words.collect(), value)
    }

    #[test]
    fn words_are_split_as_by_a_shell_and_filled_in() {
        let mut model = SwapModel::new("m", "");
        model.env.insert("URL".into(), "http://h:${PORT}/".into());
        let line = r#"serve --port=${PORT} 'a b' "${PID} $HOME" c\ d"#;
        let (words, url) = parts(line, &launch(model), "URL");
        assert_eq!(words, ["serve", "--port=81", "a b", "7 $HOME", "c d"]);
        assert_eq!(url.as_deref(), Some("http://h:81/"));
    }

    #[test]
    fn a_command_line_without_words_is_an_error() {
        let (launch, pid) = (launch(SwapModel::new("m", "")), None);
        let error = |line| {
            command(line, &launch, Placeholders { port: 1, pid })
                .unwrap_err()
                .to_string()
        };
        assert_eq!(error("  "), "the command line is empty");
        assert!(error("a 'b").starts_with("the command line cannot be split"));
    }

    #[test]
    fn the_pool_chooses_the_devices_unless_the_model_does() {
        let mut launch = launch(SwapModel::new("m", ""));
        let devices = |launch: &Launch| parts("m", launch, DEVICES).1;
        assert_eq!(devices(&launch), None);
        for (name, device) in [("gpu12", "12"), ("4", "4"), ("a1b", "3"), ("", "3")] {
            launch.pool = Some((3, name.into()));
            assert_eq!(devices(&launch).as_deref(), Some(device), "{name}");
        }
        let mut model = SwapModel::new("m", "");
        model.env.insert(DEVICES.into(), "0,1".into());
        launch.model = Arc::new(model);
        assert_eq!(devices(&launch).as_deref(), Some("0,1"));
    }
}

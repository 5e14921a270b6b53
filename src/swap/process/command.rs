//! The command lines of a model: their words, their placeholders, and the environment in which they run.

use std::process::Stdio;

use tokio::process::Command;

use crate::swap::Launch;

/// The variable that lists the devices for CUDA.
const DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Returns a command line of a model as a command without input. In its words and variables, `port` and `pid` replace `${PORT}`
/// and `${PID}`.
pub(super) fn command(
    line: &str,
    launch: &Launch,
    port: u16,
    pid: Option<u32>,
) -> Result<Command, String> {
    let fill = |text: &str| {
        let text = text.replace("${PORT}", &port.to_string());
        match pid {
            Some(pid) => text.replace("${PID}", &pid.to_string()),
            None => text,
        }
    };
    let words = shell_words::split(line)
        .map_err(|error| format!("the command line cannot be split into words: {error}"))?;
    let mut words = words.into_iter();
    let program = words.next().ok_or("the command line is empty")?;
    let mut command = Command::new(fill(&program));
    command.args(words.map(|word| fill(&word)));
    if let Some((number, name)) = &launch.pool {
        command.env(DEVICES, device(*number, name));
    }
    // After the devices, because the model's own value goes before.
    for (name, value) in &launch.model.env {
        command.env(name, fill(value));
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
        let command = command(line, launch, port, pid).unwrap();
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
        let launch = launch(SwapModel::new("m", ""));
        let error = |line| command(line, &launch, 1, None).unwrap_err();
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

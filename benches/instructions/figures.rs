//! The figures that are kept in the repository.

use std::path::PathBuf;
use std::process::Command;

/// Figures, and the compiler that they are of.
#[derive(Default)]
pub(crate) struct Figures {
    compiler: String,
    figures: Vec<(String, f64)>,
}

impl Figures {
    pub(crate) fn of(&self, subject: &str) -> Option<f64> {
        let found = self.figures.iter().find(|(name, _)| name == subject);
        found.map(|(_, figure)| *figure)
    }

    pub(crate) fn are_of_this_compiler(&self) -> bool {
        self.compiler == compiler()
    }
}

/// Reads a file; no figures, if there is none.
pub(crate) fn read(file: &str) -> Figures {
    let text = std::fs::read_to_string(path(file)).unwrap_or_default();
    let mut lines = text.lines();
    let compiler = lines.next().unwrap_or_default().to_owned();
    let figures = lines.filter_map(|line| {
        let (subject, figure) = line.split_once(' ')?;
        Some((subject.to_owned(), figure.parse().ok()?))
    });
    Figures {
        compiler,
        figures: figures.collect(),
    }
}

pub(crate) fn write(file: &str, figures: &[(&str, f64)]) {
    let lines = figures
        .iter()
        .map(|(subject, figure)| format!("{subject} {figure:.0}\n"));
    let text = format!("{}\n{}", compiler(), lines.collect::<String>());
    std::fs::write(path(file), text).expect("the file can be written");
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Returns the version of the compiler, as `rustc --version` prints it.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.expect("rustc is installed").stdout;
    String::from_utf8_lossy(&output).trim().to_owned()
}

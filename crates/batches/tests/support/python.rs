//! Virtual environments of Python, each with packages that only some tests need.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the Python of the virtual environment `name`. The first run installs these packages.
pub(crate) fn environment(name: &str, packages: &[&str]) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, installed) = (home.join("bin/python"), home.join("installed"));
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&installed).is_ok_and(|packages| packages == wanted) {
        return python;
    }
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv", "--clear"]).arg(&home));
    let mut pip = Command::new(&python);
    run(pip.args(["-m", "pip", "install", "--quiet"]).args(packages));
    std::fs::write(&installed, wanted).unwrap();
    python
}

fn run(command: &mut Command) {
    let status = command.status().expect("Python 3 must be installed");
    assert!(
        status.success(),
        "{command:?} failed: Python 3 with its venv module must be installed"
    );
}

//! A file that no process can open, as if its disk hung.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Lets no other process open a file until it is dropped, but for 45 s at most.
pub(crate) struct Hangs(Child);

impl Hangs {
    pub(crate) fn new(file: &Path) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/hanging_file.py");
        let mut python = Command::new("python3");
        python.arg(script).arg(file);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().expect("Python 3 must be installed");
        let mut said = [0; 5];
        let output = process.stdout.as_mut().unwrap();
        output.read_exact(&mut said).expect("no lease of the file");
        Self(process)
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

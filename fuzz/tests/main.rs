//! The fuzz targets: whatever a stranger sends, a reader returns, and what it returns is what others read from it.

mod form;
mod headers;
mod json;
mod metrics_page;
mod upload;
mod usage;

/// The random inputs of each target in `cargo test`, beside those that are kept.
const RANDOM_INPUTS: usize = 100;

/// Returns the first line of `input`, and the rest.
fn first_line(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n');
    match end {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, b""),
    }
}

/// Returns a runtime with a clock that moves on whenever all tasks wait.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O starts")
}

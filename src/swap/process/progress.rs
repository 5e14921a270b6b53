//! The progress of a load, from a stream of events like that of llama.cpp's `/models/sse`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::health::HealthClient;
use super::lines::ByteLines;
use crate::swap::LoadProgress;

/// The pause between two streams, because at first the process does not listen yet.
const PAUSE: Duration = Duration::from_millis(250);
/// The length above which a line can't be an event about the progress.
const LONGEST_LINE: usize = 16 << 10;

/// Follows the events of a load, again and again, until this is dropped.
pub(super) async fn follow(client: &HealthClient, path: &str, progress: &LoadProgress) {
    loop {
        let mut lines = ByteLines::new(LONGEST_LINE);
        let read = |piece: &[u8]| {
            lines.push(piece, |line, is_cut| {
                if let Some(share) = share(line).filter(|_| !is_cut) {
                    progress.set(share);
                }
            });
        };
        // The health checks tell whether the process runs, so the end of the stream does not matter.
        _ = client.stream(path, read).await;
        sleep(PAUSE).await;
    }
}

/// Returns the share of the load that is done, if a line of the stream has it. The stages of a load, `stages`, count alike:
/// `value` is the share of the one that is `current`.
fn share(line: &[u8]) -> Option<f32> {
    let event: Value = serde_json::from_slice(line.strip_prefix(b"data:")?).ok()?;
    let progress = event.pointer("/data/progress")?;
    let value = progress["value"].as_f64()? as f32;
    let stages = progress["stages"].as_array().map_or(&[][..], Vec::as_slice);
    let nth = stages.iter().position(|it| *it == progress["current"]);
    Some(nth.map_or(value, |nth| (nth as f32 + value) / stages.len() as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_all_stages() {
        let with = |progress: &str| {
            let line = format!(
                r#"data: {{"model":"m","event":"model_status","data":{{"status":"loading","progress":{progress}}}}}"#
            );
            share(line.as_bytes())
        };
        assert_eq!(with(r#"{"value":0.5}"#), Some(0.5));
        let second =
            r#"{"stages":["text_model","mmproj_model"],"current":"mmproj_model","value":0.5}"#;
        assert_eq!(with(second), Some(0.75));
        assert_eq!(
            with(r#"{"stages":[],"current":"x","value":0.25}"#),
            Some(0.25)
        );
        assert_eq!(with(r#"{"stage":"fit_params"}"#), None);
        for other in [
            &b""[..],
            b": a comment",
            b"data: [DONE]",
            b"data: {\"data\":{}}",
        ] {
            assert_eq!(share(other), None);
        }
    }
}

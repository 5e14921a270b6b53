//! The progress of a load, from a stream of events like that of llama.cpp's `/models/sse`.

use std::time::Duration;

use serde::Deserialize;
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

#[derive(Deserialize)]
struct ProgressEvent {
    data: ProgressData,
}

#[derive(Deserialize)]
struct ProgressData {
    progress: StageProgress,
}

/// The progress of one stage of a load.
#[derive(Deserialize)]
struct StageProgress {
    /// The share of the stage that is done.
    value: f32,
    /// The name of the stage, if the load has several.
    current: Option<String>,
    /// The names of all stages, in order.
    #[serde(default)]
    stages: Vec<String>,
}

/// Returns the share of the load that is done, if a line of the stream has it. All stages count alike.
fn share(line: &[u8]) -> Option<f32> {
    let event: ProgressEvent = serde_json::from_slice(line.strip_prefix(b"data:")?).ok()?;
    let StageProgress {
        value,
        current,
        stages,
    } = event.data.progress;
    let nth = stages
        .iter()
        .position(|stage| Some(stage) == current.as_ref());
    Some(match nth {
        Some(nth) => (nth as f32 + value) / stages.len() as f32,
        None => value,
    })
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

//! The report of a model's load in a stream of a chat, for user interfaces that show how a model reasons.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::admit::Starting;
use crate::clock;
use crate::gate::QueuePlace;
use crate::service::StatusWriter;

/// A writer of chunks whose `delta.reasoning_content` says how far the load of a model is.
#[derive(Debug)]
pub(super) struct LoadReport {
    /// The name that the request asks for.
    model: Arc<str>,
    /// The seconds of the Unix epoch at which the stream began.
    created: u64,
    began: Instant,
    /// The stage in the last chunk. `None` before the first one, and after the last one.
    last: Option<LoadStage>,
}

/// The stage of a load, as a chunk tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadStage {
    /// The request waits for a slot of the model, or for memory to load it.
    Waits { position: usize },
    /// The model is being loaded.
    Loads { percent: Option<u8> },
}

impl LoadReport {
    pub(super) fn new(model: Arc<str>) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            model,
            created: since_epoch.map_or(0, |time| time.as_secs()),
            began: clock::now(),
            last: None,
        }
    }

    /// Returns the text that leads from the last stage to this one.
    fn text(&self, stage: LoadStage) -> String {
        let model = &self.model;
        let line = if self.last.is_some() { "\n" } else { "" };
        match (stage, self.last) {
            (stage, last) if last == Some(stage) => ".".to_owned(),
            (LoadStage::Waits { position }, Some(LoadStage::Waits { .. })) => {
                format!(" {position}")
            }
            (LoadStage::Waits { position }, _) => {
                format!("{line}Waiting for {model}. Position in the queue: {position}")
            }
            (LoadStage::Loads { percent }, Some(LoadStage::Loads { .. })) => {
                percent.map_or_else(|| ".".to_owned(), |percent| format!(" {percent} %"))
            }
            (LoadStage::Loads { percent }, _) => {
                let percent = percent.map(|percent| format!(" {percent} %"));
                format!("{line}Loading {model}{}", percent.unwrap_or_default())
            }
        }
    }

    /// Returns an event with this text.
    fn chunk(&self, text: &str) -> Bytes {
        let delta = match self.last {
            None => json!({ "role": "assistant", "reasoning_content": text }),
            Some(_) => json!({ "reasoning_content": text }),
        };
        let chunk = json!({
            "id": "", // libraries that join chunks take that of the answer instead
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": &*self.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": Value::Null }],
        });
        format!("data: {chunk}\n\n").into()
    }
}

impl From<&QueuePlace> for LoadStage {
    fn from(place: &QueuePlace) -> Self {
        match place.starting {
            None => Self::Waits {
                position: place.position,
            },
            Some(Starting { progress }) => Self::Loads {
                percent: progress.map(|share| (share.clamp(0.0, 1.0) * 100.0) as u8),
            },
        }
    }
}

impl StatusWriter for LoadReport {
    fn status(&mut self, place: &QueuePlace) -> Bytes {
        let stage = place.into();
        let chunk = self.chunk(&self.text(stage));
        self.last = Some(stage);
        chunk
    }

    fn end(&mut self) -> Option<Bytes> {
        self.last?;
        let took = clock::now().saturating_duration_since(self.began);
        let chunk = self.chunk(&format!("\nReady after {:.1} s.\n\n", took.as_secs_f64()));
        self.last = None;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(position: usize, starting: Option<Option<f32>>) -> QueuePlace {
        QueuePlace {
            position,
            estimated_wait: None,
            depth: 9,
            starting: starting.map(|progress| Starting { progress }),
        }
    }

    fn parsed(event: &Bytes) -> Value {
        let event = std::str::from_utf8(event).unwrap();
        let data = event.strip_prefix("data: ").unwrap();
        serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap()
    }

    #[test]
    fn a_report_says_that_the_model_waits_loads_and_is_loaded() {
        let mut report = LoadReport::new("m\"1".into());
        let first = parsed(&report.status(&place(3, None)));
        assert_eq!(first["object"], "chat.completion.chunk");
        assert_eq!(first["model"], "m\"1");
        let delta = &first["choices"][0]["delta"];
        assert_eq!(delta["role"], "assistant");
        let mut text = delta["reasoning_content"].as_str().unwrap().to_owned();
        let later = [
            place(3, None),
            place(1, None),
            place(1, Some(None)),
            place(1, Some(None)),
            place(1, Some(Some(0.429))),
            place(1, Some(Some(0.429))),
            place(1, Some(Some(2.0))),
        ];
        let mut events: Vec<Bytes> = later.iter().map(|place| report.status(place)).collect();
        events.extend(report.end());
        assert_eq!(report.end(), None);
        for event in events {
            let choice = &parsed(&event)["choices"][0];
            assert_eq!(choice["delta"].as_object().unwrap().len(), 1);
            assert_eq!(choice["finish_reason"], Value::Null);
            text += choice["delta"]["reasoning_content"].as_str().unwrap();
        }
        let expected = "Waiting for m\"1. Position in the queue: 3. 1\nLoading m\"1. 42 %. 100 %\nReady after ";
        assert!(
            text.starts_with(expected) && text.ends_with(" s.\n\n"),
            "{text}"
        );
    }
}

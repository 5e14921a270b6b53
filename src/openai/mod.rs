//! What the body of an OpenAI-compatible request asks: the model, tools, images, tokens and stream.
//!
//! [`ReadBody`] reads a body up to a limit; [`Requirements::from_json`] says what it asks.
//!
//! ```
//! use tower_triage::endpoints::Requirements;
//!
//! let asked = Requirements::from_json(br#"{"model": "llama3:8b", "tools": [{}], "messages": []}"#)?;
//! assert_eq!(asked.model, "llama3:8b");
//! assert!(asked.tools);
//! # Ok::<(), tower_triage::endpoints::RouteError>(())
//! ```
//!
//! [`Requirements::from_json`]: crate::endpoints::Requirements::from_json

mod json;
mod read_body;
mod requirements;

pub use read_body::ReadBody;

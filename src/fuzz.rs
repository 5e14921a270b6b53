//! The private readers of text that strangers send, for the fuzz targets of the package `fuzz`. They are no part of the
//! crate's API.

use std::error::Error;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

use crate::endpoints::{EngineLoad, RouteError};
use crate::openai::{AnswerForm, BodyKind, ReadForm, UsageReader};

/// Returns the load that the metrics page of an engine reports.
pub fn engine_load(page: &str) -> Option<EngineLoad> {
    crate::upstream::engine_load(page)
}

/// Returns the tokens of an answer in `pieces`, and those of its prompt. Neither is above `most`.
pub fn usage<'a>(
    headers: &HeaderMap,
    pieces: impl Iterator<Item = &'a [u8]>,
    is_whole: bool,
    most: u64,
) -> (u64, Option<u64>) {
    let mut reader = UsageReader::new(AnswerForm::of(headers));
    pieces.for_each(|piece| reader.read(piece));
    let (prompt, output) = reader.tokens(is_whole, most, most);
    (output, prompt)
}

/// The form as a server receives it, and the model that the router read from it.
#[derive(Debug, PartialEq, Eq)]
pub struct Form {
    /// The name of the model. `None` if no part of the form names one.
    pub model: Option<Vec<u8>>,
    /// The bytes that the server receives.
    pub passed: Vec<u8>,
}

/// Reads the form of a request with these headers. Returns `None` if its body is no form, and an error if the router
/// refuses it.
pub async fn form<B>(headers: &HeaderMap, body: B) -> Option<Result<Form, RouteError>>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let Ok(BodyKind::Form { boundary }) = BodyKind::of(&mut headers.clone()) else {
        return None;
    };
    let mut form = ReadForm::new(body, &boundary, LIMIT, None);
    let start = match std::future::poll_fn(|cx| form.poll_read(cx)).await {
        Ok(start) => start,
        Err(error) => return Some(Err(error)),
    };
    let model = start.model_at.map(|at| start.bytes[at].to_vec());
    let mut passed = start.bytes.to_vec();
    if let Some(mut rest) = start.rest {
        // A server may look at the beginning of a form that is cut off.
        while let Some(Ok(frame)) = rest.frame().await {
            passed.extend(frame.into_data().unwrap_or_default());
        }
    }
    Some(Ok(Form { model, passed }))
}

/// The number of bytes within which a form has to name its model.
const LIMIT: usize = 64 << 10;

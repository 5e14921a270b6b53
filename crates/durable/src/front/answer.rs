//! The answer to a request that has ended.

use std::sync::Arc;

use http::Response;

use super::body::OwnBody;
use super::shared::Front;
use super::stored_body::{PART, StoredBody};
use crate::{Found, ResponsePart, decode_response, rejections};
use tower_triage::rejection::{Rejection, ToRejection};

/// Returns the stored response of a request that has ended. A long body is read as its client takes it.
///
/// # Errors
///
/// Returns a rejection with the reason if the request ended without a response or if the store has lost it.
pub(super) async fn of_ended(front: &Front, found: Found) -> Result<Response<OwnBody>, Rejection> {
    let Found { info, response } = found;
    let first = match (info.response_status, response) {
        (None, _) => return Err(rejections::without_response(&info)),
        (_, Some(response)) if response.len() <= PART => Some(ResponsePart {
            length: response.len() as u64,
            data: response,
        }),
        _ => {
            let first = front.store.response_part(info.id, 0, PART).await;
            first.map_err(|error| error.to_rejection())?
        }
    };
    // The store may have forgotten the request between the two calls.
    let mut first = first.ok_or_else(rejections::not_found)?;
    let mut decoded = decode_response(first.data.clone());
    if decoded.is_err() && (first.data.len() as u64) < first.length {
        // The headers may be longer than a part.
        let whole = front.store.response(info.id).await;
        let whole = whole.map_err(|error| error.to_rejection())?;
        first.data = whole.ok_or_else(rejections::not_found)?;
        first.length = first.data.len() as u64;
        decoded = decode_response(first.data.clone());
    }
    let response = decoded.map_err(|error| {
        tracing::error!(id = %info.id, %error, "a stored response can't be read");
        rejections::without_response(&info)
    })?;
    let (read, length) = (first.data.len() as u64, first.length);
    if read >= length {
        return Ok(response.map(OwnBody::from));
    }
    let store = Arc::clone(&front.store);
    Ok(response.map(|part| {
        let body = StoredBody::new(store, info.id, part, read, length);
        OwnBody::Stored(body)
    }))
}

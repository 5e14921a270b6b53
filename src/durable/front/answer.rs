//! The answer to a request that has ended.

use http::Response;

use super::body::OwnBody;
use super::shared::Front;
use crate::durable::{Found, decode_response, rejections};
use crate::rejection::{Rejection, ToRejection};

/// Returns the stored response of a request that has ended.
///
/// # Errors
///
/// Returns a rejection with the reason if the request ended without a response or if the store has lost it.
pub(super) async fn of_ended(front: &Front, found: Found) -> Result<Response<OwnBody>, Rejection> {
    let Found { info, response } = found;
    let stored = match (info.response_status, response) {
        (None, _) => return Err(rejections::without_response(&info)),
        (_, Some(response)) => Ok(Some(response)),
        (_, None) => front.store.response(info.id).await,
    };
    let stored = stored.map_err(|error| error.to_rejection())?;
    // The store may have forgotten the request between the two calls.
    let stored = stored.ok_or_else(rejections::not_found)?;
    match decode_response(stored) {
        Ok(response) => Ok(response.map(OwnBody::from)),
        Err(error) => {
            tracing::error!(id = %info.id, %error, "a stored response can't be read");
            Err(rejections::without_response(&info))
        }
    }
}

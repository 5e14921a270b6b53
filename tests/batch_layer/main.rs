//! Services of batches behind a service of single requests.

mod basics;

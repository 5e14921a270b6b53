//! Fuzz targets, which are in `tests`. A package needs a library, so this one is empty.

// `cargo bolero` builds the tests of this library, too, with code that bolero's symbols belong to.
#[cfg(test)]
use bolero as _;
